"""The base of every importer: its format, a header, numbered records, and issues."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any

import click

from replay.errors import TraceError
from replay.importers.option_types import AMOUNTS, BYTES, PARAMETER, QOS_PRIORITY, TIME
from replay.kube.changes import RecordedChange
from replay.options import DURATION, option
from replay.trace.reader import FORMAT_VERSION
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.trace.v1beta1 import trace_pb2

OPENB_PRIORITIES: Mapping[str, int] = {"Guaranteed": 1000, "LS": 1000, "Burstable": 100, "BE": 0}
_NOT_IN_HEADER = frozenset({"source", "licence"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A moment of a recording: `since_start_ns` after its start, or `at_ns` since 1970.

    `text` is the moment as the user wrote it.
    """

    text: str
    since_start_ns: int | None = None
    at_ns: int = 0

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options of all importers; each importer reads those of its format.

    `source` and `licence` go into the header. `every_ns` is the interval between the workloads of
    manifests and between the pods of a performance test; 0 creates all at once, None is the
    format's default. `scheduler_names` are the schedulers whose pods the replay schedules; pods of
    other schedulers occupy the nodes on which they were recorded.

    OpenB: `openb_priorities` is the priority of each qos (the data set has none), `openb_timed`
    uses the times of the data set (otherwise all pods are created at once), `openb_gpu` makes GPUs
    extended resources (otherwise they are left out), `openb_jobs` creates a Job for each pod, so
    that a preempted pod is created again.

    Alibaba's spot GPUs: `gpu_claims` makes GPUs devices that workers claim, otherwise an extended
    resource.

    scheduler_perf: `workload` is TESTCASE/WORKLOAD, or TESTCASE alone where `params` has all
    parameters of the test case; `params` override the workload's own; `wait_ns` is the simulated
    time of each wait for pods.

    Traces without nodes: `made_nodes` nodes are created, each with `node_amounts` (quantities by
    resource), or the nodes of another trace, `nodes_from`, are used.
    Traces in shares of a machine: 1.0 is `unit_cpu_milli` and `unit_memory_bytes`;
    `allocatable_percent` is a node's allocatable in percent of its capacity. `machine` selects a
    machine type in a trace that has several.

    Manifests: `now_ns` is the start of the trace, ns since 1970; None is the latest time in one of
    the objects.

    Native traces: `reads_cut_off` reads what is left of a file that was cut off.

    Recordings of states: the trace begins at `follow_until`, with the recorded state of that
    moment, recorded decisions included.
    """

    source: str = ""
    licence: str = ""
    scheduler_names: tuple[str, ...] = ("default-scheduler",)
    follow_until: Moment | None = None
    every_ns: int | None = option(
        "--every",
        type=DURATION,
        help="The interval between the workloads of manifests, and between the pods of "
        "scheduler_perf, such as 1s; 0s creates all at once. [default: manifests 0s, "
        "scheduler_perf 200us]",
    )
    openb_timed: bool = option(
        "--openb-timed",
        is_flag=True,
        help="OpenB: use the times of the data set. [default: all pods are created at once]",
    )
    openb_gpu: bool = option(
        "--openb-gpu/--no-openb-gpu",
        default=True,
        show_default=True,
        help="OpenB: make GPUs extended resources.",
    )
    openb_priorities: Mapping[str, int] = option(
        "--qos-priority",
        type=QOS_PRIORITY,
        multiple=True,
        callback=lambda _ctx, _param, given: {**OPENB_PRIORITIES, **dict(given)},
        help="OpenB: the priority of a qos, such as LS=1000. Repeatable. [default: Guaranteed and "
        "LS 1000, Burstable 100, BE 0]",
    )
    now_ns: int | None = option(
        "--now",
        type=TIME,
        help="Manifests: the start of the trace, such as 2026-01-31T12:00:00Z. [default: the "
        "latest time in one of the objects; 0 where they were never in a cluster]",
    )
    gpu_claims: bool = option(
        "--gpu-claims/--no-gpu-claims",
        default=True,
        show_default=True,
        help="spot-gpu: workers claim GPUs as devices; otherwise they request an extended "
        "resource, and preemption frees GPUs.",
    )
    openb_jobs: bool = option(
        "--openb-jobs",
        is_flag=True,
        help="OpenB: create a Job for each pod, which replaces the pod after a preemption.",
    )
    workload: str = option(
        "--workload",
        default="",
        metavar="TESTCASE/WORKLOAD",
        help="scheduler_perf: the workload of the performance-config file, such as "
        "PreemptionBasic/1000Nodes. TESTCASE alone needs all its parameters as --param.",
    )
    params: Mapping[str, object] = option(
        "--param",
        type=PARAMETER,
        multiple=True,
        callback=lambda _ctx, _param, given: dict(given),
        help="scheduler_perf: a parameter of the workload, such as initNodes=5000. Repeatable.",
    )
    wait_ns: int = option(
        "--wait",
        type=DURATION,
        default="10s",
        show_default=True,
        help="scheduler_perf: the simulated time of each wait until pods are scheduled.",
    )
    made_nodes: int = option(
        "--made-nodes",
        default=0,
        type=click.IntRange(0, 1_000_000),
        help="The number of nodes to create in a trace without nodes, such as 500.",
    )
    nodes_from: Path | None = option(  # noqa: RUF009 - a field
        "--nodes-from",
        type=click.Path(exists=True, path_type=Path),
        help="Use the nodes of another trace, such as the output of `kubectl get nodes -o yaml`.",
    )
    node_amounts: Mapping[str, str] = option(
        "--node-size",
        type=AMOUNTS,
        default="",
        help="The resources of each node of --made-nodes, such as cpu=96,memory=768Gi,pods=110. "
        "Other resources have the default of the format.",
    )
    unit_cpu_milli: int = option(
        "--unit-cpu",
        type=click.IntRange(1, 100_000),
        default=64,
        callback=lambda _ctx, _param, cores: 1000 * cores,
        show_default=True,
        help="Google's traces, in shares of a machine: the cores of 1.0; also the cores of each "
        "node of --made-nodes.",
    )
    unit_memory_bytes: int = option(
        "--unit-memory",
        type=BYTES,
        default="256Gi",
        show_default=True,
        help="Google's traces and alibaba-2017: the memory of 1.0, such as 512Gi; also the memory "
        "of each node of --made-nodes.",
    )
    allocatable_percent: int = option(
        "--allocatable",
        type=click.IntRange(1, 10_000),
        default=100,
        show_default=True,
        metavar="PERCENT",
        help="Google's traces and alibaba-2017: a node's allocatable in percent of its capacity. "
        "Borg admits more than 100.",
    )
    machine: str = option(
        "--machine",
        default="",
        metavar="ID",
        help="Azure packing: the machineId whose sizes are used, such as 16.",
    )
    reads_cut_off: bool = option(
        "--read-cut-off",
        is_flag=True,
        help="Native traces: read what is left of a file that was cut off, up to its last whole "
        "record; the summary notes it. [default: such a file is refused]",
    )

    def as_text(self) -> dict[str, str]:
        """Return the options that differ from the defaults, as a header keeps them."""
        default = ImportOptions()
        return {
            option.name: str(value)
            for option in fields(self)
            if option.name not in _NOT_IN_HEADER
            and (value := getattr(self, option.name)) != getattr(default, option.name)
        }


def whole_machine(options: ImportOptions) -> Mapping[str, str]:
    """Return the resources of a node that is one whole machine: 1.0 of CPU and memory, 110 pods."""
    return {
        "cpu": f"{options.unit_cpu_milli}m",
        "memory": str(options.unit_memory_bytes),
        "pods": "110",
    }


Load = Callable[[Sequence[Path], ImportOptions], Iterator[trace_pb2.Record]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The recorded states of a cluster's objects.

    `paths` are the files that are read. Each call of `changes` yields all changes in order; it
    raises TraceError if a file cannot be read. All changes until `complete_until_ns` are in it,
    ns since 1970; None if the files do not say so.
    """

    paths: Sequence[Path]
    changes: Callable[[Issues], Iterator[RecordedChange]]
    complete_until_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """A format: how its files are recognised, and how they become a trace.

    `sniff` receives a path and the first 64 KiB of its uncompressed content; the first importer in
    registry.IMPORTERS whose `sniff` returns True reads the file. `description` says what `sniff`
    looks for. `load` yields the trace, the header first, and raises TraceError, with file and line,
    for what cannot be read. `node_resources` is what each of `made_nodes` nodes has by default.

    What `--compare-recorded` can compare with: `open_recording` is for files that hold the state of
    each object after each change, decisions included. Without it `load` yields observations of what
    happened to pods; or `no_outcomes` says what the files have instead, for the refusal.
    """

    name: str
    description: str
    sniff: Callable[[Path, bytes], bool]
    load: Load
    no_outcomes: str = ""
    node_resources: Callable[[ImportOptions], Mapping[str, str]] = whole_machine
    open_recording: Callable[[Sequence[Path]], Recording] | None = None


class RecordNumbering:
    """Numbers records in order; no record is earlier than the one before it.

    `sequence` is the number of the last record, 0 before the first.
    """

    def __init__(self) -> None:
        self.sequence = 0
        self._at_ns = -(2**63)

    def record(self, at_ns: int, **content: Any) -> trace_pb2.Record:
        """Return the next record; `content` is one field of its oneof, by name."""
        self.sequence += 1
        self._at_ns = max(self._at_ns, at_ns)
        return trace_pb2.Record(time_ns=self._at_ns, sequence=self.sequence, **content)

    def header(self, header: trace_pb2.Header) -> trace_pb2.Record:
        """Return the record of the header, at the start of the trace."""
        header.format_version = FORMAT_VERSION
        return self.record(header.start_time_ns, header=header)

    def issues(self, issues: Iterable[trace_pb2.ImportIssue]) -> Iterator[trace_pb2.Record]:
        """Yield a record for each issue, at the time of the last record."""
        for issue in issues:
            yield self.record(self._at_ns, issue=issue)


class PodTemplates:
    """Moves what pods share into templates: labels, annotations and spec (without nodeName).

    A shape becomes a template when a second pod has it. Only the digest of a shape is kept in
    memory.
    """

    def __init__(self, numbering: RecordNumbering) -> None:
        self._numbering = numbering
        self._ids: dict[bytes, int] = {}
        self._count = 0

    def pod_create(
        self, at_ns: int, pod: Pod, life: trace_pb2.PodLife | None = None
    ) -> Iterator[trace_pb2.Record]:
        """Yield the record of a pod; the record of its template comes first where it is new."""
        shape = _shape(pod)
        digest = blake2b(shape.SerializeToString(deterministic=True), digest_size=16).digest()
        template_id = self._ids.get(digest)
        if template_id is None:
            self._ids[digest] = 0
            yield self._numbering.record(at_ns, pod_create=trace_pb2.PodCreate(pod=pod, life=life))
            return
        if template_id == 0:
            self._count += 1
            template_id = self._ids[digest] = self._count
            template = trace_pb2.Template(id=template_id, pod=shape)
            yield self._numbering.record(at_ns, template=template)
        create = trace_pb2.PodCreate(template_id=template_id, pod=_difference(pod), life=life)
        yield self._numbering.record(at_ns, pod_create=create)


def _shape(pod: Pod) -> Pod:
    shape = Pod(spec=pod.spec)
    shape.spec.ClearField("node_name")
    shape.metadata.labels.MergeFrom(pod.metadata.labels)
    shape.metadata.annotations.MergeFrom(pod.metadata.annotations)
    return shape


def _difference(pod: Pod) -> Pod:
    rest = Pod(metadata=pod.metadata)
    rest.metadata.ClearField("labels")
    rest.metadata.ClearField("annotations")
    if pod.spec.node_name:
        rest.spec.node_name = pod.spec.node_name
    if pod.HasField("status"):
        rest.status.CopyFrom(pod.status)
    return rest


class Issues:
    """Counts issues of the same kind and message; the place is that of the first one."""

    def __init__(self) -> None:
        self._issues: dict[tuple[str, str], trace_pb2.ImportIssue] = {}

    def add(self, kind: str, where: str, message: str, count: int = 1) -> None:
        """Count an issue `count` times."""
        issue = self._issues.get((kind, message))
        if issue is None:
            issue = trace_pb2.ImportIssue(kind=kind, where=where, message=message)
            self._issues[kind, message] = issue
        issue.count += count

    def taken(self) -> list[trace_pb2.ImportIssue]:
        """Return the issues, and forget them; later ones are counted anew."""
        issues = list(self)
        self._issues.clear()
        return issues

    def __iter__(self) -> Iterator[trace_pb2.ImportIssue]:
        return iter(self._issues.values())


def new_header(importer: str, paths: Sequence[Path], options: ImportOptions) -> trace_pb2.Header:
    """Return a header with the names and SHA-256 digests of the files, sorted by name.

    The importer sets the rest before it yields the header: `start_ns` where times are not from 0
    (a replay begins there, at 1970 otherwise, and earlier records are moved to it),
    `times_recorded` where the times are the source's own (False: the importer generated them),
    `window_end_ns` where the recording ends after its last record, and the meaning of 1.0 if
    sizes are shares.
    """
    files = sorted(paths, key=lambda path: path.name)
    return trace_pb2.Header(
        source=options.source or ", ".join(path.name for path in files),
        source_sha256=[_sha256(path) for path in files],
        licence=options.licence,
        importer=f"{importer} 1",
        options=options.as_text(),
    )


def single_path(paths: Sequence[Path], expected: str) -> Path:
    """Return the only path. Raises TraceError for several paths; `expected` is in its message."""
    if len(paths) > 1:
        raise TraceError(", ".join(path.name for path in paths), f"give {expected} at a time")
    return paths[0]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
