"""`--apply`: applies manifests to the trace's objects at a given time, as `kubectl apply` does.

An object that exists at that time is changed by a three-way merge
(replay/importers/kubernetes/applied.py), except a pod, which stays unchanged. Other objects are
created. With copies=N, each pod in the manifests is created N times, as NAME-0, NAME-1 and so on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from replay.durations import duration_ns
from replay.errors import TraceError
from replay.hashing import object_uid
from replay.importers.kubernetes.applied import applied
from replay.importers.kubernetes.defaults import fill_in
from replay.importers.kubernetes.validity import refuse_change, refuse_invalid
from replay.importers.records import Issues
from replay.importers.registry import select
from replay.kube.device_versions import KINDS as DEVICE_KINDS
from replay.kube.documents import read_documents
from replay.kube.kinds import (
    KINDS,
    WORKLOADS,
    is_carried,
    list_items,
    metadata,
    namespace_in_force,
    read_object,
)
from replay.overrides.errors import NoEffectError, OverrideError
from replay.overrides.node_actions import refuse_misspelt, split_options
from replay.overrides.timed import renumbered
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.trace.v1beta1 import trace_pb2

_ISSUE = "applied"
_OPTIONS = ("at", "copies")
_COPIES = re.compile(r"\d{1,6}")
_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A document of a release: the object, and the file and line where it begins.

    copy_of: the name of the pod that it is a copy of, "" for the object itself.
    """

    where: str
    message: KubernetesObject
    copy_of: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The manifests of an `--apply`, by kind, namespace and name, in the order of the files.

    option: the option's text. at_ns: since the start of the trace. left_out: documents of kinds
    that a trace cannot contain. copied: the number of copies of each copied pod, by namespace and
    name.
    """

    option: str
    at_ns: int
    manifests: dict[_Key, Manifest]
    left_out: tuple[str, ...]
    copied: Mapping[tuple[str, str], int] = field(default_factory=dict)


def parse_apply(text: str) -> Release:
    """Read the manifests of "PATH[,at=TIME][,copies=N]". Raises OverrideError."""
    option = f"--apply {text}"
    path, given = split_options(option, text, _OPTIONS)
    if not Path(path).exists():
        refuse_misspelt(option, path, _OPTIONS)
    try:
        at_ns = duration_ns(given["at"]) if "at" in given else 0
    except ValueError:
        raise OverrideError(f"{option}: at={given['at']} is not a duration; write at=10m") from None
    copies = given.get("copies")
    if copies is not None and not _COPIES.fullmatch(copies):
        raise OverrideError(f"{option}: copies={copies} is not a number; write copies=10")
    try:
        release = _read(option, Path(path), at_ns)
        return release if copies is None else _multiplied(release, int(copies))
    except (TraceError, OSError) as error:
        raise OverrideError(f"{option}: {error}") from error


def apply_releases(
    records: Iterable[trace_pb2.Record], releases: Sequence[Release], start_ns: int
) -> Iterator[trace_pb2.Record]:
    """Yield the records with the releases' changes as the last ones at their times, renumbered."""
    return renumbered(_Applying(releases, start_ns).of(records))


def refuse_invalid_releases(
    records: Iterable[trace_pb2.Record], releases: Sequence[Release], start_ns: int
) -> None:
    """Refuse releases with a manifest that an API server would refuse for the trace's objects.

    The records are read up to the last release. Raises OverrideError.
    """
    applying = _Applying(releases, start_ns)
    try:
        for _ in applying.of(records):
            if applying.is_done:
                return
    except TraceError as error:
        raise OverrideError(f"--apply: {error}") from error


def _read(option: str, path: Path, at_ns: int) -> Release:
    if not path.exists():
        raise OverrideError(f"{option}: {path} does not exist")
    importer, files = select([path], issues=Issues())
    if importer.name != "manifests":
        problem = f"{path} is a trace of format {importer.name}; give manifests"
        raise OverrideError(f"{option}: {problem}")
    manifests: dict[_Key, Manifest] = {}
    left_out = []
    for file in files:
        for where, raw in read_documents(file):
            if not isinstance(raw, dict):
                raise TraceError(where, "is not a Kubernetes object: expected a mapping")
            items = list_items(raw)
            for item in (raw,) if items is None else items:
                if not is_carried(item):
                    left_out.append(f"{item.get('apiVersion')} {item.get('kind')}")
                    continue
                made = read_object(where, item)
                manifests[_named(made, str(item["kind"]), where)] = Manifest(where, made)
    if not manifests:
        raise NoEffectError(f"{option} has no effect: no object in it is one that a trace carries")
    return Release(option=option, at_ns=at_ns, manifests=manifests, left_out=tuple(left_out))


def _multiplied(release: Release, copies: int) -> Release:
    """Return a release with copies of each pod in place of it. Raises OverrideError without one."""
    manifests: dict[_Key, Manifest] = {}
    copied: dict[tuple[str, str], int] = {}
    for (kind, namespace, name), manifest in release.manifests.items():
        if kind != "Pod":
            if kind in WORKLOADS:
                problem = f"only pods are copied, and {kind} {name} makes its own"
                raise OverrideError(f"{release.option}: {problem}: give a Pod of its template")
            manifests[kind, namespace, name] = manifest
            continue
        copied[namespace, name] = copies
        for number in range(copies):
            made = KubernetesObject()
            made.CopyFrom(manifest.message)
            made.pod.metadata.name = f"{name}-{number}"
            made.pod.metadata.uid = ""
            key = (kind, namespace, made.pod.metadata.name)
            manifests[key] = Manifest(manifest.where, made, copy_of=name)
    if not copied:
        raise OverrideError(f"{release.option}: copies= needs a Pod, and the manifests have none")
    return replace(release, manifests=manifests, copied=copied)


def _named(made: KubernetesObject, kind: str, where: str) -> _Key:
    meta = metadata(made)
    if not meta.name:
        raise TraceError(where, f"{kind}: metadata.name is missing")
    meta.namespace = namespace_in_force(kind, meta.namespace)
    return kind, meta.namespace, meta.name


class _Applying:
    def __init__(self, releases: Sequence[Release], start_ns: int) -> None:
        self._waiting = sorted(releases, key=lambda release: release.at_ns)
        self._start_ns = start_ns
        self._live: dict[_Key, KubernetesObject] = {}
        self._pods: set[_Key] = set()
        self._keys = {key for release in releases for key in release.manifests}
        self._namespaces: set[str] = set()

    def of(self, records: Iterable[trace_pb2.Record]) -> Iterator[trace_pb2.Record]:
        for record in records:
            while self._waiting and self._next_ns() < record.time_ns:
                yield from self._apply(self._waiting[0])
                del self._waiting[0]
            self._see(record)
            yield self._with_devices(record) if record.HasField("header") else record
        for release in self._waiting:
            yield from self._apply(release)

    @property
    def is_done(self) -> bool:
        """Return whether every release has been applied."""
        return not self._waiting

    def _with_devices(self, header: trace_pb2.Record) -> trace_pb2.Record:
        """Return the header: with a release of devices, claims for them are simulated."""
        if header.header.has_devices or not any(kind in DEVICE_KINDS for kind, _, _ in self._keys):
            return header
        changed = trace_pb2.Record()
        changed.CopyFrom(header)
        changed.header.has_devices = True
        return changed

    def _next_ns(self) -> int:
        return self._start_ns + self._waiting[0].at_ns

    def _see(self, record: trace_pb2.Record) -> None:
        """Store the current version of an object that a release changes."""
        match record.WhichOneof("record"):
            case "pod_create":
                meta = record.pod_create.pod.metadata
                self._pods.add(("Pod", meta.namespace or "default", meta.name))
            case "create" | "update" as case:
                message: KubernetesObject = getattr(record, case)
                field = message.WhichOneof("object")
                if field is None:
                    return
                key = _key(KINDS[field], metadata(message).namespace, metadata(message).name)
                if field == "namespace":
                    self._namespaces.add(key[2])
                if field == "pod":
                    self._pods.add(key)
                elif key in self._keys:
                    self._live[key] = message
            case "delete":
                ref = record.delete.object
                key = _key(ref.kind, ref.namespace, ref.name)
                self._live.pop(key, None)
                self._pods.discard(key)

    def _apply(self, release: Release) -> Iterator[trace_pb2.Record]:
        at_ns = self._start_ns + release.at_ns
        yield from self._missing_namespaces(at_ns, release)
        for key, manifest in release.manifests.items():
            kind, namespace, name = key
            whose = f"{kind} {namespace}/{name}".replace(" /", " ")
            if key in self._pods and manifest.copy_of:
                problem = f"{whose} exists already: give the pod that is copied another name"
                raise TraceError(manifest.where, problem)
            if key in self._pods:
                yield self._issue(at_ns, release, f"{whose} exists and is not changed")
                continue
            live = self._live.get(key)
            made = KubernetesObject()
            if live is not None:
                made.CopyFrom(applied(live, manifest.message))
                fill_in(made)
                refuse_change(manifest.where, live, made)
                yield self._issue(at_ns, release, f"{whose} is changed")
                yield trace_pb2.Record(time_ns=at_ns, update=made)
            else:
                made.CopyFrom(manifest.message)
                fill_in(made)
                refuse_invalid(manifest.where, made)
                meta = metadata(made)
                meta.uid = meta.uid or object_uid(kind, namespace, name)
                if not manifest.copy_of:
                    yield self._issue(at_ns, release, f"{whose} is created")
                yield trace_pb2.Record(time_ns=at_ns, create=made)
            self._live[key] = made
        for (namespace, name), copies in release.copied.items():
            if copies:
                made_text = "1 copy" if copies == 1 else f"{copies:,} copies"
                text = f"{made_text} of Pod {namespace}/{name} created"
                yield self._issue(at_ns, release, text)
        for document in release.left_out:
            yield self._issue(
                at_ns, release, f"{document} is not carried in a trace and was left out"
            )

    def _missing_namespaces(self, at_ns: int, release: Release) -> Iterator[trace_pb2.Record]:
        """Yield an issue for each missing namespace, if the trace contains namespaces at all."""
        if not self._namespaces:
            return
        self._namespaces |= {name for kind, _, name in release.manifests if kind == "Namespace"}
        named = {namespace for _, namespace, _ in release.manifests if namespace}
        for name in sorted(named - self._namespaces - {"default"}):
            problem = f"namespace {name} is not in the trace: kubectl apply fails unless it exists"
            yield self._issue(at_ns, release, problem)

    def _issue(self, at_ns: int, release: Release, message: str) -> trace_pb2.Record:
        issue = trace_pb2.ImportIssue(
            kind=_ISSUE, where=release.option, message=f"{release.option}: {message}"
        )
        return trace_pb2.Record(time_ns=at_ns, issue=issue)


def _key(kind: str, namespace: str, name: str) -> _Key:
    return kind, namespace_in_force(kind, namespace), name
