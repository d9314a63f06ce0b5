"""OpenB (Alibaba cluster-trace-gpu-v2023): a list of nodes and one of pods, in CSV.

nodes: sn, cpu_milli, memory_mib, gpu, model. pods: name, cpu_milli, memory_mib, num_gpu, gpu_milli
(of each GPU), gpu_spec ("A|B": models that will do), qos, pod_phase, creation_time, deletion_time,
scheduled_time (s since the first pod). The data set is a sparse sample: with its own times it
never fills its own nodes, so that by default all pods come at once, in the order of the file.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from replay.errors import TraceError
from replay.importers.records import (
    SECOND_NS,
    ImportOptions,
    Issues,
    Numbering,
    Templates,
    header_of,
)
from replay.importers.rows import Drafts, make_pod, pod_ref, priority_class
from replay.kube.identity import object_uid
from replay.trace.files import open_plain
from replay.world.kubelet.annotations import EXIT_CODE, SERVICE_TIME
from reprieve.kube.v1beta1.node_pb2 import Node
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.trace.v1beta1.trace_pb2 import Delete, PodCreate, PodLife, Record

NAME = "openb"
LOOKED_FOR = 'OpenB CSV: a first line "sn,cpu_milli,..." or "name,cpu_milli,..."'
GPU_COUNT, GPU_MILLI = "alibabacloud.com/gpu-count", "alibabacloud.com/gpu-milli"
GPU_MODEL = "alibabacloud.com/gpu-card-model"
LABEL_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
SNAPSHOT_S = 12_902_960
"""When the data set was taken: a pod that is deleted then was still there."""
_NODE_HEAD, _POD_HEAD = b"sn,cpu_milli,memory_mib", b"name,cpu_milli,memory_mib"
_NUMBER_MAX = 4_000_000_000
_Row = Mapping[str, str]


def sniff(path: Path, start: bytes) -> bool:
    """Tell whether a file whose content begins with `start` is one of OpenB's lists."""
    del path
    return start.startswith((_NODE_HEAD, _POD_HEAD))


def load(paths: Sequence[Path], options: ImportOptions) -> Iterator[Record]:
    """Yield the trace of the lists. Raises TraceError, with file and line, for a broken row."""
    issues, numbering = Issues(), Numbering()
    templates = Templates(numbering)
    header = header_of(NAME, paths, options)
    header.times_recorded = options.openb_timed
    yield numbering.header(header)
    priorities: dict[str, int] = {}
    with Drafts() as drafts:
        for path in paths:
            for where, row in _rows(path):
                if "sn" in row:
                    yield numbering.record(0, create=_node(where, row, options))
                    continue
                made = _pod(where, row, options, issues)
                name = made.pod_create.pod.spec.priority_class_name
                if name:
                    priorities[name] = made.pod_create.pod.spec.priority
                drafts.add(as_job(made) if options.openb_jobs else made)
                if options.openb_timed and (deleted := _withdrawn(where, row, made, issues)):
                    drafts.add(as_job(deleted) if options.openb_jobs else deleted, rank=1)
        for name, value in sorted(priorities.items()):
            yield numbering.record(0, create=priority_class(name, value))
        yield from drafts.records(numbering, templates)
    yield from numbering.issues(issues)


def _rows(path: Path) -> Iterator[tuple[str, _Row]]:
    with open_plain(path) as file:
        try:
            reader = csv.DictReader(io.TextIOWrapper(file, encoding="utf-8-sig", newline=""))
            for row in reader:
                yield f"{path}, line {reader.line_num}", row
        except (csv.Error, UnicodeDecodeError) as error:
            raise TraceError(str(path), f"is no CSV: {error}") from error


def _number(where: str, row: _Row, name: str) -> int:
    try:
        number = int(row[name] or 0)
    except (KeyError, TypeError, ValueError):
        number = -1
    if not 0 <= number <= _NUMBER_MAX:
        raise TraceError(where, f"{name}: {row.get(name)!r} where a number is wanted") from None
    return number


def _node(where: str, row: _Row, options: ImportOptions) -> KubernetesObject:
    node, name = Node(), row["sn"]
    node.metadata.name, node.metadata.uid = name, object_uid("Node", "", name)
    node.metadata.labels.update({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"})
    amounts = {
        "cpu": f"{_number(where, row, 'cpu_milli')}m",
        "memory": f"{_number(where, row, 'memory_mib')}Mi",
        "pods": "1001",
    }
    gpus = _number(where, row, "gpu")
    node.metadata.labels[LABEL_INSTANCE_TYPE] = _instance_type(where, row)
    if row.get("model"):
        node.metadata.labels[GPU_MODEL] = row["model"]
    if options.openb_gpu and gpus:
        amounts |= {GPU_COUNT: str(gpus), GPU_MILLI: str(1000 * gpus)}
    node.status.capacity.update(amounts)
    node.status.allocatable.update(amounts)
    return KubernetesObject(node=node)


def _instance_type(where: str, row: _Row) -> str:
    """Return what tells machines of one shape from others, such as "96cpu-768gi-8xv100m32"."""
    shape = f"{_number(where, row, 'cpu_milli') // 1000}cpu"
    shape += f"-{_number(where, row, 'memory_mib') // 1024}gi"
    gpus = _number(where, row, "gpu")
    return f"{shape}-{gpus}x{row.get('model', '').lower() or 'gpu'}" if gpus else shape


def _pod(where: str, row: _Row, options: ImportOptions, issues: Issues) -> Record:
    arrival_ns, life = 0, None
    if options.openb_timed:
        if not row.get("creation_time"):
            raise TraceError(where, "creation_time: missing; this list has no times")
        arrival_ns = _number(where, row, "creation_time") * SECOND_NS
        life = _life(where, row, issues) if row.get("scheduled_time") else None
    if not row.get("name"):
        raise TraceError(where, "name is missing")
    pod = make_pod(row["name"], "main", _requests(where, row, options))
    if options.openb_gpu and row.get("gpu_spec"):
        _want_models(pod, row["gpu_spec"].split("|"))
    qos = row.get("qos") or ""
    if qos in options.openb_priorities:
        pod.spec.priority_class_name = qos.lower()
        pod.spec.priority = options.openb_priorities[qos]
    elif qos:
        issues.add("unknown-qos", where, f"qos {qos!r} has no priority: 0")
    if not _number(where, row, "memory_mib"):
        issues.add("no-request", where, "a pod without a memory request")
    return Record(at_ns=arrival_ns, pod_create=PodCreate(pod=pod, life=life))


def _requests(where: str, row: _Row, options: ImportOptions) -> dict[str, str]:
    requests = {
        "cpu": f"{_number(where, row, 'cpu_milli')}m",
        "memory": f"{_number(where, row, 'memory_mib')}Mi",
    }
    gpus = _number(where, row, "num_gpu")
    if options.openb_gpu and gpus:
        requests[GPU_COUNT] = str(gpus)
        requests[GPU_MILLI] = str(gpus * _number(where, row, "gpu_milli"))
    return requests


def _want_models(pod: Pod, models: list[str]) -> None:
    affinity = pod.spec.affinity.node_affinity
    terms = affinity.required_during_scheduling_ignored_during_execution.node_selector_terms
    terms.add().match_expressions.add(key=GPU_MODEL, operator="In", values=models)


def _withdrawn(where: str, row: _Row, made: Record, issues: Issues) -> Record | None:
    """Return the deletion of a pod that was never scheduled: by its user, for it never ran.

    One that still waited when the data set was taken is left to wait.
    """
    if row.get("scheduled_time"):
        return None
    issues.add(
        "never-ran",
        where,
        "never scheduled: it is deleted when its user deleted it, whatever it does by then",
    )
    deleted_s = _number(where, row, "deletion_time")
    if not row.get("deletion_time") or deleted_s >= SNAPSHOT_S:
        return None
    delete = Delete(object=pod_ref(made.pod_create.pod), cause="user")
    return Record(at_ns=max(made.at_ns, deleted_s * SECOND_NS), delete=delete)


def _life(where: str, row: _Row, issues: Issues) -> PodLife:
    """Return how long the pod ran: from scheduled to deleted."""
    if not row.get("deletion_time"):
        return PodLife(censored=True)
    ended_s = _number(where, row, "deletion_time")
    ran_s = ended_s - _number(where, row, "scheduled_time")
    if ran_s < 0:
        issues.add("negative-time", where, "deleted before it was scheduled: taken as 0 s")
    life = PodLife(service_time_ns=max(0, ran_s) * SECOND_NS)
    life.censored = ended_s >= SNAPSHOT_S
    life.fails = row.get("pod_phase") == "Failed"
    return life


def as_job(record: Record) -> Record:
    """Return the creation of a Job in place of a pod's, or the deletion of it; else the record.

    A data set of pods tells what ran, not who would have started it again. As a bare pod it is gone
    once it is preempted, and the load goes with it; as a Job of one pod it comes back.

    Its pods run as long as the pod would. Disruptions do not count as failures, and a failure of
    the pod's own is the Job's. Service times are rounded down to seconds.
    """
    match record.WhichOneof("record"):
        case "pod_create":
            return Record(at_ns=record.at_ns, create=_job(record.pod_create))
        case "delete" if record.delete.object.kind == "Pod":
            deleted = Delete()
            deleted.CopyFrom(record.delete)
            deleted.object.kind = "Job"
            deleted.object.uid = object_uid("Job", deleted.object.namespace, deleted.object.name)
            return Record(at_ns=record.at_ns, delete=deleted)
    return record


def _job(create: PodCreate) -> KubernetesObject:
    pod, made = create.pod, KubernetesObject()
    job = made.job
    job.metadata.name, job.metadata.namespace = pod.metadata.name, pod.metadata.namespace
    job.metadata.uid = object_uid("Job", pod.metadata.namespace, pod.metadata.name)
    job.metadata.labels.update(pod.metadata.labels)
    job.spec.parallelism = job.spec.completions = 1
    job.spec.backoff_limit = 0
    rule = job.spec.pod_failure_policy.rules.add(action="Ignore")
    rule.on_pod_conditions.add(type="DisruptionTarget", status="True")
    template = job.spec.template
    template.metadata.labels.update(pod.metadata.labels)
    template.metadata.annotations.update(pod.metadata.annotations)
    template.spec.CopyFrom(pod.spec)
    template.spec.restart_policy = "Never"
    life = create.life
    if life.HasField("service_time_ns") and not life.censored:
        notes = template.metadata.annotations
        notes[SERVICE_TIME] = f"{life.service_time_ns // SECOND_NS}s"
        notes[EXIT_CODE] = str(int(life.fails))
    return made
