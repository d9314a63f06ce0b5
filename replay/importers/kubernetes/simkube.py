"""SimKube traces: what a cluster's users applied and deleted, and how long pods ran.

One map in MessagePack (".sktrace") or JSON: events (seconds since 1970, objects applied, objects
deleted) and then the lives of the pods of each owner in the order of their start. A trace has no
nodes, no usage and no decisions. The MessagePack form is read twice, and never whole into memory:
the lives first, then one event after another.

Source: acrlabs/simkube sk-store, pod_owners_map.rs (lives are given to pods in order) and store.rs
(what an export holds). The files hold lives as {"Running": start} and {"Finished": [start, end]}.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
import orjson

from replay import bounds
from replay.errors import TraceError
from replay.hashing import name_suffix, object_uid
from replay.importers.kubernetes.left_out import issue_of
from replay.importers.records import (
    Importer,
    ImportOptions,
    Issues,
    PodTemplates,
    RecordNumbering,
    new_header,
    single_path,
)
from replay.importers.rows import SECONDS_MAX
from replay.kube.changes import without_status
from replay.kube.kinds import is_carried, metadata, namespace_in_force, read_object
from replay.trace.files import open_plain
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.trace.v1beta1.trace_pb2 import ControllerPod, Delete, PodLife, Record
from services.kube.time import SECOND_NS

NAME = "simkube"

_Key = tuple[str, str, str]
_Raw = Mapping[str, Any]
_VERSION = 2
_Life = tuple[int, int | None]
"""When a pod started, and when it ended or None, s since 1970."""
# Owners whose pods a replay's controllers make; their pods get lives by ordinal.
_MAKERS = frozenset({"ReplicaSet", "StatefulSet", "DaemonSet", "Job"})


@dataclass(slots=True, kw_only=True)
class _Facts:
    """The recorded interval, and the lives of pods by owner and template."""

    start_s: int | None = None
    end_s: int = 0
    lives: dict[_Key, list[list[_Life]]]


def sniff(_path: Path, start: bytes) -> bool:
    """Return whether a file whose content begins with `start` is a SimKube trace."""
    if start.lstrip()[:1] == b"{":
        return b'"trackedObjects"' in start and b'"events"' in start
    return start[:1] in {b"\x84", b"\x85"} and start[1:9] == b"\xa7version" and b"events" in start


def load(paths: Sequence[Path], options: ImportOptions) -> Iterator[Record]:
    """Yield the trace. Raises TraceError, with file and event, where it cannot be read."""
    path, facts = single_path(paths, "one SimKube trace"), _Facts(lives={})
    for name, content in _parts(path):
        if name == "event":
            _add_event_time(path, content, facts)
        elif name == "pod_lifecycles":
            _add_lives(path, content, facts)
        elif name == "version" and content != _VERSION:
            raise TraceError(str(path), f"is of version {content!r}; expected version {_VERSION}")
    return _Trace(path, facts, options).records()


class _Trace:
    def __init__(self, path: Path, facts: _Facts, options: ImportOptions) -> None:
        self._path = path
        self._facts = facts
        self._options = options
        self._issues = Issues()
        self._numbering = RecordNumbering()
        self._templates = PodTemplates(self._numbering)
        self._alive: dict[_Key, str] = {}
        self._births: dict[_Key, int] = {}

    def records(self) -> Iterator[Record]:
        """Yield the trace; the first event has the objects that existed at its start."""
        header = new_header(NAME, [self._path], self._options)
        header.start_time_ns = (self._facts.start_s or 0) * SECOND_NS
        if self._facts.end_s != self._facts.start_s:
            header.window_end_time_ns = self._facts.end_s * SECOND_NS
        header.times_recorded = True
        yield self._numbering.header(header)
        for number, (_, event) in enumerate(_parts(self._path, events_only=True), 1):
            where, at_ns = f"{self._path}, event {number}", int(event["ts"]) * SECOND_NS
            for raw in _objects(where, event, "applied_objs"):
                yield from self._applied(where, at_ns, raw)
            for raw in _objects(where, event, "deleted_objs"):
                yield from self._deleted(where, at_ns, raw)
        for owner in self._facts.lives:
            if owner not in self._births:
                message = f"lives of pods of {owner[0]}s that no event applies are not used"
                self._issues.add("unknown-object", str(self._path), message)
        yield from self._numbering.issues(self._issues)

    def _applied(self, where: str, at_ns: int, raw: _Raw) -> Iterator[Record]:
        if not is_carried(raw):
            issue_kind, message = issue_of(raw)
            self._issues.add(issue_kind, where, message)
            return
        kind = str(raw["kind"])
        made = read_object(where, without_status(raw))
        meta = metadata(made)
        if not meta.name:
            raise TraceError(where, f"{kind}: metadata.name is missing")
        meta.namespace = namespace_in_force(kind, meta.namespace)
        key = (kind, meta.namespace, meta.name)
        uid = self._alive.get(key)
        if uid is not None:
            meta.uid = uid
            yield self._numbering.record(at_ns, update=made)
            return
        births = self._births.get(key, 0)
        self._births[key] = births + 1
        meta.uid = meta.uid or object_uid(kind, meta.namespace, meta.name, ordinal=births)
        self._alive[key] = meta.uid
        yield from self._created(where, at_ns, key, made)

    def _created(
        self, where: str, at_ns: int, key: _Key, made: KubernetesObject
    ) -> Iterator[Record]:
        lives = self._facts.lives.get(key, [])
        if key[0] == "Pod":
            first = next((life[0] for life in lives if life), None)
            life = self._life(first) if first is not None else None
            yield from self._templates.pod_create(at_ns, made.pod, life)
            return
        if self._births[key] == 1:
            yield from self._controller_pods(where, at_ns, key, lives)
        yield self._numbering.record(at_ns, create=made)

    def _controller_pods(
        self, where: str, at_ns: int, key: _Key, lives: list[list[_Life]]
    ) -> Iterator[Record]:
        """Yield the lives of the pods that the owner will make, by template."""
        kind, namespace, name = key
        for ordinal, of_template in enumerate(lives):
            maker = ObjectReference(kind=kind, namespace=namespace, name=name)
            if kind == "Deployment":
                made = f"{name}-{name_suffix(self._alive[key], ordinal, 9)}"
                replica_set = ControllerPod(owner=maker, ordinal=ordinal, name=made)
                yield self._numbering.record(at_ns, controller_pod=replica_set)
                maker = ObjectReference(kind="ReplicaSet", namespace=namespace, name=made)
            elif kind not in _MAKERS or ordinal:
                message = f"lives of a {kind}'s pods are not used: they run until they are deleted"
                self._issues.add("unused-lives", where, message, len(of_template))
                continue
            for number, life in enumerate(of_template):
                pod = ControllerPod(owner=maker, ordinal=number, life=self._life(life))
                yield self._numbering.record(at_ns, controller_pod=pod)

    def _life(self, life: _Life) -> PodLife:
        start_s, ended_s = life
        end_s = self._facts.end_s if ended_s is None else ended_s
        ran_ns = max(0, end_s - start_s) * SECOND_NS
        return PodLife(service_duration_ns=ran_ns, censored=ended_s is None)

    def _deleted(self, where: str, at_ns: int, raw: _Raw) -> Iterator[Record]:
        meta = raw.get("metadata")
        metadata: _Raw = meta if isinstance(meta, dict) else {}
        kind = str(raw.get("kind") or "")
        namespace = namespace_in_force(kind, metadata.get("namespace"))
        key = (kind, namespace, str(metadata.get("name") or ""))
        uid = self._alive.pop(key, None)
        if uid is None:
            if is_carried(raw):
                message = f"delete {kind}: of an object that no event has applied"
                self._issues.add("unknown-object", where, message)
            return
        ref = ObjectReference(kind=kind, namespace=namespace, name=key[2], uid=uid)
        yield self._numbering.record(at_ns, delete=Delete(object=ref, cause="user"))


def _add_event_time(path: Path, event: object, facts: _Facts) -> None:
    at_s = event.get("ts") if isinstance(event, dict) else None
    if not isinstance(at_s, int) or not 0 <= at_s <= SECONDS_MAX:
        raise TraceError(str(path), "an event has no ts; expected seconds since 1970")
    facts.start_s = at_s if facts.start_s is None else min(facts.start_s, at_s)
    facts.end_s = max(facts.end_s, at_s)


def _objects(where: str, event: _Raw, name: str) -> list[_Raw]:
    objects = event.get(name) or []
    if not isinstance(objects, list) or not all(isinstance(raw, dict) for raw in objects):
        raise TraceError(where, f"{name}: expected a list of Kubernetes objects")
    return objects


def _add_lives(path: Path, content: object, facts: _Facts) -> None:
    for owner, by_template in content.items() if isinstance(content, dict) else ():
        gvk, named = owner if _is_pair(owner) else str(owner).rpartition(":")[::2]
        namespace, _, name = str(named).rpartition("/")
        key = (str(gvk).rpartition(".")[2], namespace, name)
        if not isinstance(by_template, dict) or not all(
            isinstance(lives, list | tuple) for lives in by_template.values()
        ):
            raise TraceError(str(path), "pod_lifecycles: expected lives by template")
        templates = [[_read_life(path, life) for life in lives] for lives in by_template.values()]
        templates.sort(key=lambda lives: lives[0][0] if lives else 0)
        facts.lives[key] = templates
        for start_s, end_s in (life for lives in templates for life in lives):
            facts.end_s = max(facts.end_s, end_s or start_s)


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def _read_life(path: Path, raw: object) -> _Life:
    match raw:
        case {"Running": int(start)}:
            return start, None
        case {"Finished": [int(start), int(end)]} | {"start_ts": int(start), "end_ts": int(end)}:
            if not 0 <= start <= end <= SECONDS_MAX:
                raise TraceError(str(path), f"pod_lifecycles: {raw!r} ends before it begins")
            return start, end
        case {"start_ts": int(start)}:
            return start, None
    raise TraceError(str(path), f"pod_lifecycles: {raw!r} is not the life of a pod")


def _parts(path: Path, *, events_only: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield "event" with each event, and unless `events_only` the map's other keys and values.

    Arrays are tuples, since keys of `pod_lifecycles` are arrays; with `events_only` they are lists,
    as in Kubernetes JSON.
    """
    with open_plain(path) as file:
        if file.peek(64).lstrip()[:1] == b"{":
            yield from _json_parts(path, bounds.content(file, str(path)), events_only)
            return
        unpacker = msgpack.Unpacker(
            file,
            strict_map_key=False,
            use_list=events_only,
            max_buffer_size=bounds.bounds().object_bytes,
        )
        try:
            for _ in range(unpacker.read_map_header()):
                name = unpacker.unpack()
                if name != "events" and events_only:
                    unpacker.skip()
                    continue
                if name != "events":
                    yield str(name), unpacker.unpack()
                    continue
                for _ in range(unpacker.read_array_header()):
                    yield "event", unpacker.unpack()
        except msgpack.BufferFull as error:
            what = "the object is too large"
            raise bounds.bounds().refuse(str(path), "object_bytes", what) from error
        except msgpack.StackError as error:
            raise bounds.bounds().refuse(str(path), "depth", "it is nested too deeply") from error
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            problem = f"is not complete MessagePack: {error or type(error).__name__}"
            raise TraceError(str(path), problem) from error


def _json_parts(path: Path, data: bytes, events_only: bool) -> Iterator[tuple[str, Any]]:
    bounds.check_json(data, str(path))
    try:
        read = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise TraceError(str(path), f"is not JSON: {error}") from error
    for name, value in read.items() if isinstance(read, dict) else ():
        if name == "events" and not isinstance(value, list):
            raise TraceError(str(path), "events: expected a list")
        if name == "events":
            yield from (("event", event) for event in value)
        elif not events_only:
            yield str(name), value


IMPORTER = Importer(
    name=NAME,
    description='a SimKube trace: a map in MessagePack or JSON with "trackedObjects" and "events"',
    sniff=sniff,
    load=load,
    no_outcomes="a SimKube trace has applied objects and pods' run times",
)
