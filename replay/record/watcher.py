"""Watches one resource of a live API server: list, watch, watch again, list again after a gap.

Source: kubernetes v1.34 client-go tools/cache/reflector.go (ListAndWatch and its watch's timeout)
and tools/pager/pager.go (pages, and what follows when a continue token expires).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import orjson

from replay.errors import ApiError, RecordError, UnreachableError
from replay.importers.kubernetes.watch import RECORDED_NAMESPACE
from replay.kube.changes import Raw, meta, parts
from replay.kube.kinds import Resource
from replay.record.api import ApiServer, Query
from replay.record.backoff import Backoff
from replay.record.frames import LineFile, arrival_time
from replay.record.http_client import BoundError
from replay.record.store import GoneError, ResourceStore, WatchError, WatchEvent, valid_version
from replay.record.usage import ClusterIndex, name_of

_WATCH_S = 420
_WATCH_S_MAX = 480.0
_SILENCE_S = 150.0
_FAILURES_MAX = 4
_TOKEN_LENGTH_MAX = 1 << 14
_MALFORMED = (AttributeError, KeyError, RecursionError, TypeError, ValueError, ArithmeticError)


@dataclass(slots=True, kw_only=True)
class WatcherStatus:
    """The state of a watcher, for progress and notes.

    `listed` counts the objects of the first list, `lines` the lines of watches, `events` the
    recorded events, `requests` all lists and watches, `unreadable` the objects that are left out;
    `gaps` counts later lists, and `gap` is the reason of the last. `problem` is retried, `refused`
    ends the watcher (`is_forbidden`: by RBAC, 403), `broken` ends the whole recording.
    """

    is_listed: bool = False
    objects: int = 0
    listed: int = 0
    events: int = 0
    lines: int = 0
    requests: int = 0
    unreadable: int = 0
    gaps: int = 0
    gap: str = ""
    problem: str = ""
    refused: str = ""
    is_forbidden: bool = False
    broken: str = ""

    @property
    def has_received(self) -> bool:
        """Return whether anything was recorded."""
        return self.is_listed or bool(self.objects)


@dataclass(slots=True, kw_only=True, eq=False)
class Watcher:
    """Watches one resource until `ending` is set; `run` is the body of a thread.

    Only the result of `redact` is kept of an object; None means that the object cannot be read.
    Other texts are kept as `redact_text` returns them, and so is `namespace`, that of the resource.
    `page` is the limit of a list request. `ApiServer.stop` ends a request that waits.
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
    _received: int = 0
    _store: ResourceStore = field(init=False)

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
        """Return the number of objects and events that were left out."""
        return self.status.unreadable + self._store.unreadable

    def _follow(self) -> None:
        failures, gap = 0, ""
        while not self.ending.is_set():
            received, retry_after_s = self._received, 0.0
            self.backoff.begin()
            try:
                if not self._store.version:
                    self._list(gap)
                self._watch()
            except BoundError as error:
                self._refused(str(error))
                return
            except GoneError as error:
                gap = self._lost(error)
            except ApiError as error:
                if error.status == 401:
                    raise
                if error.is_refused:
                    self.status.is_forbidden = error.status == 403
                    self._refused(str(error))
                    return
                if error.is_gone:
                    gap = self._lost(error)
                self._problem(error)
                retry_after_s = error.retry_after_s
            except UnreachableError as error:
                self._problem(error)
            except WatchError as error:
                self._problem(error)
                if failures >= _FAILURES_MAX:
                    # A restored server never serves a resourceVersion that it does not know.
                    gap = self._lost(error)
            failures = 0 if self._received > received else failures + 1
            # Every request is followed by a wait, whatever its result: a server that ends each
            # watch at once, or answers each with 410, is not asked more often than a broken one.
            self.ending.wait(self.backoff.wait_s(retry_after_s))

    def _refused(self, why: str) -> None:
        self.status.refused = why
        self.index.refuse(self.resource.kind)

    def _problem(self, error: Exception) -> None:
        """Keep the text of a failure that is retried, unless the recorder's own end caused it."""
        where = f"{self.resource.path}: " if isinstance(error, WatchError) else ""
        if not self.ending.is_set():
            self.status.problem = self.api.shown(f"{where}{error}")

    def _lost(self, error: Exception) -> str:
        """Forget the resourceVersion, so that a list follows; return the message of the gap."""
        why = self.api.shown(str(error))
        self._store.version = ""
        if self._store.lists:
            self.status.gaps, self.status.gap = self.status.gaps + 1, why
        what = f"{self.resource.name} were listed again, changes in between are recorded late"
        return f"{what}: {self.redact_text(why)}"

    def _list(self, gap: str) -> None:
        """List all pages. Raises what requests raise, and BoundError."""
        store, more = self._store, ""
        names = set[tuple[str, str]]()
        store.begin_list()
        while not self.ending.is_set():
            with self._one_page(more) as answer:
                own, items, before = meta(answer), parts(answer, "items"), len(names)
                names.update(map(name_of, items))
                if self.namespace and not self.file.lines:
                    self._write([self._beginning()])
                self._write(store.page(list(self._read(items))))
            self._received += 1
            more = _text(own.get("continue"))
            if more:
                if len(names) == before or len(more) > _TOKEN_LENGTH_MAX:
                    raise WatchError("a page of a list without new objects, and more pages")
                continue
            version = valid_version(_text(own.get("resourceVersion")))
            if not version:
                # A watch cannot begin after such a list.
                raise WatchError("a list without a resourceVersion")
            self._write(store.end_list(version, gap))
            self.index.keep(self.resource.kind, names, self.resource.namespace)
            if not self.status.is_listed:
                self.status.is_listed, self.status.listed = True, store.objects
            return

    def _beginning(self) -> WatchEvent:
        """Return the first event of a file of one namespace, from which importers read its name."""
        annotations = {RECORDED_NAMESPACE: self.namespace}
        raw = {
            "kind": self.resource.kind,
            "apiVersion": self.resource.api_version,
            "metadata": {"annotations": annotations},
        }
        return WatchEvent(type="BOOKMARK", object=raw)

    @contextlib.contextmanager
    def _one_page(self, more: str) -> Iterator[dict[str, Any]]:
        query = dict[str, str | int](limit=self.page) if self.page else {}
        if more:
            query["continue"] = more
        self.status.requests += 1
        try:
            with self.api.opened(self.resource.path, query) as answer:
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
            for line in answer.lines(_WATCH_S_MAX):
                self.status.lines += 1
                self._take(line)
                self._received += 1
                if self.ending.is_set():
                    return

    def _take(self, line: bytes) -> None:
        try:
            event: Any = orjson.loads(line)
            type_, raw = str(event["type"]), event["object"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            problem = f"{self.resource.path}: a line of the watch is not an event"
            raise UnreachableError(problem) from error
        if not isinstance(raw, dict):
            return
        if type_ in {"ADDED", "MODIFIED", "DELETED"}:
            for each in self._read([raw], is_gone=type_ == "DELETED"):
                new = self._store.event(type_, each)
                if new is not None:
                    self.status.events += 1
                    self._write([new])
        else:
            self._store.event(type_, raw)

    def _read(self, items: Iterable[Raw], *, is_gone: bool = False) -> Iterator[Raw]:
        """Yield redacted objects without managedFields, after adding them to the index."""
        for item in items:
            own = item.get("metadata")
            if not isinstance(own, dict):
                continue
            self.index.see(self.resource.kind, item, is_gone=is_gone)
            own.pop("managedFields", None)
            named = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, **item}
            try:
                kept = self.redact(named)
            except _MALFORMED:
                # One malformed object must not end the recording of all.
                self.status.unreadable += 1
                continue
            if kept is not None:
                yield kept

    def _write(self, events: Iterable[WatchEvent]) -> None:
        at = arrival_time(self.now_ns())
        for event in events:
            line = {"type": event.type, "object": event.object}
            self.file.write({"arrival": at, "event": line})
        self.status.objects = self._store.objects


def _text(value: object) -> str:
    """Return a text or a whole number as text; "" for any other JSON value."""
    return str(value) if isinstance(value, str | int) else ""
