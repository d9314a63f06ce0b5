"""Watches one resource of a live API server: list, watch, watch again, list again after a gap.

An open watch that delivers nothing may be idle or stalled, and events may arrive late. Therefore a
recording is declared complete up to a time only by a proof. A list requested at time T has a
resourceVersion that covers all changes before T. Nothing before T is missing once the watch has
reached that version, or if the list equals the recorded objects while the watch is open and not
within a line. (If an object was created and deleted while an open watch stayed silent, no list
shows it, but a later event of the watch would. Such an event withdraws the proof until the watch
reaches its version: the object's other changes may still be missing.) Proofs are requested at least
every PROOF_S, and at the end of the recording. If the last proof fails, the resource is listed,
which closes the gap; if that fails, too, the end of the resource is missing.

Source: kubernetes v1.34 client-go tools/cache/reflector.go (ListAndWatch and its watch's timeout)
and tools/pager/pager.go (pages, and what follows when a continue token expires); that a list
without a resourceVersion is the most recent state, and that resourceVersions of one resource are
compared as numbers: KEP-2340 and KEP-5504.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any

import orjson

from replay.errors import ApiError, RecordError, UnreachableError
from replay.importers.kubernetes.watch import RECORDED_NAMESPACE
from replay.importers.kubernetes.watch_coverage import (
    COMPLETE_UNTIL,
    ENDED,
    GAP,
    LIST_END,
    REFUSED,
    SINCE,
)
from replay.kube.changes import Raw, meta, parts
from replay.kube.changes import uid as uid_of
from replay.kube.kinds import Resource
from replay.record.api import ApiServer, Query
from replay.record.backoff import Backoff
from replay.record.frames import LineFile
from replay.record.http_client import Answer, BoundError
from replay.record.store import (
    GoneError,
    Listing,
    ResourceStore,
    WatchError,
    WatchEvent,
    valid_version,
)
from replay.record.usage import ClusterIndex, name_of
from services.rpc.kube import rfc3339

_WATCH_S = 420
_WATCH_S_MAX = 480.0
_SILENCE_S = 150.0
_FAILURES_MAX = 4
_TOKEN_LENGTH_MAX = 1 << 14
PROOF_S = 15.0
"""The longest time between two proofs that a watch is complete."""
_PROOF_OBJECTS = 50
"""The limit of the list request of a proof, in objects."""
_PROOFS_MAX = 8
_SETTLE_S = 1.0
"""How long, at the end, to wait for an open watch to deliver changes that a list already shows."""
_POLL_S = 0.02
UNANSWERED = "the server did not answer in time"
_UNSETTLED = "the watch had not delivered all changes when the recording ended"
_MALFORMED = (AttributeError, KeyError, RecursionError, TypeError, ValueError, ArithmeticError)


@dataclass(slots=True, kw_only=True)
class WatcherStatus:
    """The state of a watcher, for progress and notes.

    `listed` counts the objects of the first list, `lines` the lines of watches, `events` the
    recorded events, `requests` all lists and watches; `gaps` counts the gaps of the watch. Except
    in gaps, nothing before `complete_until_ns` (ns since 1970, 0 before the first list) is missing;
    `is_complete` is whether this time is the end of the recording. `problem` is a failure that is
    retried, `refused` one that ends the watcher (`is_forbidden`: by RBAC, 403), `broken` one that
    ends the whole recording.
    """

    is_listed: bool = False
    objects: int = 0
    listed: int = 0
    events: int = 0
    lines: int = 0
    requests: int = 0
    gaps: int = 0
    complete_until_ns: int = 0
    is_complete: bool = False
    problem: str = ""
    refused: str = ""
    is_forbidden: bool = False
    broken: str = ""

    @property
    def has_received(self) -> bool:
        """Return whether anything was recorded."""
        return self.is_listed or bool(self.objects)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proof:
    """A list that was requested at `asked_ns`; all earlier changes have versions up to the list's.

    `listing` has all pages of the list, or is None.
    """

    asked_ns: int
    version: str
    listing: Listing | None


@dataclass(slots=True, kw_only=True, eq=False)
class Watcher:
    """Watches one resource until `ending` is set; `run` is the body of a thread.

    Other threads call `prove` and `close` meanwhile. Events that arrive after `end_ns` (0 before
    the end is known) are recorded with the time `end_ns`, since they happened before.

    Only the result of `redact` is kept of an object; `redact` returns None for an object that a
    trace does not contain, and raises ValueError for one that cannot be parsed. Other texts, and
    the resource's `namespace`, are kept as `redact_text` returns them. `page` is the limit of a
    list request. `ApiServer.stop` ends a request that waits.
    """

    resource: Resource
    api: ApiServer
    file: LineFile
    index: ClusterIndex
    ending: Event
    now_ns: Callable[[], int]
    redact: Callable[[Raw], Raw | None]
    page: int
    backoff: Backoff
    namespace: str = ""
    redact_text: Callable[[str], str] = str
    status: WatcherStatus = field(default_factory=WatcherStatus)
    end_ns: int = 0
    _received: int = 0
    _store: ResourceStore = field(init=False)
    _lock: Lock = field(default_factory=Lock)
    _closed: Event = field(default_factory=Event)
    _watch_answer: Answer | None = None
    _gap: dict[str, Any] | None = None
    _proofs: deque[_Proof] = field(default_factory=lambda: deque(maxlen=_PROOFS_MAX))
    _reached: tuple[int, str] = (0, "")
    """Time and version of the latest claim whose version the watch has reached, or a list had."""
    _equal: _Proof | None = None
    """The proof of a later claim, made because its list equalled the store."""

    def __post_init__(self) -> None:
        self._store = ResourceStore(self.resource, self.api.bounds.list_bytes)

    def run(self) -> None:
        """List and watch until the end; `status` has every failure."""
        try:
            self._follow()
        except RecordError as error:
            if not self.ending.is_set():
                self.status.broken = self.api.shown(str(error))
        except Exception as error:
            # Without this, the recording would silently lack this resource.
            self.status.broken = f"{self.resource.name}: {type(error).__name__}: {error}"
            raise

    @property
    def unreadable(self) -> int:
        """Return the number of objects of which at least one state was left out."""
        return self._store.unreadable

    def prove(self) -> None:
        """Request a proof that nothing is missing until now, if the watch is open.

        A failure is ignored: the watch reports failures itself, and so does `close`.
        """
        if self._watch_answer is None or self.status.refused or not self._store.version:
            return
        with contextlib.suppress(RecordError, WatchError):
            proof = self._asked_proof(_PROOF_OBJECTS)
            with self._lock:
                self._proofs.append(proof)
                self._settle(compares=True)

    def close(self) -> None:
        """Prove that nothing is missing until `end_ns`, or else list the resource.

        This is repeated until it succeeds or `ending` is set; `status.is_complete` is the result.
        """
        backoff = Backoff(initial_s=0.1, limit_s=1.0)
        while not (self._closed.is_set() or self.ending.is_set()):
            if self.status.refused or self.status.broken:
                return
            if not self._store.lists:
                # The first list is under way.
                self.ending.wait(_POLL_S)
                continue
            backoff.begin()
            retry_after_s = 0.0
            try:
                self._close()
            except BoundError as error:
                self._problem(error)
                return
            except (RecordError, WatchError) as error:
                self._problem(error)
                retry_after_s = getattr(error, "retry_after_s", 0.0)
            if not self._closed.is_set():
                self.ending.wait(backoff.wait_s(retry_after_s))

    def note_missing_end(self) -> None:
        """Record, as the last event, that the changes since `complete_until_ns` are unknown.

        A `close` that is still running records no claim after this.
        """
        with self._lock:
            if self.status.is_complete or self.status.refused:
                return
            self._closed.set()
            if self._store.lists:
                why = self.status.problem or self.status.broken or UNANSWERED
                event = {"kind": self.resource.kind, **self._gap_since(why), ENDED: True}
                self._write([WatchEvent(type=GAP, object=event)])

    def _follow(self) -> None:
        failures = 0
        while not self.ending.is_set():
            received, retry_after_s = self._received, 0.0
            self.backoff.begin()
            try:
                if not self._store.version:
                    self._list()
                self._watch()
            except BoundError as error:
                self._refused(str(error))
                return
            except GoneError as error:
                self._lost(error)
            except ApiError as error:
                if error.status == 401:
                    raise
                if error.is_refused:
                    self.status.is_forbidden = error.status == 403
                    self._refused(str(error))
                    return
                if error.is_gone:
                    self._lost(error)
                self._problem(error)
                retry_after_s = error.retry_after_s
            except UnreachableError as error:
                self._problem(error)
            except WatchError as error:
                self._problem(error)
                if failures >= _FAILURES_MAX:
                    # A server restored from a backup never reaches this resourceVersion.
                    self._lost(error)
            failures = 0 if self._received > received else failures + 1
            # Every request is followed by a wait, whatever its result: a server that ends each
            # watch at once, or answers each with 410, is not queried more often than a broken one.
            self.ending.wait(self.backoff.wait_s(retry_after_s))

    def _refused(self, why: str) -> None:
        if self._closed.is_set():
            return
        self.status.refused = why
        self.index.refuse(self.resource.kind)
        with self._lock:
            if self._store.lists:
                gap = {**self._gap_since(self.api.shown(why)), REFUSED: True}
                event = WatchEvent(type=GAP, object={"kind": self.resource.kind, **gap})
                self._write([event])

    def _problem(self, error: Exception) -> None:
        """Store the message of a failure that is retried, unless the recorder's end caused it."""
        where = f"{self.resource.path}: " if isinstance(error, WatchError) else ""
        if not self.ending.is_set():
            self.status.problem = self.api.shown(f"{where}{error}")

    def _lost(self, error: Exception) -> None:
        """Forget the resourceVersion, so that a list follows, and note that a gap begins."""
        with self._lock:
            if self._store.lists:
                self._gap = self._gap_since(self.api.shown(str(error)))
            self._store.version = ""
            self._proofs.clear()

    def _gap_since(self, why: str) -> dict[str, Any]:
        """Return the content of the event of a gap; a gap that has already begun continues."""
        begun: Mapping[str, Any] = self._gap or {
            SINCE: rfc3339.text(self.status.complete_until_ns, 6),
            "metadata": {"resourceVersion": self._store.version},
        }
        return {**begun, "message": self.redact_text(why)}

    def _list(self) -> None:
        """List all pages. Raises the errors of requests, and BoundError."""
        listing, asked_ns, more = Listing(), self.now_ns(), ""
        names = set[tuple[str, str]]()
        while not self.ending.is_set():
            with self._one_page(self.page, more) as answer:
                list_metadata, items, before = meta(answer), parts(answer, "items"), len(names)
                names.update(map(name_of, items))
                self._index(items)
                kept = list(self._read(items))
                with self._lock:
                    if self.namespace and not self.file.lines:
                        self._write([self._beginning()])
                    self._write(self._store.page(listing, kept))
            self._received += 1
            more = _text(list_metadata.get("continue"))
            if more:
                if len(names) == before or len(more) > _TOKEN_LENGTH_MAX:
                    raise WatchError("a page of a list without new objects, and more pages")
                continue
            version = _version_of_list(list_metadata)
            with self._lock:
                if self._closed.is_set():
                    return
                self._end_list(listing, version, asked_ns)
            self.index.keep(self.resource.kind, names, self.resource.namespace)
            return

    def _end_list(self, listing: Listing, version: str, asked_ns: int) -> None:
        """Record the end of a list, and that the file has all changes before it was requested."""
        store, gap = self._store, self._gap
        is_first = not store.lists
        self._write(store.end_list(listing, version, gap), since=gap[SINCE] if gap else None)
        self.status.gaps += gap is not None
        self._gap = None
        self._proofs.clear()
        self._claim(asked_ns, version, {LIST_END: "true"} if is_first else {})
        self._equal, self._reached = None, (self.status.complete_until_ns, version)
        if is_first:
            self.status.is_listed, self.status.listed = True, store.objects

    def _claim(
        self, until_ns: int, version: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        """Record that the lines so far have all changes before a time and up to a version.

        `annotations` are set for the end of a list, which is always recorded.
        """
        if self._closed.is_set():
            return
        if self.end_ns and until_ns >= self.end_ns:
            until_ns, self.status.is_complete = self.end_ns, True
            self._closed.set()
        if until_ns > self.status.complete_until_ns or annotations is not None:
            # A clock may be set back.
            until_ns = max(until_ns, self.status.complete_until_ns)
            self.status.complete_until_ns = until_ns
            claim = {**(annotations or {}), COMPLETE_UNTIL: rfc3339.text(until_ns, 6)}
            self._write([self._store.bookmark(version, claim)])

    def _asked_proof(self, limit: int) -> _Proof:
        """Request the first page of a list as a proof; if it is the only page, keep the listing.

        Raises the errors of requests, and WatchError for a list that is older than the watch.
        """
        seen = self._store.version or meta(self._gap or {}).get("resourceVersion") or ""
        before, asked_ns = _number(seen), self.now_ns()
        listing = Listing()
        with self._one_page(limit, of="proof") as answer:
            version, more = _version_of_list(meta(answer)), _text(meta(answer).get("continue"))
            self._compare(listing, parts(answer, "items"))
        if (listed := _number(version)) is not None and before is not None and listed < before:
            # A restored store, or a proxy that answers from a cache, may send this.
            raise WatchError(f"a list of resourceVersion {listed}, after {before} of the watch")
        return _Proof(asked_ns=asked_ns, version=version, listing=None if more else listing)

    def _compare(self, listing: Listing, items: Iterable[Raw]) -> None:
        kept = list(self._read(items))
        with self._lock:
            # `page` yields no events after the first list.
            self._write(self._store.page(listing, kept))

    def _settle(self, *, compares: bool) -> None:
        """Record the latest proof if the watch has reached it, or if its list equals the store."""
        reached = _number(self._store.version)
        for proof in reversed(self._proofs):
            number = _number(proof.version)
            is_reached = reached is not None and number is not None and number <= reached
            if is_reached or (compares and self._is_equal(proof)):
                self._claim(proof.asked_ns, proof.version)
                self._equal = None if is_reached else proof
                if is_reached:
                    self._reached = (self.status.complete_until_ns, proof.version)
                while self._proofs.popleft() is not proof:
                    pass
                return

    def _withdraw(self) -> None:
        """Claim no more than was reached if an event is older than the list that was equal."""
        if self._equal is None:
            return
        number, version = _number(self._equal.version), _number(self._store.version)
        if number is None or version is None or version > number:
            return
        # Reaching the version will prove it again; of more proofs than that, the latest count.
        if len(self._proofs) < _PROOFS_MAX:
            self._proofs.appendleft(self._equal)
        self._equal = None
        self.status.complete_until_ns, of_version = self._reached
        claim = {COMPLETE_UNTIL: rfc3339.text(self.status.complete_until_ns, 6)}
        self._write([self._store.bookmark(of_version, claim)])

    def _is_equal(self, proof: _Proof) -> bool:
        answer = self._watch_answer
        if proof.listing is None or answer is None or answer.is_within_line:
            return False
        return not self._store.differs(proof.listing)

    def _close(self) -> None:
        proof = self._asked_proof(self.page)
        self._await(proof)
        if proof.listing is None and not self._closed.is_set():
            proof = self._whole(proof)
            self._await(proof)
        with self._lock:
            if self._closed.is_set() or proof.listing is None:
                return
            self._gap = self._gap_since(self.status.problem or _UNSETTLED)
            self._end_list(proof.listing, proof.version, proof.asked_ns)

    def _whole(self, proof: _Proof) -> _Proof:
        """Return a proof with all pages of its list; `proof` if the watch reaches it first."""
        listing, asked_ns, token = Listing(), self.now_ns(), ""
        while not (self._closed.is_set() or self.ending.is_set()):
            before = len(listing.listed)
            with self._one_page(self.page, token, of="proof") as answer:
                self._compare(listing, parts(answer, "items"))
                list_metadata = meta(answer)
            version, token = _version_of_list(list_metadata), _text(list_metadata.get("continue"))
            if not token:
                return _Proof(asked_ns=asked_ns, version=version, listing=listing)
            if len(listing.listed) == before or len(token) > _TOKEN_LENGTH_MAX:
                raise WatchError("a page of a list without new objects, and more pages")
        return proof

    def _await(self, proof: _Proof) -> None:
        """Wait up to _SETTLE_S for an open watch to reach a proof."""
        end_s = time.monotonic() + _SETTLE_S
        with self._lock:
            self._proofs.append(proof)
        while True:
            with self._lock:
                self._settle(compares=True)
            is_late = time.monotonic() >= end_s or self._watch_answer is None
            if self._closed.is_set() or is_late:
                return
            self.ending.wait(_POLL_S)

    def _beginning(self) -> WatchEvent:
        """Return the first event of a namespace's file; importers read the namespace from it."""
        annotations = {RECORDED_NAMESPACE: self.namespace}
        raw = {
            "kind": self.resource.kind,
            "apiVersion": self.resource.api_version,
            "metadata": {"annotations": annotations},
        }
        return WatchEvent(type="BOOKMARK", object=raw)

    @contextlib.contextmanager
    def _one_page(
        self, limit: int, more: str = "", *, of: str = "response"
    ) -> Iterator[dict[str, Any]]:
        query = dict[str, str | int](limit=limit) if limit else {}
        if more:
            query["continue"] = more
        self.status.requests += 1
        try:
            with self.api.opened(self.resource.path, query, of=of) as answer:
                yield answer
        except ApiError as error:
            if more and error.is_gone:
                # Continue tokens expire after minutes: list without pages.
                self.page = 0
            raise

    def _watch(self) -> None:
        query: Query = {
            "watch": 1,
            "allowWatchBookmarks": "true",
            "resourceVersion": self._store.version,
            "timeoutSeconds": _WATCH_S,
        }
        self.status.requests += 1
        with self.api.stream(self.resource.path, query, _SILENCE_S) as answer:
            self.status.problem = ""
            self._watch_answer = answer
            try:
                for line in answer.lines(_WATCH_S_MAX):
                    self.status.lines += 1
                    self._take(line)
                    self._received += 1
                    if self.ending.is_set():
                        return
            finally:
                self._watch_answer = None

    def _take(self, line: bytes) -> None:
        try:
            event: Any = orjson.loads(line)
            type_, raw = str(event["type"]), event["object"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            problem = f"{self.resource.path}: a line of the watch is not an event"
            raise UnreachableError(problem) from error
        if not isinstance(raw, dict):
            return
        kept: list[Raw] = [raw]
        if type_ in {"ADDED", "MODIFIED", "DELETED"}:
            self._index([raw], is_gone=type_ == "DELETED")
            kept = list(self._read([raw]))
        with self._lock:
            if self._closed.is_set():
                return
            for item in kept:
                new = self._store.event(type_, item)
                if new is not None:
                    self.status.events += 1
                    self._write([new])
                    self._withdraw()
            if self._proofs:
                self._settle(compares=False)

    def _index(self, items: Iterable[Raw], *, is_gone: bool = False) -> None:
        for item in items:
            if isinstance(item.get("metadata"), dict):
                self.index.see(self.resource.kind, item, is_gone=is_gone)

    def _read(self, items: Iterable[Raw]) -> Iterator[Raw]:
        """Yield redacted objects without managedFields."""
        for item in items:
            metadata = item.get("metadata")
            if not isinstance(metadata, dict):
                continue
            metadata.pop("managedFields", None)
            named = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, **item}
            try:
                kept = self.redact(named)
            except _MALFORMED:
                # One malformed object must not end the whole recording.
                with self._lock:
                    self._store.leave_out(uid_of(named))
                continue
            if kept is not None:
                yield kept

    def _write(self, events: Iterable[WatchEvent], *, since: str | None = None) -> None:
        """Write events.

        since: the beginning of the gap before a list; the list's events happened after it.
        """
        now_ns = self.now_ns()
        times = {"arrival": rfc3339.text(min(now_ns, self.end_ns) if self.end_ns else now_ns, 6)}
        if since is not None:
            times["since"] = since
        for event in events:
            line = {"type": event.type, "object": event.object}
            self.file.write({**times, "event": line})
        self.status.objects = self._store.objects


def _version_of_list(metadata: Raw) -> str:
    """Return a list's resourceVersion. Raises WatchError without one: no watch could follow."""
    version = valid_version(_text(metadata.get("resourceVersion")))
    if not version:
        raise WatchError("a list without a resourceVersion")
    return version


def _number(version: str) -> int | None:
    """Return a resourceVersion as a number; None for one that cannot be compared."""
    return int(version) if version.isdecimal() else None


def _text(value: object) -> str:
    """Return a string, or an integer as a string; "" for any other JSON value."""
    return str(value) if isinstance(value, str | int) else ""
