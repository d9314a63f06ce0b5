"""A batch system's records, in two CSV files, as a trace.

machines: machine, cores, memory_mib. tasks: task, submitted, started, ended (s since 1970; empty:
not yet), machine, cores, memory_mib, priority.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from replay.importers.records import Importer, ImportOptions, Issues, new_header
from replay.importers.rows import (
    RecordDrafts,
    RecordRank,
    TableRow,
    first_fields,
    make_node,
    make_pod,
    pod_life,
    pod_ref,
    table_rows,
)
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.trace.v1beta1.trace_pb2 import Observed, PodCreate, Record, Scheduled

NAME = "batch-csv"
_HEADS = (["machine", "cores", "memory_mib"], ["task", "submitted", "started"])


def sniff(path: Path, start: bytes) -> bool:
    """Return whether a file whose content begins with `start` is one of the tables."""
    del path
    return first_fields(start)[:3] in _HEADS


def load(paths: Sequence[Path], options: ImportOptions) -> Iterator[Record]:
    """Yield the trace of the tables. Raises TraceError, with file and line, for a broken row."""
    issues, classes, header = Issues(), dict[str, int](), new_header(NAME, paths, options)
    header.times_recorded = True
    with RecordDrafts() as drafts:
        for row in (row for path in paths for row in table_rows(path)):
            if not row.has("task"):
                amounts = {**_amounts(row), "pods": "110"}
                node = make_node(row.required("machine"), amounts, amounts)
                drafts.add(Record(create=KubernetesObject(node=node)), RecordRank.NODE)
                continue
            create, scheduled = _task(row, issues)
            spec = create.pod_create.pod.spec
            classes[spec.priority_class_name] = spec.priority
            header.start_time_ns = min(header.start_time_ns or create.time_ns, create.time_ns)
            drafts.add(create)
            if scheduled is not None:
                drafts.add(scheduled, RecordRank.OBSERVED)
        yield from drafts.trace(header, classes, issues)


def _task(row: TableRow, issues: Issues) -> tuple[Record, Record | None]:
    """Return the pod's creation, and the observation of its binding if there was one."""
    row.required("submitted")
    pod = make_pod(row.required("task"), "task", _amounts(row))
    pod.spec.priority = row.count("priority", 1_000_000) or 0
    pod.spec.priority_class_name = f"batch-{pod.spec.priority}"
    started_ns, ended_ns = row.seconds_ns("started"), row.seconds_ns("ended")
    life = pod_life(row.where, started_ns or 0, ended_ns if started_ns else None, issues)
    submitted_ns = row.seconds_ns("submitted") or 0
    create = Record(time_ns=submitted_ns, pod_create=PodCreate(pod=pod, life=life))
    if started_ns is None:
        return create, None
    binding = Scheduled(node_name=row.required("machine"))
    return create, Record(
        time_ns=started_ns, observed=Observed(object=pod_ref(pod), scheduled=binding)
    )


def _amounts(row: TableRow) -> dict[str, str]:
    cores, memory_mib = row.count("cores", 10_000) or 0, row.count("memory_mib", 1 << 30) or 0
    return {"cpu": str(cores), "memory": f"{memory_mib}Mi"}


IMPORTER = Importer(
    name=NAME,
    description='a batch system\'s CSV: a first line "machine,cores,..." or "task,submitted,..."',
    sniff=sniff,
    load=load,
)
