"""What every importer writes: a header, records by number, templates of pods, and issues.

What a user may choose about an import.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any

from replay.errors import TraceError
from replay.trace.reader import FORMAT_VERSION
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.trace.v1beta1 import trace_pb2


class Numbering:
    """Makes records in order: each gets the next number, and no time before the last one's.

    `sequence` is the last record's number, 0 before the first.
    """

    def __init__(self) -> None:
        self.sequence = 0
        self._at_ns = -(2**63)

    def record(self, at_ns: int, **content: Any) -> trace_pb2.Record:
        """Return the next record; `content` is one field of its oneof by name."""
        self.sequence += 1
        self._at_ns = max(self._at_ns, at_ns)
        return trace_pb2.Record(at_ns=self._at_ns, sequence=self.sequence, **content)

    def header(self, header: trace_pb2.Header) -> trace_pb2.Record:
        """Return the header's record, at the trace's start."""
        header.format_version = FORMAT_VERSION
        return self.record(header.start_ns, header=header)

    def issues(self, issues: Iterable[trace_pb2.ImportIssue]) -> Iterator[trace_pb2.Record]:
        """Return a record for each issue, at the time of the last record."""
        for each in issues:
            yield self.record(self._at_ns, issue=each)


class Templates:
    """Takes out what pods share: their labels, annotations and spec (without nodeName).

    A shape becomes a template when it comes for the second time, so that pods of which each is
    different cost nothing; what is remembered of a shape is its digest.
    """

    def __init__(self, numbering: Numbering) -> None:
        self._numbering = numbering
        self._ids: dict[bytes, int] = {}
        self._count = 0

    def pod_create(
        self, at_ns: int, pod: Pod, life: trace_pb2.PodLife | None = None
    ) -> Iterator[trace_pb2.Record]:
        """Yield the pod's record, preceded by its template's where that is new."""
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
    """Counts issues; those of one kind and one message stand together, at the first's place."""

    def __init__(self) -> None:
        self._issues: dict[tuple[str, str], trace_pb2.ImportIssue] = {}

    def add(self, kind: str, where: str, message: str, count: int = 1) -> None:
        """Note an issue, `count` times."""
        known = self._issues.get((kind, message))
        if known is None:
            known = trace_pb2.ImportIssue(kind=kind, where=where, message=message)
            self._issues[kind, message] = known
        known.count += count

    def __iter__(self) -> Iterator[trace_pb2.ImportIssue]:
        return iter(self._issues.values())


def header_of(importer: str, paths: Sequence[Path], options: ImportOptions) -> trace_pb2.Header:
    """Return a header that names the files and their digests, in the order of their names."""
    files = sorted(paths, key=lambda path: path.name)
    return trace_pb2.Header(
        source=options.source or ", ".join(path.name for path in files),
        source_sha256=[_sha256(path) for path in files],
        licence=options.licence,
        importer=f"{importer} 1",
        options=options.as_text(),
    )


def only(paths: Sequence[Path], what: str) -> Path:
    """Return the one path. Raises TraceError for several, of which `what` is to be given."""
    if len(paths) > 1:
        raise TraceError(", ".join(path.name for path in paths), f"{what} at a time")
    return paths[0]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


OPENB_PRIORITIES: Mapping[str, int] = {"Guaranteed": 1000, "LS": 1000, "Burstable": 100, "BE": 0}
SECOND_NS = 1_000_000_000
_NOT_SHOWN = frozenset({"source", "licence"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A moment of a recording: `since_start_ns` after its beginning, or `at_ns` since 1970.

    `text` is how it was written.
    """

    text: str
    since_start_ns: int | None = None
    at_ns: int = 0

    def __str__(self) -> str:
        """Return it as it was written."""
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options of all importers; each reads those that concern it.

    `source` and `licence` go into the header. `every_ns` spaces the workloads of manifests and the
    pods of a performance test; 0: all come at once; None: as the format has it. `scheduler_names`
    are those whose pods the replay schedules; pods of any other scheduler occupy the nodes that
    they were recorded on.

    OpenB: `openb_priorities` is the priority of each qos (the data set has none), `openb_timed`
    uses its times instead of letting all pods come at once, `openb_gpu` makes GPUs extended
    resources instead of leaving them out, `openb_jobs` makes each pod a Job's, so that a pod that
    is preempted comes again.

    scheduler_perf: `workload` is TESTCASE/WORKLOAD, or TESTCASE alone where `params` give what the
    test case asks for; `params` stand above the workload's own; `wait_ns` is the simulated time
    that waiting for pods takes.

    Traces without nodes: `made_nodes` are made, each with `node_amounts` (quantities by resource),
    or the nodes of another trace, `nodes_from`, are taken.
    Traces in shares of a machine: 1.0 stands for `unit_cpu_milli` and `unit_memory_bytes`;
    `allocatable_percent` of a node's capacity can be requested. `machine` is the machine type that
    a trace of several is read for.

    Manifests: `now_ns` is the time at which they begin, ns since 1970; None: the latest time of
    something that has happened to one of the objects.

    Recordings that keep states: up to `follow_until` what was recorded stands, decisions too, and
    the trace begins there.
    """

    source: str = ""
    licence: str = ""
    every_ns: int | None = None
    scheduler_names: tuple[str, ...] = ("default-scheduler",)
    openb_priorities: Mapping[str, int] = field(default_factory=lambda: dict(OPENB_PRIORITIES))
    openb_timed: bool = False
    openb_gpu: bool = True
    openb_jobs: bool = False
    workload: str = ""
    params: Mapping[str, object] = field(default_factory=dict)
    wait_ns: int = 10 * SECOND_NS
    made_nodes: int = 0
    nodes_from: Path | None = None
    node_amounts: Mapping[str, str] = field(default_factory=dict)
    unit_cpu_milli: int = 64_000
    unit_memory_bytes: int = 256 << 30
    allocatable_percent: int = 100
    machine: str = ""
    now_ns: int | None = None
    follow_until: Moment | None = None

    def as_text(self) -> dict[str, str]:
        """Return the options that differ from the defaults, for a header."""
        default = ImportOptions()
        return {
            each.name: str(value)
            for each in fields(self)
            if each.name not in _NOT_SHOWN
            and (value := getattr(self, each.name)) != getattr(default, each.name)
        }
