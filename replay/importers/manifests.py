"""Manifests in YAML and plain lists (`kubectl get -o json` or `-o yaml`) as a trace.

The trace begins at the latest time of something that has happened to one of the objects, or at
`now_ns`; manifests that were never in a cluster begin at 0. What stands comes first: classes,
nodes, budgets, pods that have a node, and all that an API server has created. Then what is asked
of the cluster (pods and their controllers without a creationTimestamp) comes in the order of the
documents, all at once or spaced by `every_ns`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from replay.identity import name_suffix, object_uid
from replay.importers.incomplete import inferred
from replay.importers.issues import Issues
from replay.importers.json_stream import json_values
from replay.importers.kinds import (
    CLUSTER_SCOPED,
    WORKLOADS,
    is_carried,
    listed,
    metadata,
    to_object,
)
from replay.importers.misplaced import misplaced_fields
from replay.importers.options import ImportOptions
from replay.importers.provenance import header_of
from replay.importers.recording.change import latest_ns, rfc3339
from replay.importers.recording.survey import TERMINAL
from replay.importers.records import Numbering, Templates
from replay.importers.yaml_documents import YamlDocumentError, YamlDocuments
from replay.trace.compression import open_plain
from replay.trace.errors import TraceError
from replay.world.workloads.job_state import TRACKING
from reprieve.kube.v1alpha1.meta_pb2 import ObjectMeta
from reprieve.kube.v1alpha1.object_pb2 import Object
from reprieve.kube.v1alpha1.pod_pb2 import Pod
from reprieve.trace.v1alpha1.trace_pb2 import Header, Record
from services.rpc.errors import FieldError

NAME = "manifests"
LOOKED_FOR = 'YAML documents or a JSON object with "apiVersion" and "kind"'
_Raw = Mapping[str, Any]
_YAML_HEAD = re.compile(r"^(apiVersion|kind):\s", re.MULTILINE)
_JSON_HEAD = re.compile(rb'^\s*\{\s*"(apiVersion|kind|items|metadata)"\s*:')


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
        self._standing: list[Object] = []
        self._asked: list[Object] = []
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

    def _records(self, header: Header, at_ns: int, standing: list[Object]) -> Iterator[Record]:
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

    def _add_object(self, where: str, raw: _Raw) -> None:
        kind = raw.get("kind")
        if not is_carried(raw):
            message = f"{raw.get('apiVersion')} {kind} is not carried in a trace and was left out"
            self._issues.add("unknown-kind", where, message)
            return
        for path in misplaced_fields(raw):
            message = f"{kind}: Kubernetes ignores {path}: it belongs into the pod's spec"
            self._issues.add("misplaced-field", where, message)
        try:
            carried = to_object(raw)
        except FieldError as error:
            raise TraceError(where, f"{kind}: {error}") from error
        self._name(metadata(carried), str(kind), where)
        happened_ns = latest_ns(raw)
        if happened_ns > self._latest_ns:
            self._latest_ns, self._latest_where = happened_ns, where
        is_pod = kind == "Pod"
        if is_pod and carried.pod.status.phase in TERMINAL and not _is_uncounted(carried.pod):
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


def _is_uncounted(pod: Pod) -> bool:
    return TRACKING in pod.metadata.finalizers


def _stands(workload: Object) -> bool:
    """Tell whether a workload is in the cluster already."""
    is_placed = workload.HasField("pod") and bool(workload.pod.spec.node_name)
    return is_placed or metadata(workload).HasField("creation_timestamp")


def _standing_order(each: Object) -> tuple[int, int]:
    """Return the place of an object: classes first, pending pods last, in order of creation."""
    if each.HasField("priority_class"):
        return 0, 0
    if each.HasField("pod") and not each.pod.spec.node_name:
        return 2, each.pod.metadata.creation_timestamp.ToNanoseconds()
    return 1, 0


def _created(
    each: Object, at_ns: int, numbering: Numbering, templates: Templates
) -> Iterator[Record]:
    if each.WhichOneof("object") == "pod":
        yield from templates.pod_create(at_ns, each.pod)
    else:
        yield numbering.record(at_ns, create=each)


def _documents(path: Path, documents: YamlDocuments) -> Iterator[tuple[str, Any]]:
    with open_plain(path) as file:
        if file.peek(64).lstrip()[:1] == b"{":
            yield from json_values(file, str(path))
            return
        try:
            for line, document in documents.read(io.TextIOWrapper(file, encoding="utf-8-sig")):
                yield f"{path}, line {line}", document
        except YamlDocumentError as error:
            raise TraceError(f"{path}, line {error.line}", f"is no YAML: {error}") from error
        except UnicodeDecodeError as error:
            raise TraceError(str(path), f"is no UTF-8: {error}") from error
