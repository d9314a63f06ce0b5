"""Alibaba's disaggregated DLRM trace of 2025: instances of recommendation services, in CSV.

Columns: instance_sn, role (HN with a GPU, CN without), app_name, requests and limits of cpu
(cores), gpu, rdma (percent of a node's), memory and disk (GiB), max_instance_per_node (-1: any
number), and creation, scheduled and deletion time (s since the trace's start). An instance without
a creation time existed before the trace, one without a deletion time exists at its end. The trace
has no nodes, no usage and only one priority.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from replay.errors import TraceError
from replay.importers.records import Importer, ImportOptions, Issues, new_header, whole_machine
from replay.importers.rows import (
    RecordDrafts,
    TableRow,
    ceil_product,
    first_fields,
    make_pod,
    pod_life,
    table_rows,
)
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.trace.v1beta1.trace_pb2 import PodCreate, PodLife, Record

NAME = "dlrm"

GPU, RDMA = "nvidia.com/gpu", "alibabacloud.com/rdma"
_HEAD = ["instance_sn", "role", "app_name"]
_GIB = 1 << 30
_MIB = 1 << 20


def sniff(_path: Path, start: bytes) -> bool:
    """Return whether a file whose content begins with `start` is the list of instances."""
    return b"instance_sn" in start[:20] and first_fields(start)[:3] == _HEAD


def node_resources(options: ImportOptions) -> Mapping[str, str]:
    """Return a whole machine with eight GPUs, 100 percent of RDMA and 8 TiB of disk."""
    return {**whole_machine(options), GPU: "8", RDMA: "100", "ephemeral-storage": "8Ti"}


def load(paths: Sequence[Path], options: ImportOptions) -> Iterator[Record]:
    """Yield the trace of the list. Raises TraceError, with file and line, for a broken row."""
    issues = Issues()
    header = new_header(NAME, paths, options)
    header.times_recorded = True
    with RecordDrafts() as drafts:
        for path in paths:
            for row in table_rows(path):
                drafts.add(_instance(row, issues))
        yield from drafts.trace(header, {}, issues)


def _instance(row: TableRow, issues: Issues) -> Record:
    created_ns = _time_ns(row, "creation_time")
    if created_ns is None:
        message = "was there before the trace began: created at its start, pending"
        issues.add("there-before", row.where, message)
    if (most := row.integer("max_instance_per_node") or -1) > 0:
        message = f"at most {most} instances of an app on a node: there is no such limit for pods"
        issues.add("not-simulated", row.where, message)
    create = PodCreate(pod=_pod(row), life=_life(row, issues))
    return Record(time_ns=created_ns or 0, pod_create=create)


def _pod(row: TableRow) -> Pod:
    name = row.required("instance_sn").replace("_", "-")
    pod = make_pod(name, "main", _amounts(row, "request"))
    pod.metadata.labels.update({"app": row.text("app_name"), "role": row.text("role")})
    resources = pod.spec.containers[0].resources
    resources.limits.update(_amounts(row, "limit"))
    for resource, column in ((GPU, "gpu_request"), (RDMA, "rdma_request")):
        if count := row.integer(column):
            resources.requests[resource] = resources.limits[resource] = str(count)
    return pod


def _amounts(row: TableRow, of: str) -> dict[str, str]:
    """Return the quantities of the "request" or "limit" columns: millicores, and MiB."""
    result = {}
    if (cores := row.number(f"cpu_{of}")) is not None:
        result["cpu"] = f"{ceil_product(cores, 1000)}m"
    for resource, column in (("memory", "memory"), ("ephemeral-storage", "disk")):
        if (gib := row.number(f"{column}_{of}")) is not None:
            result[resource] = f"{ceil_product(gib, _GIB // _MIB)}Mi"
    return result


def _life(row: TableRow, issues: Issues) -> PodLife:
    """Return the service time: from scheduled, or the trace's start, to deleted."""
    return pod_life(
        row.where,
        _time_ns(row, "scheduled_time") or 0,
        _time_ns(row, "deletion_time"),
        issues,
        no_end="was there at the end",
        negative="deleted before it was scheduled",
    )


def _time_ns(row: TableRow, column: str) -> int | None:
    at_ns = row.seconds_ns(column)
    if at_ns is not None and at_ns < 0:
        problem = f"{column}: {row.text(column)} is before the trace's start"
        raise TraceError(row.where, problem)
    return at_ns


IMPORTER = Importer(
    name=NAME,
    description='Alibaba\'s DLRM CSV: a first line "instance_sn,role,app_name,..."',
    sniff=sniff,
    load=load,
    no_outcomes="the DLRM trace has instances without their nodes",
    node_resources=node_resources,
)
