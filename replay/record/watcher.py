"""Watches one resource of a live API server: list, watch, watch again, list again after a gap.

Source: kubernetes v1.34 client-go tools/cache/reflector.go (ListAndWatch, its back-off and its
watch's timeout), tools/pager/pager.go (pages, and what follows when a continue token expires) and
tools/cache/delta_fifo.go (Replace).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any

import orjson
import zstandard

from replay.errors import ApiError, RecordError, UnreachableError
from replay.kube.changes import Raw, version_number
from replay.kube.changes import uid as uid_of
from replay.kube.changes import version as version_of
from replay.kube.kinds import Resource
from replay.record.api import ApiServer, Query, Stream
from replay.record.frames import LineFile, arrival_time
from replay.record.usage import ClusterIndex, name_of

_WATCH_S = 420
_SILENCE_S = 150.0
_PAUSE_MAX_S = 30.0
_FAILURES_MAX = 4
LIST_END = "k8s.io/initial-events-end"
GAP = "RECORDER"
"""The type of an event that marks a gap; no API server sends it."""


@dataclass(slots=True, kw_only=True)
class WatcherStatus:
    """The state of a watcher, for progress and notes.

    `listed` counts the objects of the first list, `lines` the lines of watches, `events` the
    recorded events; `gaps` are the reasons of later lists. `problem` is retried, `refused` ends the
    watcher, `broken` ends the whole recording.
    """

    is_listed: bool = False
    objects: int = 0
    listed: int = 0
    events: int = 0
    lines: int = 0
    gaps: list[str] = field(default_factory=list)
    problem: str = ""
    refused: str = ""
    broken: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class Watcher:
    """Watches one resource until `ending` is set; `run` is the body of a thread.

    Only the result of `redact` is kept of an object; None means that the object cannot be read.
    `page` is the limit of a list request, `pause_s` the first back-off after a failure.
    """

    resource: Resource
    api: ApiServer
    file: LineFile
    index: ClusterIndex
    ending: Event
    now_ns: Callable[[], int]
    redact: Callable[[Raw], Raw | None]
    page: int
    pause_s: float
    status: WatcherStatus = field(default_factory=WatcherStatus)
    _received: int = 0
    _store: ResourceStore = field(init=False)
    _lock: Lock = field(default_factory=Lock)
    _stream: Stream | None = None

    def __post_init__(self) -> None:
        self._store = ResourceStore(self.resource)

    def run(self) -> None:
        """List and watch until the end; `status` has every failure."""
        try:
            self._follow()
        except (RecordError, OSError) as error:
            self.status.broken = str(error)
        except Exception as error:
            # Without this, the recording would silently lack this resource.
            self.status.broken = f"{self.resource.name}: {type(error).__name__}: {error}"
            raise

    def interrupt(self) -> None:
        """Stop a watch that waits for events; call after `ending` is set."""
        with self._lock:
            if self._stream is not None:
                self._stream.stop()

    def _follow(self) -> None:
        pauses, gap = 0, ""
        while not self.ending.is_set():
            received = self._received
            try:
                if not self._store.version:
                    self._list(gap)
                self._watch()
            except GoneError as error:
                gap = self._lost(str(error))
            except ApiError as error:
                if error.status == 401:
                    raise
                if error.is_refused:
                    self.status.refused = str(error)
                    return
                if error.is_gone:
                    gap = self._lost(str(error))
                self.status.problem = str(error)
            except UnreachableError as error:
                self.status.problem = str(error)
            except WatchError as error:
                self.status.problem = str(error)
                if pauses >= _FAILURES_MAX:
                    # A restored server never serves a resourceVersion that it does not know.
                    gap = self._lost(str(error))
            # Two requests in a row without a result: back off.
            pauses = 0 if self._received > received else pauses + 1
            if pauses > 1:
                pause_s = self.pause_s * 2.0 ** min(pauses - 2, 10)
                self.ending.wait(min(pause_s, _PAUSE_MAX_S))

    def _lost(self, why: str) -> str:
        """Forget the resourceVersion, so that a list follows; return the message of the gap."""
        self._store.version = ""
        if self._store.lists:
            self.status.gaps.append(why)
        return (
            f"{self.resource.name} were listed again, changes in between are recorded late: {why}"
        )

    def _list(self, gap: str) -> None:
        """List all pages. Raises what requests raise."""
        store, more = self._store, ""
        names = set[tuple[str, str]]()
        store.begin_list()
        while not self.ending.is_set():
            answer = self._one_page(more)
            own = answer.get("metadata") or {}
            items = [each for each in answer.get("items") or () if isinstance(each, dict)]
            names.update(map(name_of, items))
            self._write(store.page(list(self._read(items))))
            self._received += 1
            more = str(own.get("continue") or "")
            if more:
                continue
            version = str(own.get("resourceVersion") or "")
            if not version:
                # A watch cannot begin after such a list.
                raise WatchError(f"{self.resource.path}: a list without a resourceVersion")
            self._write(store.end_list(version, gap))
            self.index.keep(self.resource.kind, names)
            if not self.status.is_listed:
                self.status.is_listed, self.status.listed = True, store.objects
            return

    def _one_page(self, more: str) -> dict[str, Any]:
        query = dict[str, str | int](limit=self.page) if self.page else {}
        if more:
            query["continue"] = more
        try:
            return self.api.get(self.resource.path, query)
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
        with self.api.stream(self.resource.path, query, _SILENCE_S) as stream:
            self.status.problem = ""
            with self._lock:
                self._stream = stream
            try:
                for line in () if self.ending.is_set() else stream.lines():
                    self.status.lines += 1
                    self._take(line)
                    self._received += 1
            finally:
                with self._lock:
                    self._stream = None

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

    def _read(self, items: Iterable[dict[str, Any]], *, is_gone: bool = False) -> Iterator[Raw]:
        """Yield redacted objects without managedFields, after adding them to the index."""
        for item in items:
            own = item.get("metadata")
            if not isinstance(own, dict):
                continue
            self.index.see(self.resource.kind, item, is_gone=is_gone)
            own.pop("managedFields", None)
            named = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, **item}
            kept = self.redact(named)
            if kept is not None:
                yield kept

    def _write(self, events: Iterable[WatchEvent]) -> None:
        at = arrival_time(self.now_ns())
        for event in events:
            line = {"type": event.type, "object": event.object}
            self.file.write({"arrival": at, "event": line})
        self.status.objects = self._store.objects


class GoneError(Exception):
    """The resourceVersion of a watch has expired: list again."""


class WatchError(Exception):
    """A watch reports another error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One event of a watch, received or derived from a list."""

    type: str
    object: Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredObject:
    """The last state of an object, compressed since a cluster has many."""

    version: str
    packed: bytes


class ResourceStore:
    """The objects of one resource: lists and watch events in, new events out. No I/O.

    A list after a gap is compared with the stored objects, by uid and resourceVersion, so that
    changes in between become events and no event is repeated. Memory is bounded by the number of
    objects. `version` is the resourceVersion of the next watch, "" before the end of the first
    list. `lists` counts completed lists.
    """

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.version = ""
        self.lists = 0
        self._packer = zstandard.ZstdCompressor(level=1)
        self._objects: dict[str, _StoredObject] = {}
        self._listed: set[str] = set()
        self._changed: list[WatchEvent] = []

    @property
    def objects(self) -> int:
        """Return the number of objects that exist."""
        return len(self._objects)

    def begin_list(self) -> None:
        """Forget the pages of a list that was not completed."""
        self._listed.clear()
        self._changed.clear()

    def page(self, items: Sequence[Raw]) -> Iterator[WatchEvent]:
        """Add a page of a list; yield the events of a page of the first list at once."""
        for item in items:
            raw = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, **item}
            uid = uid_of(raw)
            self._listed.add(uid)
            stored = self._objects.get(uid)
            if stored is not None and stored.version == version_of(raw):
                continue
            if not self.lists:
                self._keep(uid, raw)
                yield WatchEvent(type="ADDED", object=raw)
            else:
                type_ = "MODIFIED" if stored else "ADDED"
                self._changed.append(WatchEvent(type=type_, object=raw))

    def end_list(self, version: str, gap: str = "") -> Iterator[WatchEvent]:
        """End the list, whose resourceVersion is `version`; yield the events of a later list.

        Deletions come first, with the version of the list since their own is not known; then
        additions and changes in the order of their versions. `gap` is why the list was needed.
        """
        if not self.lists:
            yield WatchEvent(type="BOOKMARK", object=self._bookmark(version))
        elif gap:
            yield WatchEvent(type=GAP, object={"kind": self.resource.kind, "message": gap})
        for uid in [each for each in self._objects if each not in self._listed]:
            yield WatchEvent(type="DELETED", object=self._forget(uid, version))
        for event in sorted(self._changed, key=lambda each: version_number(each.object) or 0):
            self._keep(uid_of(event.object), event.object)
            yield event
        self.begin_list()
        self.lists += 1
        self.version = version

    def event(self, type_: str, raw: Raw) -> WatchEvent | None:
        """Add an event of a watch; return None where it is not new.

        Raises GoneError, and WatchError for any other error that the server reports.
        """
        if type_ == "ERROR":
            text = f"{raw.get('reason') or 'error'}: {raw.get('message') or ''}"
            if raw.get("code") == 410 or raw.get("reason") in {"Expired", "Gone"}:
                raise GoneError(text)
            raise WatchError(text)
        if not isinstance(raw.get("metadata"), dict):
            raise WatchError(f"an event of type {type_!r} without an object")
        version = version_of(raw)
        self.version = version or self.version
        if type_ not in {"ADDED", "MODIFIED", "DELETED"}:
            return None
        uid = uid_of(raw)
        stored = self._objects.get(uid)
        if type_ == "DELETED":
            if stored is None:
                return None
            del self._objects[uid]
        elif stored is not None and stored.version == version:
            return None
        else:
            self._keep(uid, raw)
        return WatchEvent(type=type_, object=raw)

    def _keep(self, uid: str, raw: Raw) -> None:
        packed = self._packer.compress(orjson.dumps(raw))
        self._objects[uid] = _StoredObject(version=version_of(raw), packed=packed)

    def _forget(self, uid: str, version: str) -> Raw:
        """Remove a deleted object; return its last state, with the resourceVersion `version`."""
        last = orjson.loads(zstandard.ZstdDecompressor().decompress(self._objects.pop(uid).packed))
        last["metadata"]["resourceVersion"] = version
        result: Raw = last
        return result

    def _bookmark(self, version: str) -> Raw:
        annotations = {LIST_END: "true"}
        return {
            "kind": self.resource.kind,
            "apiVersion": self.resource.api_version,
            "metadata": {"resourceVersion": version, "annotations": annotations},
        }
