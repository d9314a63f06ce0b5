"""Following one resource of a live API server: list, watch, watch on, list again after a gap.

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
from replay.record.frames import LineFile, arrival
from replay.record.usage import Roster, name_of

_WATCH_S = 420
_SILENCE_S = 150.0
_PAUSE_MAX_S = 30.0
_FAILURES_MAX = 4
LIST_END = "k8s.io/initial-events-end"
GAP = "RECORDER"
"""The type of a frame that says that something was missed; no API server sends it."""


@dataclass(slots=True, kw_only=True)
class Told:
    """What a watcher has to say of itself.

    `first` counts the objects of the first list, `lines` all that watches said, `events` what of it
    was new; `gaps` says why lists were needed again. `problem` is tried again, `refused` ends the
    watcher, `broken` the whole recording.
    """

    is_listed: bool = False
    objects: int = 0
    first: int = 0
    events: int = 0
    lines: int = 0
    gaps: list[str] = field(default_factory=list)
    problem: str = ""
    refused: str = ""
    broken: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class Watcher:
    """Follows one resource until `ending` is set; `run` is a thread's.

    `redact` is put on each object before anything of it is kept; it returns None for one that
    cannot be read. `page` is how many objects a list asks for at once, `pause_s` the first wait
    after a failure.
    """

    resource: Resource
    api: ApiServer
    file: LineFile
    roster: Roster
    ending: Event
    now_ns: Callable[[], int]
    redact: Callable[[Raw], Raw | None]
    page: int
    pause_s: float
    told: Told = field(default_factory=Told)
    _heard: int = 0
    _followed: Followed = field(init=False)
    _lock: Lock = field(default_factory=Lock)
    _stream: Stream | None = None

    def __post_init__(self) -> None:
        self._followed = Followed(self.resource)

    def run(self) -> None:
        """List and watch until the end; whatever goes wrong is told."""
        try:
            self._follow()
        except (RecordError, OSError) as error:
            self.told.broken = str(error)
        except Exception as error:
            # A thread that ends without a word would leave a recording without this resource.
            self.told.broken = f"{self.resource.name}: {type(error).__name__}: {error}"
            raise

    def interrupt(self) -> None:
        """Let a watch that waits end soon; `ending` is set already."""
        with self._lock:
            if self._stream is not None:
                self._stream.stop()

    def _follow(self) -> None:
        pauses, gap = 0, ""
        while not self.ending.is_set():
            heard = self._heard
            try:
                if not self._followed.version:
                    self._list(gap)
                self._watch()
            except GoneError as error:
                gap = self._lost(str(error))
            except ApiError as error:
                if error.status == 401:
                    raise
                if error.is_refused:
                    self.told.refused = str(error)
                    return
                if error.is_gone:
                    gap = self._lost(str(error))
                self.told.problem = str(error)
            except UnreachableError as error:
                self.told.problem = str(error)
            except WatchError as error:
                self.told.problem = str(error)
                if pauses >= _FAILURES_MAX:
                    # A version that a restored server does not know is never served again.
                    gap = self._lost(str(error))
            # Who heard nothing twice in a row waits before asking again.
            pauses = 0 if self._heard > heard else pauses + 1
            if pauses > 1:
                pause_s = self.pause_s * 2.0 ** min(pauses - 2, 10)
                self.ending.wait(min(pause_s, _PAUSE_MAX_S))

    def _lost(self, why: str) -> str:
        """Note that a list is needed again; return what the recording says of it."""
        self._followed.version = ""
        if self._followed.lists:
            self.told.gaps.append(why)
        return (
            f"{self.resource.name} were listed again, what happened meanwhile is told late: {why}"
        )

    def _list(self, gap: str) -> None:
        """List all pages, whole. Raises what requests raise."""
        followed, more = self._followed, ""
        names = set[tuple[str, str]]()
        followed.begin_list()
        while not self.ending.is_set():
            answer = self._one_page(more)
            own = answer.get("metadata") or {}
            items = [each for each in answer.get("items") or () if isinstance(each, dict)]
            names.update(map(name_of, items))
            self._write(followed.page(list(self._read(items))))
            self._heard += 1
            more = str(own.get("continue") or "")
            if more:
                continue
            version = str(own.get("resourceVersion") or "")
            if not version:
                # It could never be watched on from.
                raise WatchError(f"{self.resource.path}: a list without a resourceVersion")
            self._write(followed.end_list(version, gap))
            self.roster.keep(self.resource.kind, names)
            if not self.told.is_listed:
                self.told.is_listed, self.told.first = True, followed.objects
            return

    def _one_page(self, more: str) -> dict[str, Any]:
        query = dict[str, str | int](limit=self.page) if self.page else {}
        if more:
            query["continue"] = more
        try:
            return self.api.get(self.resource.path, query)
        except ApiError as error:
            if more and error.is_gone:
                # A token lives for minutes only: what takes longer comes in one piece.
                self.page = 0
            raise

    def _watch(self) -> None:
        query: Query = {
            "watch": 1,
            "allowWatchBookmarks": "true",
            "resourceVersion": self._followed.version,
            "timeoutSeconds": _WATCH_S,
        }
        with self.api.stream(self.resource.path, query, _SILENCE_S) as stream:
            self.told.problem = ""
            with self._lock:
                self._stream = stream
            try:
                for line in () if self.ending.is_set() else stream.lines():
                    self.told.lines += 1
                    self._take(line)
                    self._heard += 1
            finally:
                with self._lock:
                    self._stream = None

    def _take(self, line: bytes) -> None:
        try:
            event: Any = orjson.loads(line)
            type_, raw = str(event["type"]), event["object"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            problem = f"{self.resource.path}: a line of the watch is no event"
            raise UnreachableError(problem) from error
        if not isinstance(raw, dict):
            return
        if type_ in {"ADDED", "MODIFIED", "DELETED"}:
            for each in self._read([raw], is_gone=type_ == "DELETED"):
                frame = self._followed.event(type_, each)
                if frame is not None:
                    self.told.events += 1
                    self._write([frame])
        else:
            self._followed.event(type_, raw)

    def _read(self, items: Iterable[dict[str, Any]], *, is_gone: bool = False) -> Iterator[Raw]:
        """Yield objects as they are kept: noted by name, then without what no trace carries."""
        for item in items:
            own = item.get("metadata")
            if not isinstance(own, dict):
                continue
            self.roster.see(self.resource.kind, item, is_gone=is_gone)
            own.pop("managedFields", None)
            named = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, **item}
            kept = self.redact(named)
            if kept is not None:
                yield kept

    def _write(self, frames: Iterable[Frame]) -> None:
        at = arrival(self.now_ns())
        for frame in frames:
            event = {"type": frame.type, "object": frame.object}
            self.file.write({"arrival": at, "event": event})
        self.told.objects = self._followed.objects


class GoneError(Exception):
    """The watch says that its resourceVersion is too old: list again."""


class WatchError(Exception):
    """The watch says that something else went wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One event of a watch, received or worked out from a list."""

    type: str
    object: Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """An object as last seen; packed, since a cluster holds many."""

    version: str
    packed: bytes


class Followed:
    """One resource's objects: lists and watch events in, the frames that are new out. No I/O.

    A list after a gap is compared with what was known, by uid and resourceVersion, so that what
    happened meanwhile is told and nothing is told twice. Memory is bounded by the objects' number.
    `version` is where a watch goes on, "" before the first list has ended. `lists` counts the
    lists that ended.
    """

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.version = ""
        self.lists = 0
        self._packer = zstandard.ZstdCompressor(level=1)
        self._known: dict[str, _Known] = {}
        self._met: set[str] = set()
        self._changed: list[Frame] = []

    @property
    def objects(self) -> int:
        """Return how many objects are there."""
        return len(self._known)

    def begin_list(self) -> None:
        """Forget what an earlier list that broke off has brought beyond the first one."""
        self._met.clear()
        self._changed.clear()

    def page(self, items: Sequence[Raw]) -> Iterator[Frame]:
        """Take a page of a list; those of the first list are told at once."""
        for item in items:
            raw = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, **item}
            uid = uid_of(raw)
            self._met.add(uid)
            known = self._known.get(uid)
            if known is not None and known.version == version_of(raw):
                continue
            if not self.lists:
                self._keep(uid, raw)
                yield Frame(type="ADDED", object=raw)
            else:
                self._changed.append(Frame(type="MODIFIED" if known else "ADDED", object=raw))

    def end_list(self, version: str, gap: str = "") -> Iterator[Frame]:
        """End the list that was as of `version`; `gap` says why it was needed.

        What has gone meanwhile comes first, with the list's version, since when it went nobody
        knows; then what came or changed, in the order of the versions.
        """
        if not self.lists:
            yield Frame(type="BOOKMARK", object=self._bookmark(version))
        elif gap:
            yield Frame(type=GAP, object={"kind": self.resource.kind, "message": gap})
        for uid in [each for each in self._known if each not in self._met]:
            yield Frame(type="DELETED", object=self._forget(uid, version))
        for frame in sorted(self._changed, key=lambda each: version_number(each.object) or 0):
            self._keep(uid_of(frame.object), frame.object)
            yield frame
        self.begin_list()
        self.lists += 1
        self.version = version

    def event(self, type_: str, raw: Raw) -> Frame | None:
        """Take a watch's event; None where it tells nothing new.

        Raises GoneError, and WatchError for any other error that the server tells.
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
        known = self._known.get(uid)
        if type_ == "DELETED":
            if known is None:
                return None
            del self._known[uid]
        elif known is not None and known.version == version:
            return None
        else:
            self._keep(uid, raw)
        return Frame(type=type_, object=raw)

    def _keep(self, uid: str, raw: Raw) -> None:
        packed = self._packer.compress(orjson.dumps(raw))
        self._known[uid] = _Known(version=version_of(raw), packed=packed)

    def _forget(self, uid: str, version: str) -> Raw:
        """Return the last state of an object that has gone, as of `version`."""
        last = orjson.loads(zstandard.ZstdDecompressor().decompress(self._known.pop(uid).packed))
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
