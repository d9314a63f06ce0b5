"""Workloads as rows of kubectl's tables: deployments, replica sets, jobs and the like.

Source: kubernetes v1.34 pkg/printers/internalversion/printers.go, printDeployment, printReplicaSet,
printReplicationController, printStatefulSet, printDaemonSet, printJob, printCronJob.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from replay.results import durations
from replay.results.kubectl.rows import NONE, age, pairs, since
from replay.world.api.cluster import replicas
from reprieve.kube.v1beta1 import meta_pb2
from services.rpc.kube.fields import optional_time_ns

_JOB_STATES = ("Suspended", "FailureTarget")
_SYMBOLS = {"In": "in", "NotIn": "notin"}


def _containers(template: Any) -> tuple[str, str]:
    containers = template.spec.containers
    return ",".join(container.name for container in containers), ",".join(
        container.image for container in containers
    )


def selector_text(selector: meta_pb2.LabelSelector) -> str:
    """Return a selector as kubectl writes it; "<none>" for an empty one.

    Source: kubernetes v1.34 apimachinery pkg/apis/meta/v1/helpers.go, FormatLabelSelector.
    """
    parts = [(key, f"{key}={value}") for key, value in selector.match_labels.items()]
    for match_expression in selector.match_expressions:
        if match_expression.operator in _SYMBOLS:
            values = ",".join(sorted(match_expression.values))
            parts.append(
                (
                    match_expression.key,
                    f"{match_expression.key} {_SYMBOLS[match_expression.operator]} ({values})",
                )
            )
        else:
            parts.append(
                (
                    match_expression.key,
                    match_expression.key
                    if match_expression.operator == "Exists"
                    else f"!{match_expression.key}",
                )
            )
    parts.sort(key=lambda part: part[0])
    return ",".join(text for _, text in parts) or NONE


def deployment_row(deployment: Any, now_ns: int) -> Sequence[str]:
    """Return the cells of a Deployment."""
    status = deployment.status
    return (
        deployment.metadata.name,
        f"{status.ready_replicas}/{replicas(deployment.spec)}",
        str(status.updated_replicas),
        str(status.available_replicas),
        age(deployment, now_ns),
        *_containers(deployment.spec.template),
        selector_text(deployment.spec.selector),
    )


def replica_set_row(replica_set: Any, now_ns: int) -> Sequence[str]:
    """Return the cells of a ReplicaSet."""
    return (*_replicated(replica_set, now_ns), selector_text(replica_set.spec.selector))


def replication_controller_row(replication_controller: Any, now_ns: int) -> Sequence[str]:
    """Return the cells of a ReplicationController."""
    return (
        *_replicated(replication_controller, now_ns),
        pairs(replication_controller.spec.selector),
    )


def _replicated(workload: Any, now_ns: int) -> Sequence[str]:
    return (
        workload.metadata.name,
        str(replicas(workload.spec)),
        str(workload.status.replicas),
        str(workload.status.ready_replicas),
        age(workload, now_ns),
        *_containers(workload.spec.template),
    )


def stateful_set_row(stateful_set: Any, now_ns: int) -> Sequence[str]:
    """Return the cells of a StatefulSet."""
    ready = f"{stateful_set.status.ready_replicas}/{replicas(stateful_set.spec)}"
    return (
        stateful_set.metadata.name,
        ready,
        age(stateful_set, now_ns),
        *_containers(stateful_set.spec.template),
    )


def daemon_set_row(daemon_set: Any, now_ns: int) -> Sequence[str]:
    """Return the cells of a DaemonSet."""
    status = daemon_set.status
    return (
        daemon_set.metadata.name,
        str(status.desired_number_scheduled),
        str(status.current_number_scheduled),
        str(status.number_ready),
        str(status.updated_number_scheduled),
        str(status.number_available),
        pairs(daemon_set.spec.template.spec.node_selector),
        age(daemon_set, now_ns),
        *_containers(daemon_set.spec.template),
        selector_text(daemon_set.spec.selector),
    )


def job_row(job: Any, now_ns: int) -> Sequence[str]:
    """Return the cells of a Job; DURATION is until its end, or until `now_ns`."""
    spec, status = job.spec, job.status
    completions = f"{status.succeeded}/1"
    if spec.HasField("completions"):
        completions = f"{status.succeeded}/{spec.completions}"
    elif spec.parallelism > 1:
        completions += f" of {spec.parallelism}"
    start_ns = optional_time_ns(status, "start_time")
    end_ns = optional_time_ns(status, "completion_time")
    taken = "" if start_ns is None else durations.age((end_ns or now_ns) - start_ns)
    selector = selector_text(spec.selector)
    if selector == NONE:
        selector = f"batch.kubernetes.io/controller-uid={job.metadata.uid}"
    return (
        job.metadata.name,
        _job_status(job),
        completions,
        taken,
        age(job, now_ns),
        *_containers(spec.template),
        selector,
    )


def _job_status(job: Any) -> str:
    holding = {condition.type for condition in job.status.conditions if condition.status == "True"}
    for end in ("Complete", "Failed"):
        if end in holding:
            return end
    if job.metadata.HasField("deletion_timestamp"):
        return "Terminating"
    if job.spec.suspend:
        holding.add("Suspended")
    return next((job_state for job_state in _JOB_STATES if job_state in holding), "Running")


def cron_job_row(cron_job: Any, now_ns: int) -> Sequence[str]:
    """Return the cells of a CronJob."""
    spec, template = cron_job.spec, cron_job.spec.job_template.spec.template
    return (
        cron_job.metadata.name,
        spec.schedule,
        spec.time_zone or NONE,
        str(spec.suspend),
        str(len(cron_job.status.active)),
        since(cron_job.status, "last_schedule_time", now_ns, NONE),
        age(cron_job, now_ns),
        *_containers(template),
        selector_text(spec.job_template.spec.selector),
    )
