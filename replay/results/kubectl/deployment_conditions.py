"""Computes the conditions Available and Progressing of a Deployment at a moment of a run.

Both conditions, like the Deployment's counts, are derived from the pods at that moment. The last
progress is the latest time at which the newest ReplicaSet was created, one of its pods was created,
or any pod became ready. A run does not record when conditions changed, so their times are left out.

Source: kubernetes v1.34 pkg/controller/deployment/sync.go, calculateStatus; progress.go,
syncRolloutStatus; util/deployment_util.go, DeploymentComplete, DeploymentTimedOut; sync.go,
checkPausedConditions.
"""

from __future__ import annotations

from replay.world.api.cluster import replicas
from replay.world.controllers.workloads.rolling_update import bounds_of, deadline_ns
from reprieve.kube.v1beta1 import meta_pb2, workloads_pb2


def conditions(
    deployment: workloads_pb2.Deployment,
    counts: workloads_pb2.WorkloadStatus,
    newest: str,
    since_progress_ns: int,
) -> list[meta_pb2.Condition]:
    """Return the conditions; `newest` names the ReplicaSet of the current template, "" if none.

    `since_progress_ns` is the time since the last progress.
    """
    has_minimum = counts.available_replicas >= bounds_of(deployment.spec).least_available
    available = meta_pb2.Condition(
        type="Available",
        status="True" if has_minimum else "False",
        reason="MinimumReplicasAvailable" if has_minimum else "MinimumReplicasUnavailable",
        message=f"Deployment {'has' if has_minimum else 'does not have'} minimum availability.",
    )
    return [available, _progressing(deployment, counts, newest, since_progress_ns)]


def _progressing(
    deployment: workloads_pb2.Deployment,
    counts: workloads_pb2.WorkloadStatus,
    newest: str,
    since_progress_ns: int,
) -> meta_pb2.Condition:
    progressing = meta_pb2.Condition(type="Progressing", status="True", reason="ReplicaSetUpdated")
    whose = f'ReplicaSet "{newest}"' if newest else f'Deployment "{deployment.metadata.name}"'
    desired = replicas(deployment.spec)
    if deployment.spec.paused:
        progressing.status, progressing.reason = "Unknown", "DeploymentPaused"
        progressing.message = "Deployment is paused"
    elif counts.updated_replicas == counts.replicas == counts.available_replicas == desired:
        progressing.reason = "NewReplicaSetAvailable"
        progressing.message = f"{whose} has successfully progressed."
    elif since_progress_ns > deadline_ns(deployment):
        progressing.status, progressing.reason = "False", "ProgressDeadlineExceeded"
        progressing.message = f"{whose} has timed out progressing."
    else:
        progressing.message = f"{whose} is progressing."
    return progressing
