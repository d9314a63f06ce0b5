"""A pod as a Job that makes it again wherever the cluster takes it away before its work is done.

A data set of pods tells what ran, not who would have started it again. As a bare pod it is gone
once it is preempted, and the load goes with it; as a Job of one pod it comes back and begins anew.
"""

from __future__ import annotations

from replay.identity import object_uid
from replay.world.annotations import EXIT_CODE, SERVICE_TIME
from reprieve.kube.v1alpha1.object_pb2 import Object
from reprieve.trace.v1alpha1.trace_pb2 import Delete, PodCreate, Record

_SECOND_NS = 1_000_000_000


def as_job(record: Record) -> Record:
    """Return the creation of a Job in place of a pod's, or the deletion of it; else the record.

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


def _job(create: PodCreate) -> Object:
    pod, made = create.pod, Object()
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
        notes[SERVICE_TIME] = f"{life.service_time_ns // _SECOND_NS}s"
        notes[EXIT_CODE] = str(int(life.fails))
    return made
