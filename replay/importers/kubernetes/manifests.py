"""Manifests in YAML and plain lists (`kubectl get -o json` or `-o yaml`) as a trace.

The trace begins at the latest time of something that has happened to one of the objects, or at
`now_ns`; manifests that were never in a cluster begin at 0. What stands comes first: classes,
nodes, budgets, pods that have a node, and all that an API server has created. Then what is asked
of the cluster (pods and their controllers without a creationTimestamp) comes in the order of the
documents, all at once or spaced by `every_ns`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from replay.errors import TraceError
from replay.importers.kubernetes.incomplete import inferred
from replay.importers.recording.survey import TERMINAL
from replay.importers.records import ImportOptions, Issues, Numbering, Templates, header_of
from replay.kube.changes import Raw, latest_ns, part, rfc3339
from replay.kube.documents import YamlDocuments, json_values, yaml_values
from replay.kube.identity import name_suffix, object_uid
from replay.kube.kinds import CLUSTER_SCOPED, WORKLOADS, is_carried, listed, metadata, read_object
from replay.trace.files import open_plain
from replay.world.controllers.job_state import TRACKING
from reprieve.kube.v1beta1.meta_pb2 import ObjectMeta
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.trace.v1beta1.trace_pb2 import Header, Record

NAME = "manifests"
LOOKED_FOR = 'YAML documents or a JSON object with "apiVersion" and "kind"'
_YAML_HEAD = re.compile(r"^(apiVersion|kind):\s", re.MULTILINE)
_JSON_HEAD = re.compile(rb'^\s*\{\s*"(apiVersion|kind|items|metadata)"\s*:')

# PodSpec's own fields that neither a container nor a workload's spec has.
_POD_FIELDS_TEXT = (
    "priorityClassName priority preemptionPolicy schedulerName nodeName nodeSelector affinity "
    "tolerations topologySpreadConstraints schedulingGates terminationGracePeriodSeconds overhead "
    "hostNetwork runtimeClassName"
)
_POD_FIELDS = frozenset(_POD_FIELDS_TEXT.split())
_TEMPLATE_PATHS = {
    "ReplicationController": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}


def sniff(path: Path, start: bytes) -> bool:
    """Tell whether a file whose content begins with `start` holds manifests."""
    if _JSON_HEAD.match(start):
        return True
    if path.name.removesuffix(".gz").removesuffix(".zst").endswith((".csv", ".md", ".txt")):
        return False
    return _YAML_HEAD.search(start.decode("utf-8-sig", "replace")) is not None


def load(paths: Sequence[Path], options: ImportOptions) -> Iterator[Record]:
    """Yield the trace that the files describe, in the order of `paths`.

    Raises TraceError, with file and line, where a file or an object cannot be read.
    """
    manifests = _Manifests(options)
    for path in paths:
        for where, raw in _documents(path, manifests.yaml):
            manifests.add(where, raw)
    return manifests.records(paths)


class _Manifests:
    """Gathers objects: what stands, and apart from it what is asked of the cluster."""

    def __init__(self, options: ImportOptions) -> None:
        self.yaml = YamlDocuments()
        self._options = options
        self._issues = Issues()
        self._standing: list[KubernetesObject] = []
        self._asked: list[KubernetesObject] = []
        self._latest_ns = 0
        self._latest_where = ""

    def add(self, where: str, raw: object) -> None:
        """Take a document: an object, or a list of objects."""
        if not isinstance(raw, dict):
            raise TraceError(where, "is no Kubernetes object: not a mapping")
        items = listed(raw)
        for index, each in enumerate((raw,) if items is None else items):
            self._add_object(where if items is None else f"{where}, items[{index}]", each)

    def records(self, paths: Sequence[Path]) -> Iterator[Record]:
        """Return the trace. Raises TraceError where it is to begin before its objects were made."""
        at_ns = self._start_ns()
        standing = [*self._standing, *inferred(self._standing, self._issues)]
        standing.sort(key=_standing_order)
        return self._records(header_of(NAME, paths, self._options), at_ns, standing)

    def _records(
        self, header: Header, at_ns: int, standing: list[KubernetesObject]
    ) -> Iterator[Record]:
        numbering = Numbering()
        templates = Templates(numbering)
        header.start_ns = at_ns
        yield numbering.header(header)
        yield from numbering.issues(self._issues)
        for each in standing:
            yield from _created(each, at_ns, numbering, templates)
        for each in self._asked:
            yield from _created(each, at_ns, numbering, templates)
            at_ns += self._options.every_ns or 0

    def _start_ns(self) -> int:
        now_ns = self._options.now_ns
        if now_ns is None:
            return self._latest_ns
        if now_ns < self._latest_ns:
            latest = rfc3339(self._latest_ns)
            problem = f"something happened to it at {latest}, after --now {rfc3339(now_ns)}"
            raise TraceError(self._latest_where, f"{problem}; give {latest} or later")
        return now_ns

    def _add_object(self, where: str, raw: Raw) -> None:
        kind = raw.get("kind")
        if not is_carried(raw):
            message = f"{raw.get('apiVersion')} {kind} is not carried in a trace and was left out"
            self._issues.add("unknown-kind", where, message)
            return
        for path in misplaced_fields(raw):
            message = f"{kind}: Kubernetes ignores {path}: it belongs into the pod's spec"
            self._issues.add("misplaced-field", where, message)
        carried = read_object(where, raw)
        self._name(metadata(carried), str(kind), where)
        happened_ns = latest_ns(raw)
        if happened_ns > self._latest_ns:
            self._latest_ns, self._latest_where = happened_ns, where
        is_ended = kind == "Pod" and carried.pod.status.phase in TERMINAL
        if is_ended and TRACKING not in carried.pod.metadata.finalizers:
            message = "a pod that has ended was left out"
            self._issues.add("ended-pod", where, message)
        elif kind in WORKLOADS and not _stands(carried):
            self._asked.append(carried)
        else:
            self._standing.append(carried)

    def _name(self, meta: ObjectMeta, kind: str, where: str) -> None:
        if kind not in CLUSTER_SCOPED and not meta.namespace:
            meta.namespace = "default"
        if not meta.name and meta.generate_name:
            ordinal = len(self._asked)
            meta.name = meta.generate_name + name_suffix(meta.generate_name, ordinal)
        if not meta.name:
            raise TraceError(where, f"{kind}: metadata.name is missing")
        if not meta.uid:
            meta.uid = object_uid(kind, meta.namespace, meta.name)


def _stands(workload: KubernetesObject) -> bool:
    """Tell whether a workload is in the cluster already."""
    is_placed = workload.HasField("pod") and bool(workload.pod.spec.node_name)
    return is_placed or metadata(workload).HasField("creation_timestamp")


def _standing_order(each: KubernetesObject) -> tuple[int, int]:
    """Return the place of an object: classes first, pending pods last, in order of creation."""
    if each.HasField("priority_class"):
        return 0, 0
    if each.HasField("pod") and not each.pod.spec.node_name:
        return 2, each.pod.metadata.creation_timestamp.ToNanoseconds()
    return 1, 0


def _created(
    each: KubernetesObject, at_ns: int, numbering: Numbering, templates: Templates
) -> Iterator[Record]:
    if each.WhichOneof("object") == "pod":
        yield from templates.pod_create(at_ns, each.pod)
    else:
        yield numbering.record(at_ns, create=each)


def _documents(path: Path, documents: YamlDocuments) -> Iterator[tuple[str, Any]]:
    with open_plain(path) as file:
        if file.peek(64).lstrip()[:1] == b"{":
            yield from json_values(file, str(path))
        else:
            yield from yaml_values(file, str(path), documents)


def misplaced_fields(raw: Raw) -> Iterator[str]:
    """Yield the path of each field of a pod's spec that stands where it has no effect."""
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
        for index, each in enumerate(containers if isinstance(containers, list) else ()):
            if isinstance(each, dict) and not _POD_FIELDS.isdisjoint(each):
                yield from _own(each, f"{prefix}spec.{name}[{index}]")


def _own(mapping: Raw, where: str) -> Iterator[str]:
    for name in mapping:
        if name in _POD_FIELDS:
            yield f"{where}.{name}" if where else name
