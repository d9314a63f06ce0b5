"""Manifests in YAML and lists (`kubectl get -o json` or `-o yaml`) as a trace.

The trace begins at the latest time in one of the objects, or at `now_ns`; manifests that were never
in a cluster begin at 0. Existing objects come first: what admission reads (PriorityClasses and
quotas), nodes, budgets, bound pods, and all that an API server has created. New workloads (pods and
controllers without a creationTimestamp) follow in the order of the documents, all at once or
`every_ns` apart. What no API server has created gets its defaults. A manifest of an object that
exists is applied to it, as `kubectl apply` does, and so is a copy of a workload with another spec;
of two other documents of one object the later one is taken.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from google.protobuf.message import Message

from replay.errors import TraceError
from replay.hashing import name_suffix, object_uid
from replay.importers.kubernetes.applied import applied, is_edited_copy
from replay.importers.kubernetes.defaults import fill_in
from replay.importers.kubernetes.failing_pods import report_failing
from replay.importers.kubernetes.left_out import NOT_SIMULATED, LeftOut, security_note
from replay.importers.kubernetes.missing_objects import inferred_objects
from replay.importers.kubernetes.validity import refuse_change, refuse_invalid
from replay.importers.read_once import read_once
from replay.importers.records import (
    Importer,
    ImportOptions,
    Issues,
    PodTemplates,
    RecordNumbering,
    new_header,
)
from replay.kube import device_versions
from replay.kube.changes import Raw, latest_ns, part
from replay.kube.documents import YamlDocuments, read_documents
from replay.kube.kinds import (
    WORKLOADS,
    is_carried,
    list_items,
    metadata,
    namespace_in_force,
    read_object,
)
from replay.world.api.admission.chain import KINDS
from replay.world.api.pod_record import JOB_TRACKING
from reprieve.kube.v1beta1 import pod_pb2, workloads_pb2
from reprieve.kube.v1beta1.meta_pb2 import ObjectMeta
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.trace.v1beta1.trace_pb2 import Header, Record
from services.kube.pod import TERMINAL_PHASES
from services.rpc.kube import rfc3339

NAME = "manifests"

_YAML_HEAD = re.compile(r"^([\"']?)(apiVersion|kind)\1:\s", re.MULTILINE)
_JSON_HEAD = re.compile(rb'^\s*\{\s*"(apiVersion|kind|items|metadata)"\s*:')

_Key = tuple[str, str, str]

_WORKLOAD_SPECS = (
    *(workloads_pb2.CronJobSpec, workloads_pb2.DaemonSetSpec, workloads_pb2.DeploymentSpec),
    *(workloads_pb2.JobSpec, workloads_pb2.ReplicaSetSpec, workloads_pb2.ReplicationControllerSpec),
    workloads_pb2.StatefulSetSpec,
)


def _fields(*messages: type[Message]) -> set[str]:
    return {field.json_name for message in messages for field in message.DESCRIPTOR.fields}


_POD_FIELDS = _fields(pod_pb2.PodSpec) - _fields(pod_pb2.Container, *_WORKLOAD_SPECS)
"""The fields of PodSpec that neither a container nor the spec of a workload has."""
_TEMPLATE_PATHS = {
    **dict.fromkeys(WORKLOADS - {"Pod"}, ("spec", "template")),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}


def sniff(path: Path, start: bytes) -> bool:
    """Return whether a file whose content begins with `start` has manifests."""
    if _JSON_HEAD.match(start):
        return True
    if path.name.removesuffix(".gz").removesuffix(".zst").endswith((".csv", ".md", ".txt")):
        return False
    return _YAML_HEAD.search(start.decode("utf-8-sig", "replace")) is not None


def load(paths: Sequence[Path], options: ImportOptions) -> Iterator[Record]:
    """Yield the trace of the files, in the order of `paths`.

    Raises TraceError, with file and line, where a file or an object cannot be read.
    """
    manifests = _Manifests(options)
    yaml_documents = YamlDocuments(lists=True)
    for path in paths:
        for where, raw in read_documents(path, yaml_documents):
            manifests.add(where, raw)
    return manifests.records(paths)


class _Manifests:
    """Collects existing objects and new workloads."""

    def __init__(self, options: ImportOptions) -> None:
        self._options = options
        self._issues = Issues()
        self._left_out = LeftOut()
        self._existing: dict[_Key, KubernetesObject] = {}
        self._new: dict[_Key, KubernetesObject] = {}
        self._latest_ns = 0
        self._latest_where = ""
        self._where: dict[_Key, str] = {}
        self._ended: set[_Key] = set()
        self._made = 0
        self._has_devices = False

    def add(self, where: str, raw: object) -> None:
        """Add a document: an object, or a list of objects."""
        if not isinstance(raw, dict):
            raise TraceError(where, "is not a Kubernetes object: expected a mapping")
        items = list_items(raw)
        for index, content in enumerate((raw,) if items is None else items):
            self._add_object(where if items is None else f"{where}, items[{index}]", content)

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        """Return the trace. Raises TraceError if `now_ns` is before a time in an object."""
        at_ns = self._start_ns()
        existing = list(self._existing.values())
        existing += inferred_objects(existing, self._issues)
        existing.sort(key=_order)
        report_failing(existing, self._issues)
        self._left_out.report([*existing, *self._new.values()], self._issues)
        header = new_header(NAME, paths, self._options)
        header.has_devices = self._has_devices
        return self._records(header, at_ns, existing)

    def _records(
        self, header: Header, at_ns: int, existing: list[KubernetesObject]
    ) -> Iterator[Record]:
        numbering = RecordNumbering()
        templates = PodTemplates(numbering)
        header.start_time_ns = at_ns
        yield numbering.header(header)
        yield from numbering.issues(self._issues)
        for message in existing:
            if not _was_created(message):
                fill_in(message)
            yield from _created(message, at_ns, numbering, templates)
        for key, new_object in self._new.items():
            if key in self._existing:
                yield numbering.record(at_ns, update=new_object)
            else:
                fill_in(new_object)
                yield from _created(new_object, at_ns, numbering, templates)
            at_ns += self._options.every_ns or 0

    def _start_ns(self) -> int:
        now_ns = self._options.now_ns
        if now_ns is None:
            return self._latest_ns
        if now_ns < self._latest_ns:
            latest = rfc3339.text(self._latest_ns, 3)
            problem = f"has the time {latest}, which is after --now {rfc3339.text(now_ns, 3)}"
            raise TraceError(self._latest_where, f"{problem}; give {latest} or later")
        return now_ns

    def _add_object(self, where: str, raw: Raw) -> None:
        kind = raw.get("kind")
        if not is_carried(raw):
            self._left_out.add(where, raw)
            return
        self._has_devices |= kind in device_versions.KINDS
        if note := security_note(raw):
            self._issues.add(NOT_SIMULATED, where, note)
        for path in misplaced_fields(raw):
            message = f"{kind}: Kubernetes ignores {path}: it belongs into the pod's spec"
            self._issues.add("misplaced-field", where, message)
        carried = read_object(where, raw)
        key = self._named(metadata(carried), str(kind), where)
        object_ns = latest_ns(raw)
        if object_ns > self._latest_ns:
            self._latest_ns, self._latest_where = object_ns, where
        if kind == "Pod" and _is_left_out(carried.pod):
            message = "a pod that has ended was left out"
            self._issues.add("ended-pod", where, message)
            self._where.setdefault(key, where)
            self._ended.add(key)
        else:
            self._put(key, carried, where)

    def _put(self, key: _Key, carried: KubernetesObject, where: str) -> None:
        """Take in an object, applied to or in place of another document's of the same name."""
        kind, namespace, name = key
        is_new = kind in WORKLOADS and not _exists(carried)
        existing = self._existing.get(key)
        first = self._where.setdefault(key, where)
        if first != where:
            stays = kind == "Pod" and is_new and (existing is not None or key in self._ended)
            live = existing if existing is not None and _was_created(existing) else None
            is_edited = live is not None and kind != "Pod" and is_edited_copy(live, carried)
            is_applied = live is not None and (is_edited or not _was_created(carried))
            is_new |= is_edited
            if stays:
                outcome = "it exists and is not changed"
            elif is_applied:
                outcome = "this one is applied to it"
            else:
                outcome = "this one replaces it"
            whose = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
            self._issues.add("duplicate-object", where, f"{whose} is in {first}: {outcome}")
            if stays:
                return
            if is_applied and live is not None:
                live = self._new.get(key, live)
                made = applied(live, carried)
                refuse_change(where, live, made)
                carried = made
        if not _was_created(carried):
            refuse_invalid(where, carried)
        self._made += is_new
        if is_new:
            self._new[key] = carried
        else:
            self._existing[key] = carried
            self._new.pop(key, None)

    def _named(self, meta: ObjectMeta, kind: str, where: str) -> _Key:
        """Return an object's kind, namespace and name; what it lacks of them is filled in."""
        meta.namespace = namespace_in_force(kind, meta.namespace)
        if not meta.name and meta.generate_name:
            for ordinal in itertools.count(self._made):
                meta.name = meta.generate_name + name_suffix(meta.generate_name, ordinal)
                if (kind, meta.namespace, meta.name) not in self._where:
                    break
        if not meta.name:
            raise TraceError(where, f"{kind}: metadata.name is missing")
        if not meta.uid:
            meta.uid = object_uid(kind, meta.namespace, meta.name)
        return kind, meta.namespace, meta.name


def _is_left_out(pod: Pod) -> bool:
    """Return whether a pod has ended, its Job has counted it, and its name is not held."""
    meta = pod.metadata
    is_kept = JOB_TRACKING in meta.finalizers or meta.HasField("deletion_timestamp")
    return pod.status.phase in TERMINAL_PHASES and not is_kept


def _exists(workload: KubernetesObject) -> bool:
    is_bound = workload.HasField("pod") and bool(workload.pod.spec.node_name)
    return is_bound or _was_created(workload)


def _was_created(carried: KubernetesObject) -> bool:
    """Return whether an API server has created the object."""
    return metadata(carried).HasField("creation_timestamp")


def _order(message: KubernetesObject) -> tuple[int, int]:
    """Return an object's sort key: what admission reads first, pending pods last, by creation."""
    if message.WhichOneof("object") in KINDS:
        return 0, 0
    if message.HasField("pod") and not message.pod.spec.node_name:
        return 2, message.pod.metadata.creation_timestamp.ToNanoseconds()
    return 1, 0


def _created(
    created: KubernetesObject, at_ns: int, numbering: RecordNumbering, templates: PodTemplates
) -> Iterator[Record]:
    if created.WhichOneof("object") == "pod":
        yield from templates.pod_create(at_ns, created.pod)
    else:
        yield numbering.record(at_ns, create=created)


def misplaced_fields(raw: Raw) -> Iterator[str]:
    """Yield the path of each PodSpec field that is outside the pod's spec, without effect."""
    if raw.get("kind") == "Pod":
        yield from _around(raw, "")
    elif path := _TEMPLATE_PATHS.get(str(raw.get("kind"))):
        at, where = raw, ""
        for name in path:
            at, where = part(at, name), f"{where}.{name}" if where else name
            yield from _own(at, where)
        yield from _around(at, f"{where}.")


def _around(pod: Raw, prefix: str) -> Iterator[str]:
    if not prefix:
        yield from _own(pod, "")
    yield from _own(part(pod, "metadata"), f"{prefix}metadata")
    spec = part(pod, "spec")
    for name in ("containers", "initContainers"):
        containers = spec.get(name)
        for index, container in enumerate(containers if isinstance(containers, list) else ()):
            if isinstance(container, dict) and not _POD_FIELDS.isdisjoint(container):
                yield from _own(container, f"{prefix}spec.{name}[{index}]")


def _own(mapping: Raw, where: str) -> Iterator[str]:
    for name in mapping:
        if name in _POD_FIELDS:
            yield f"{where}.{name}" if where else name


IMPORTER = Importer(
    name=NAME,
    description='YAML documents or a JSON object with "apiVersion" and "kind"',
    sniff=sniff,
    load=read_once(load),
    no_outcomes="manifests have desired objects",
)
