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


def deployment_row(each: Any, now_ns: int) -> Sequence[str]:
    """Return the cells of a Deployment."""
    status = each.status
    return (
        each.metadata.name,
        f"{status.ready_replicas}/{replicas(each.spec)}",
        str(status.updated_replicas),
        str(status.available_replicas),
        age(each, now_ns),
        *_containers(each.spec.template),
        selector_text(each.spec.selector),
    )


def replica_set_row(each: Any, now_ns: int) -> Sequence[str]:
    """Return the cells of a ReplicaSet."""
    return (*_replicated(each, now_ns), selector_text(each.spec.selector))


def replication_controller_row(each: Any, now_ns: int) -> Sequence[str]:
    """Return the cells of a ReplicationController."""
    return (*_replicated(each, now_ns), pairs(each.spec.selector))


def _replicated(each: Any, now_ns: int) -> Sequence[str]:
    return (
        each.metadata.name,
        str(replicas(each.spec)),
        str(each.status.replicas),
        str(each.status.ready_replicas),
        age(each, now_ns),
        *_containers(each.spec.template),
    )


def stateful_set_row(each: Any, now_ns: int) -> Sequence[str]:
    """Return the cells of a StatefulSet."""
    ready = f"{each.status.ready_replicas}/{replicas(each.spec)}"
    return (each.metadata.name, ready, age(each, now_ns), *_containers(each.spec.template))


def daemon_set_row(each: Any, now_ns: int) -> Sequence[str]:
    """Return the cells of a DaemonSet."""
    status = each.status
    return (
        each.metadata.name,
        str(status.desired_number_scheduled),
        str(status.current_number_scheduled),
        str(status.number_ready),
        str(status.updated_number_scheduled),
        str(status.number_available),
        pairs(each.spec.template.spec.node_selector),
        age(each, now_ns),
        *_containers(each.spec.template),
        selector_text(each.spec.selector),
    )


def job_row(each: Any, now_ns: int) -> Sequence[str]:
    """Return the cells of a Job; DURATION is until its end, or until `now_ns`."""
    spec, status = each.spec, each.status
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
        selector = f"batch.kubernetes.io/controller-uid={each.metadata.uid}"
    return (
        each.metadata.name,
        _job_status(each),
        completions,
        taken,
        age(each, now_ns),
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


def cron_job_row(each: Any, now_ns: int) -> Sequence[str]:
    """Return the cells of a CronJob."""
    spec, template = each.spec, each.spec.job_template.spec.template
    return (
        each.metadata.name,
        spec.schedule,
        spec.time_zone or NONE,
        str(spec.suspend),
        str(len(each.status.active)),
        since(each.status, "last_schedule_time", now_ns, NONE),
        age(each, now_ns),
        *_containers(template),
        selector_text(spec.job_template.spec.selector),
    )
