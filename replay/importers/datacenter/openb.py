"""OpenB (Alibaba cluster-trace-gpu-v2023): a list of nodes and a list of pods, in CSV.

nodes: sn, cpu_milli, memory_mib, gpu, model. pods: name, cpu_milli, memory_mib, num_gpu, gpu_milli
(of each GPU), gpu_spec ("A|B": accepted models), qos, pod_phase, creation_time, deletion_time,
scheduled_time (s since the first pod). The data set is a sparse sample: with its own times it never
fills its own nodes. By default all pods are therefore created at once, in the order of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from replay.errors import TraceError
from replay.importers.datacenter.jobs import as_job
from replay.importers.records import (
    Importer,
    ImportOptions,
    Issues,
    PodTemplates,
    RecordNumbering,
    new_header,
)
from replay.importers.rows import (
    RecordDrafts,
    RecordRank,
    TableRow,
    make_node,
    make_pod,
    pod_life,
    pod_ref,
    priority_class,
    table_rows,
)
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.trace.v1beta1.trace_pb2 import Delete, PodCreate, PodLife, Record
from services.kube.time import SECOND_NS

NAME = "openb"

GPU_COUNT, GPU_MILLI = "alibabacloud.com/gpu-count", "alibabacloud.com/gpu-milli"
GPU_MODEL = "alibabacloud.com/gpu-card-model"
LABEL_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
SNAPSHOT_S = 12_902_960
"""The end of the data set: pods that are deleted then were still running or pending."""
_NODE_HEAD, _POD_HEAD = b"sn,cpu_milli,memory_mib", b"name,cpu_milli,memory_mib"
_NUMBER_MAX = 4_000_000_000


def sniff(_path: Path, start: bytes) -> bool:
    """Return whether a file whose content begins with `start` is one of OpenB's lists."""
    return start.startswith((_NODE_HEAD, _POD_HEAD))


def load(paths: Sequence[Path], options: ImportOptions) -> Iterator[Record]:
    """Yield the trace of the lists. Raises TraceError, with file and line, for a broken row."""
    issues, numbering = Issues(), RecordNumbering()
    templates = PodTemplates(numbering)
    header = new_header(NAME, paths, options)
    header.times_recorded = options.openb_timed
    yield numbering.header(header)
    priorities: dict[str, int] = {}
    with RecordDrafts() as drafts:
        for path in paths:
            for row in table_rows(path):
                if row.has("sn"):
                    yield numbering.record(0, create=_node(row, options))
                    continue
                made = _pod(row, options, issues)
                name = made.pod_create.pod.spec.priority_class_name
                if name:
                    priorities[name] = made.pod_create.pod.spec.priority
                deletion = _user_deletion(row, made, issues) if options.openb_timed else None
                for record, rank in ((made, RecordRank.POD), (deletion, RecordRank.DELETE)):
                    if record is not None:
                        drafts.add(as_job(record) if options.openb_jobs else record, rank)
        for name, value in sorted(priorities.items()):
            yield numbering.record(0, create=priority_class(name, value))
        yield from drafts.records(numbering, templates)
    yield from numbering.issues(issues)


def _count(row: TableRow, name: str) -> int:
    """Return a count, 0 for an empty field. Raises TraceError if there is no such column."""
    if not row.has(name):
        raise TraceError(row.where, f"{name} is missing")
    return row.count(name, _NUMBER_MAX) or 0


def _node(row: TableRow, options: ImportOptions) -> KubernetesObject:
    amounts = {
        "cpu": f"{_count(row, 'cpu_milli')}m",
        "memory": f"{_count(row, 'memory_mib')}Mi",
        "pods": "1001",
    }
    gpus = _count(row, "gpu")
    if options.openb_gpu and gpus:
        amounts |= {GPU_COUNT: str(gpus), GPU_MILLI: str(1000 * gpus)}
    node = make_node(row.text("sn"), amounts, amounts)
    node.status.ClearField("conditions")  # as in the data set's own manifests
    node.metadata.labels[LABEL_INSTANCE_TYPE] = _instance_type(row)
    if row.text("model"):
        node.metadata.labels[GPU_MODEL] = row.text("model")
    return KubernetesObject(node=node)


def _instance_type(row: TableRow) -> str:
    """Return the name of a machine's shape, such as "96cpu-768gi-8xv100m32"."""
    shape = f"{_count(row, 'cpu_milli') // 1000}cpu"
    shape += f"-{_count(row, 'memory_mib') // 1024}gi"
    gpus = _count(row, "gpu")
    return f"{shape}-{gpus}x{row.text('model').lower() or 'gpu'}" if gpus else shape


def _pod(row: TableRow, options: ImportOptions, issues: Issues) -> Record:
    arrival_ns, life = 0, None
    if options.openb_timed:
        if not row.text("creation_time"):
            raise TraceError(row.where, "creation_time is missing; leave --openb-timed out")
        arrival_ns = _count(row, "creation_time") * SECOND_NS
        life = _life(row, issues) if row.text("scheduled_time") else None
    pod = make_pod(row.required("name"), "main", _requests(row, options))
    if options.openb_gpu and row.text("gpu_spec"):
        _require_models(pod, row.text("gpu_spec").split("|"))
    qos = row.text("qos")
    if qos in options.openb_priorities:
        pod.spec.priority_class_name = qos.lower()
        pod.spec.priority = options.openb_priorities[qos]
    elif qos:
        issues.add("unknown-qos", row.where, f"qos {qos!r} has no priority: 0")
    if not _count(row, "memory_mib"):
        issues.add("no-request", row.where, "a pod without a memory request")
    return Record(time_ns=arrival_ns, pod_create=PodCreate(pod=pod, life=life))


def _requests(row: TableRow, options: ImportOptions) -> dict[str, str]:
    requests = {"cpu": f"{_count(row, 'cpu_milli')}m", "memory": f"{_count(row, 'memory_mib')}Mi"}
    gpus = _count(row, "num_gpu")
    if options.openb_gpu and gpus:
        requests[GPU_COUNT] = str(gpus)
        requests[GPU_MILLI] = str(gpus * _count(row, "gpu_milli"))
    return requests


def _require_models(pod: Pod, models: list[str]) -> None:
    affinity = pod.spec.affinity.node_affinity
    terms = affinity.required_during_scheduling_ignored_during_execution.node_selector_terms
    terms.add().match_expressions.add(key=GPU_MODEL, operator="In", values=models)


def _user_deletion(row: TableRow, made: Record, issues: Issues) -> Record | None:
    """Return the deletion, by its user, of a pod that was never scheduled.

    None for a pod that was scheduled, and for one that was still pending at the end.
    """
    if row.text("scheduled_time"):
        return None
    issues.add(
        "never-ran",
        row.where,
        "never scheduled: it is deleted when its user deleted it, whatever it does by then",
    )
    deleted_s = _count(row, "deletion_time")
    if not row.text("deletion_time") or deleted_s >= SNAPSHOT_S:
        return None
    delete = Delete(object=pod_ref(made.pod_create.pod), cause="user")
    return Record(time_ns=max(made.time_ns, deleted_s * SECOND_NS), delete=delete)


def _life(row: TableRow, issues: Issues) -> PodLife:
    """Return the service time, from scheduled to deleted; one at SNAPSHOT_S did not end."""
    if not row.text("deletion_time"):
        return PodLife(censored=True)
    ended_s = _count(row, "deletion_time")
    scheduled_ns = _count(row, "scheduled_time") * SECOND_NS
    negative = "deleted before it was scheduled"
    life = pod_life(row.where, scheduled_ns, ended_s * SECOND_NS, issues, negative=negative)
    life.censored = ended_s >= SNAPSHOT_S
    life.fails = row.text("pod_phase") == "Failed"
    return life


IMPORTER = Importer(
    name=NAME,
    description='OpenB CSV: a first line "sn,cpu_milli,..." or "name,cpu_milli,..."',
    sniff=sniff,
    load=load,
    no_outcomes="OpenB's lists have pods and nodes",
)
