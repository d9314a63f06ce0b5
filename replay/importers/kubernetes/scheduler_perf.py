"""Kubernetes' performance tests: a scheduler_perf performance-config file as a workload.

A file has test cases; each has operations (create nodes, create pods, churn, ...) and workloads
with values for their parameters. One workload is run in simulated time that begins at 0. Object
templates are files beside the config file. The file describes a test and has no recorded decisions.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from replay import bounds
from replay.errors import TraceError
from replay.hashing import object_uid
from replay.importers.kubernetes.perf_objects import (
    NameGenerator,
    ObjectTemplates,
    operation_nodes,
    operation_pods,
    set_node_defaults,
)
from replay.importers.kubernetes.perf_workload import Operation, Workload, selected_workload
from replay.importers.records import (
    Importer,
    ImportOptions,
    Issues,
    PodTemplates,
    RecordNumbering,
    new_header,
    single_path,
)
from replay.kube.changes import part
from replay.kube.kinds import KINDS, metadata, namespace_in_force
from replay.trace.files import open_plain
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.kube.v1beta1.namespace_pb2 import Namespace
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.trace.v1beta1.trace_pb2 import Delete, Marker, Record
from services.kube.time import MILLISECOND_NS, SECOND_NS

NAME = "scheduler-perf"

_CASE = re.compile(rb"^[ -] *(name|workloadTemplate):", re.MULTILINE)
_TEMPLATE = re.compile(rb"^ +workloadTemplate:", re.MULTILINE)
# Upstream's client sends 5,000 requests a second (util.go, mustSetupCluster: QPS).
_EVERY_NS = SECOND_NS // 5000
_NOT_SIMULATED = frozenset(
    {
        "allocResourceClaims",
        "createPodGroups",
        "createResourceClaims",
        "createResourceDriver",
        "startCollectingProfile",
        "stopCollectingProfile",
        "updateAny",
    }
)
_CHURN_INTERVAL_MS = 500
Tick = tuple[int, Iterator[Record]]
"""The time of one step of a background operation, and its records."""
CreateObject = Callable[[str, list[ObjectReference]], Iterator[Record]]
DeleteObject = Callable[[ObjectReference], Iterator[Record]]


def sniff(_path: Path, start: bytes) -> bool:
    """Return whether a file whose content begins with `start` is a performance-config file."""
    return _CASE.search(start) is not None and _TEMPLATE.search(start) is not None


def load(paths: Sequence[Path], options: ImportOptions) -> Iterator[Record]:
    """Yield the trace of `options.workload`. Raises TraceError, with file and operation."""
    path = single_path(paths, "one performance-config file")
    numbering, issues = RecordNumbering(), Issues()
    workload = selected_workload(path, _text(path), options.workload, options.params)
    yield numbering.header(new_header(NAME, paths, options))
    _note_settings(workload, issues)
    yield from WorkloadRun(
        workload, ObjectTemplates(path.parent), numbering, issues, options
    ).records()
    yield from numbering.issues(issues)


def _text(path: Path) -> str:
    with open_plain(path) as file:
        try:
            return bounds.content(file, str(path)).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise TraceError(str(path), f"is not UTF-8: {error.reason}") from error


def _note_settings(workload: Workload, issues: Issues) -> None:
    """Count the scheduler's settings as issues: a trace carries no configuration."""
    gates = {
        str(name): value
        for source in (workload.case, workload.raw)
        for name, value in part(source, "featureGates").items()
    }
    for name, value in gates.items():
        message = f"the feature gate {name}={str(value).lower()} is not applied"
        issues.add("not-simulated", workload.where, message)
    if config := workload.case.get("schedulerConfigPath"):
        message = "the scheduler's configuration is not in the trace; use --scheduler-config with "
        issues.add("scheduler-config", workload.where, f"{message}{config}")


class WorkloadRun:
    """Runs the operations of one workload; time begins at 0."""

    def __init__(
        self,
        workload: Workload,
        files: ObjectTemplates,
        numbering: RecordNumbering,
        issues: Issues,
        options: ImportOptions,
    ) -> None:
        self._workload = workload
        self._files = files
        self._numbering = numbering
        self._templates = PodTemplates(numbering)
        self._issues = issues
        self._options = options
        self._every_ns = _EVERY_NS if options.every_ns is None else options.every_ns
        self._now_ns = 0
        self._names = NameGenerator()
        self._due: list[tuple[int, int, Iterator[Record], Iterator[Tick]]] = []
        self._numbers = itertools.count()
        self._namespaces: set[str] = set()
        self._deletable: Mapping[str, list[Pod]] = defaultdict(list)
        self._deleted_from: set[str] = set()

    def records(self) -> Iterator[Record]:
        """Yield the records of all operations."""
        self._deleted_from = {
            operation.text("namespace")
            for operation in self._workload.operations()
            if operation.code == "deletePods"
        }
        for operation in self._workload.operations():
            yield from self._run(operation)
        for name in self._workload.unused():
            message = f"no operation reads the workload's parameter {name}"
            self._issues.add("unused-parameter", self._workload.where, message)

    def _run(self, operation: Operation) -> Iterator[Record]:
        method = self._methods().get(operation.code)
        if method is not None:
            yield from method(operation)
        elif operation.code in _NOT_SIMULATED:
            message = f"the operation {operation.code} is not simulated and was left out"
            self._issues.add("not-simulated", operation.where, message)
        else:
            raise TraceError(operation.where, f"the opcode {operation.code!r} is unknown")

    def _methods(self) -> Mapping[str, Callable[[Operation], Iterator[Record]]]:
        return {
            "createNodes": self._create_nodes,
            "createNamespaces": self._create_namespaces,
            "createPods": self._create_pods,
            "createAny": self._create_any,
            "deletePods": self._delete_pods,
            "churn": self._churn,
            "barrier": lambda _: self._wait(self._options.wait_ns),
            "sleep": lambda operation: self._wait(operation.duration_ns()),
            "startCollectingMetrics": self._mark,
            "stopCollectingMetrics": self._mark,
        }

    def _create_nodes(self, operation: Operation) -> Iterator[Record]:
        for operation_node in operation_nodes(operation, self._files, self._names):
            yield self._numbering.record(self._now_ns, create=operation_node)

    def _create_namespaces(self, operation: Operation) -> Iterator[Record]:
        template = operation.text("namespaceTemplatePath")
        for index in range(operation.count()):
            made = (
                self._files.make_a("namespace", template, {}).namespace if template else Namespace()
            )
            made.metadata.name = f"{operation.text('prefix')}-{index}"
            yield from self._namespace(made)

    def _create_pods(self, operation: Operation) -> Iterator[Record]:
        namespace = operation.text("namespace") or f"namespace-{operation.index}"
        yield from self._namespace_of(namespace)
        if operation.flag("steadyState"):
            message = "steadyState: pods are not replaced as they are scheduled: each comes once"
            self._issues.add("not-simulated", operation.where, message)
        default = str(self._workload.case.get("defaultPodTemplatePath") or "")
        template = operation.text("podTemplatePath") or default
        if operation.flag("collectMetrics"):
            yield from self._mark(operation)
        keep = self._deletable[namespace] if namespace in self._deleted_from else None
        for before, pod in operation_pods(operation, template, namespace, self._files, self._names):
            for needed in before:
                yield self._numbering.record(self._now_ns, create=needed)
            if keep is not None:
                keep.append(pod)
            yield from self._templates.pod_create(self._now_ns, pod)
            yield from self._wait(self._every_ns)
        if not operation.flag("skipWaitToCompletion"):
            yield from self._wait(self._options.wait_ns)

    def _create_any(self, operation: Operation) -> Iterator[Record]:
        namespace = operation.text("namespace")
        if namespace:
            yield from self._namespace_of(namespace)
        template, count = operation.text("templatePath"), operation.count(default=1)
        for index in range(count):
            values = operation.template_values(index, count)
            yield from self._create(operation, template, namespace, values)

    def _create(
        self,
        operation: Operation,
        template: str,
        namespace: str,
        values: Mapping[str, object],
        made: list[ObjectReference] | None = None,
    ) -> Iterator[Record]:
        """Yield the creation of a template's object; add its reference to `made`."""
        created = self._files.make(template, values)
        if created is None:
            kind = self._files.kind(template, values)
            message = f"{operation.code}: {kind} is not carried in a trace and was left out"
            self._issues.add("not-simulated", operation.where, message)
            return
        field = created.WhichOneof("object") or ""
        kind, meta = KINDS[field], metadata(created)
        meta.namespace = namespace_in_force(kind, namespace or meta.namespace)
        self._names.name(meta, kind)
        meta.uid = object_uid(kind, meta.namespace, meta.name)
        if field == "node":
            set_node_defaults(created.node)
        if made is not None:
            made.append(ObjectReference(kind=kind, namespace=meta.namespace, name=meta.name))
        if field == "pod":
            yield from self._templates.pod_create(self._now_ns, created.pod)
        else:
            yield self._numbering.record(self._now_ns, create=created)

    def _churn(self, operation: Operation) -> Iterator[Record]:
        namespace = operation.text("namespace") or f"namespace-{operation.index}"
        yield from self._namespace_of(namespace)

        def create(template: str, made: list[ObjectReference]) -> Iterator[Record]:
            return self._create(operation, template, namespace, {}, made)

        self._begin(churn(operation, self._now_ns, create, self._delete))

    def _delete_pods(self, operation: Operation) -> Iterator[Record]:
        pods = self._deletable[operation.text("namespace")]
        labels = operation.mapping("labelSelector").items()
        deleted = [pod for pod in pods if labels <= dict(pod.metadata.labels).items()]
        pods[:] = [pod for pod in pods if not labels <= dict(pod.metadata.labels).items()]
        refs = [
            ObjectReference(kind="Pod", namespace=pod.metadata.namespace, name=pod.metadata.name)
            for pod in deleted
        ]
        per_second = operation.number("deletePodsPerSecond")
        interval_ns = SECOND_NS // per_second if per_second else 0
        self._begin(deletions(refs, self._now_ns, interval_ns, self._delete))
        waits = not operation.flag("skipWaitToCompletion")
        yield from self._wait(len(refs) * interval_ns if waits else 0)

    def _delete(self, ref: ObjectReference) -> Iterator[Record]:
        yield self._numbering.record(self._now_ns, delete=Delete(object=ref, cause="user"))

    def _mark(self, operation: Operation) -> Iterator[Record]:
        name = f"{operation.code} {operation.text('name')}".strip()
        marker = Marker(name=f"op {operation.index}: {name}")
        yield self._numbering.record(self._now_ns, marker=marker)

    def _namespace_of(self, name: str) -> Iterator[Record]:
        namespace = Namespace()
        namespace.metadata.name = name
        yield from self._namespace(namespace)

    def _namespace(self, namespace: Namespace) -> Iterator[Record]:
        name = namespace.metadata.name
        if name in self._namespaces:
            return
        self._namespaces.add(name)
        namespace.metadata.uid = object_uid("Namespace", "", name)
        yield self._numbering.record(self._now_ns, create=KubernetesObject(namespace=namespace))

    def _wait(self, duration_ns: int) -> Iterator[Record]:
        """Advance the time; yield the records of background operations until then."""
        end_ns = self._now_ns + duration_ns
        while self._due and self._due[0][0] <= end_ns:
            self._now_ns, _, records, ticks = heapq.heappop(self._due)
            self._begin(ticks)
            yield from records
        self._now_ns = end_ns

    def _begin(self, ticks: Iterator[Tick]) -> None:
        """Schedule the next tick of a background operation."""
        if (tick := next(ticks, None)) is not None:
            heapq.heappush(self._due, (tick[0], next(self._numbers), tick[1], ticks))


def churn(
    operation: Operation, start_ns: int, create: CreateObject, delete: DeleteObject
) -> Iterator[Tick]:
    """Yield the ticks of a churn; without end in mode "create" without a number.

    Raises TraceError for an unknown mode.
    """
    mode, number = operation.text("mode"), operation.number("number")
    templates = operation.texts("templatePaths")
    if mode not in {"create", "recreate"} or not templates or (mode == "recreate" and not number):
        expected = "mode create or recreate, templatePaths, and a number for recreate"
        raise TraceError(operation.where, f"churn: expected {expected}")
    interval_ns = (operation.number("intervalMilliseconds") or _CHURN_INTERVAL_MS) * MILLISECOND_NS
    slots: dict[tuple[str, int], list[ObjectReference]] = {}

    def turn(slot: int) -> Iterator[Record]:
        for template in templates:
            made = slots.setdefault((template, slot), [])
            if made and mode == "recreate":
                yield from delete(made.pop())
            else:
                made.clear()
                yield from create(template, made)

    for count in itertools.count():
        if mode == "create" and number and count >= number:
            return
        made_count = (count + 1) * len(templates)
        bounds.check_count(made_count, operation.where, "churn: the number of objects")
        slot = count % number if mode == "recreate" else 0
        yield start_ns + (count + 1) * interval_ns, turn(slot)


def deletions(
    refs: Sequence[ObjectReference], start_ns: int, interval_ns: int, delete: DeleteObject
) -> Iterator[Tick]:
    """Yield a tick for each deletion, the first after one interval."""
    for count, ref in enumerate(refs, 1):
        yield start_ns + count * interval_ns, delete(ref)


IMPORTER = Importer(
    name=NAME,
    description='a scheduler_perf performance-config file: a YAML list with "workloadTemplate"',
    sniff=sniff,
    load=load,
    no_outcomes="a performance test has objects to create",
)
