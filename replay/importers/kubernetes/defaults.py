"""Fills in the defaults that an API server adds to the manifest of a new object.

Only fields that a replay reads or shows. The template of a workload stays as it is: its pods are
filled in when they are created.

Source: kubernetes v1.34 pkg/apis/apps/v1/defaults.go, SetDefaults_Deployment,
SetDefaults_StatefulSet, SetDefaults_DaemonSet; pkg/apis/batch/v1/defaults.go, SetDefaults_Job,
SetDefaults_CronJob; pkg/apis/core/v1/defaults.go, SetDefaults_Pod,
SetDefaults_ReplicationController; pkg/apis/resource/v1/defaults.go, SetDefaults_ExactDeviceRequest,
SetDefaults_DeviceSubRequest, SetDefaults_DeviceToleration.
"""

from __future__ import annotations

from typing import Any

from replay.world.api.admission import defaults
from reprieve.kube.v1beta1 import device_pb2, workloads_pb2
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject

_ROLLING = "RollingUpdate"


def fill_in(carried: KubernetesObject) -> None:
    """Fill in the defaults of a new object, in place."""
    match carried.WhichOneof("object"):
        case "pod":
            defaults.fill_in(carried.pod.spec)
        case "deployment":
            _deployment(carried.deployment.spec)
        case "replica_set":
            _default(carried.replica_set.spec, replicas=1)
        case "replication_controller":
            _replication_controller(carried.replication_controller)
        case "stateful_set":
            _stateful_set(carried.stateful_set.spec)
        case "daemon_set":
            _daemon_set(carried.daemon_set.spec)
        case "job":
            _job(carried.job.spec)
        case "resource_claim":
            _claim(carried.resource_claim.spec)
        case "resource_claim_template":
            _claim(carried.resource_claim_template.spec.spec)
        case "cron_job":
            spec = carried.cron_job.spec
            spec.concurrency_policy = spec.concurrency_policy or "Allow"
            _default(
                spec, suspend=False, successful_jobs_history_limit=3, failed_jobs_history_limit=1
            )


def _claim(spec: device_pb2.ResourceClaimSpec) -> None:
    for request in spec.devices.requests:
        if request.HasField("exactly"):
            _request(request.exactly)
        for alternative in request.first_available:
            _request(alternative)


def _request(request: device_pb2.ExactDeviceRequest | device_pb2.DeviceSubRequest) -> None:
    request.allocation_mode = request.allocation_mode or "ExactCount"
    if request.allocation_mode == "ExactCount":
        request.count = request.count or 1
    for toleration in request.tolerations:
        toleration.operator = toleration.operator or "Equal"


def _default(spec: Any, **values: object) -> None:
    """Set each field that is absent."""
    for name, value in values.items():
        if not spec.HasField(name):
            setattr(spec, name, value)


def _deployment(spec: workloads_pb2.DeploymentSpec) -> None:
    _default(spec, replicas=1, revision_history_limit=10, progress_deadline_seconds=600)
    strategy = spec.strategy
    strategy.type = strategy.type or _ROLLING
    if strategy.type == _ROLLING:
        update = strategy.rolling_update
        if not update.HasField("max_unavailable"):
            update.max_unavailable.string_value = "25%"
        if not update.HasField("max_surge"):
            update.max_surge.string_value = "25%"


def _replication_controller(controller: workloads_pb2.ReplicationController) -> None:
    _default(controller.spec, replicas=1)
    labels = controller.spec.template.metadata.labels
    for target in (controller.spec.selector, controller.metadata.labels):
        if not target:
            target.update(labels)


def _stateful_set(spec: workloads_pb2.StatefulSetSpec) -> None:
    _default(spec, replicas=1)
    spec.pod_management_policy = spec.pod_management_policy or "OrderedReady"
    strategy = spec.update_strategy
    strategy.type = strategy.type or _ROLLING
    if strategy.type == _ROLLING:
        _default(strategy.rolling_update, partition=0)


def _daemon_set(spec: workloads_pb2.DaemonSetSpec) -> None:
    strategy = spec.update_strategy
    strategy.type = strategy.type or _ROLLING
    if strategy.type == _ROLLING:
        update = strategy.rolling_update
        if not update.HasField("max_unavailable"):
            update.max_unavailable.int_value = 1
        if not update.HasField("max_surge"):
            update.max_surge.int_value = 0


def _job(spec: workloads_pb2.JobSpec) -> None:
    if not spec.HasField("parallelism"):
        _default(spec, completions=1)
    _default(
        spec,
        parallelism=1,
        backoff_limit=6,
        completion_mode="NonIndexed",
        suspend=False,
        pod_replacement_policy="Failed"
        if spec.HasField("pod_failure_policy")
        else "TerminatingOrFailed",
    )
