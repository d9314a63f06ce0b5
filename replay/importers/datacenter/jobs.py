"""Jobs for the pods of data sets that do not say what would have started a pod again."""

from __future__ import annotations

from replay.hashing import object_uid
from replay.world.kubelet.annotations import EXIT_CODE, SERVICE_TIME
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.trace.v1beta1.trace_pb2 import Delete, PodCreate, Record
from services.kube.time import SECOND_NS


def as_job(record: Record, workers: int = 1) -> Record:
    """Convert the creation or deletion of a pod to that of a Job; return other records unchanged.

    workers: the number of the Job's pods, which run at the same time.

    A data set of pods does not say what would have started a pod again. A bare pod does not come
    back after its preemption, and its load is lost; a Job replaces the pod.

    The Job's pods have the service time of the pod, rounded down to seconds. Disruptions do not
    count as failures; a failure of the pod is one of the Job.
    """
    match record.WhichOneof("record"):
        case "pod_create":
            return Record(time_ns=record.time_ns, create=_job(record.pod_create, workers))
        case "delete" if record.delete.object.kind == "Pod":
            delete = Delete()
            delete.CopyFrom(record.delete)
            delete.object.kind = "Job"
            delete.object.uid = object_uid("Job", delete.object.namespace, delete.object.name)
            return Record(time_ns=record.time_ns, delete=delete)
    return record


def _job(create: PodCreate, workers: int) -> KubernetesObject:
    pod, made = create.pod, KubernetesObject()
    job = made.job
    job.metadata.name, job.metadata.namespace = pod.metadata.name, pod.metadata.namespace
    job.metadata.uid = object_uid("Job", pod.metadata.namespace, pod.metadata.name)
    job.metadata.labels.update(pod.metadata.labels)
    job.spec.parallelism = job.spec.completions = workers
    job.spec.backoff_limit = 0
    rule = job.spec.pod_failure_policy.rules.add(action="Ignore")
    rule.on_pod_conditions.add(type="DisruptionTarget", status="True")
    template = job.spec.template
    template.metadata.labels.update(pod.metadata.labels)
    template.metadata.annotations.update(pod.metadata.annotations)
    template.spec.CopyFrom(pod.spec)
    template.spec.restart_policy = "Never"
    life = create.life
    if life.HasField("service_duration_ns") and not life.censored:
        notes = template.metadata.annotations
        notes[SERVICE_TIME] = f"{life.service_duration_ns // SECOND_NS}s"
        notes[EXIT_CODE] = str(int(life.fails))
    return made
