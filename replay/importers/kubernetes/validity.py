"""Rejects manifests that an API server would reject, so that nothing of them is applied.

Only what is often wrong and what a replay would otherwise answer wrongly: `refuse_invalid` looks at
the manifest alone, `refuse_change` at what it changes of an object that exists. In a pod that a
manifest or a controller creates, admission refuses more (replay/world/api/admission).

Source: kubernetes v1.34 pkg/apis/apps/validation/validation.go, ValidateDeploymentSpec,
ValidateDeploymentUpdate, ValidateReplicaSetUpdate (immutable selectors: pkg/registry/apps,
ValidateUpdate of the strategies), ValidateDaemonSetSpec, ValidateStatefulSetSpec,
ValidateStatefulSetUpdate, ValidateRollingUpdateDeployment; pkg/apis/batch/validation/validation.go,
ValidateJobSpecUpdate, validatePodTemplateUpdate, validateCompletions; pkg/apis/core/validation,
validateContainerResourceRequirements, validateHostNetwork, validateOS; pkg/apis/policy/validation,
ValidatePodDisruptionBudgetSpec.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message

from replay.errors import TraceError
from replay.kube.kinds import metadata
from replay.trace.validate import pod_template
from replay.world.api.admission.resources import refuse_above_limits
from replay.world.api.admission.selectors import selector_of
from reprieve.kube.v1beta1 import meta_pb2, pod_pb2, storage_pb2, workloads_pb2
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from services.kube.quantity import parse
from services.rpc.errors import FieldError

_SELECTING = ("deployment", "replica_set", "stateful_set", "daemon_set")
_RESTARTING = (*_SELECTING, "replication_controller")
_IMMUTABLE = "field is immutable"
_STATEFUL_TEXT = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
    "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
    "'minReadySeconds' are forbidden"
)
_JOB_FIXED = {
    "selector": "selector",
    "completion_mode": "completionMode",
    "pod_failure_policy": "podFailurePolicy",
    "backoff_limit_per_index": "backoffLimitPerIndex",
}
"""Fields of a Job's spec that do not change, besides its template and its completions."""


def refuse_invalid(where: str, carried: KubernetesObject) -> None:
    """Refuse an invalid manifest of a workload or a budget. Raises TraceError, with the field."""
    try:
        _refuse_invalid(carried)
    except FieldError as error:
        raise _refusal(where, carried, error) from error


def refuse_change(where: str, live: KubernetesObject, made: KubernetesObject) -> None:
    """Refuse `made`, which is `live` with a manifest applied: a change that is not allowed.

    Raises TraceError, with the field. (A PriorityClass is refused by admission.)
    """
    try:
        _refuse_invalid(made)
        match live.WhichOneof("object"):
            case "deployment" | "replica_set" | "daemon_set" as kind:
                _refuse_selector(getattr(live, kind).spec, getattr(made, kind).spec)
            case "stateful_set":
                if _fixed(live.stateful_set.spec) != _fixed(made.stateful_set.spec):
                    raise FieldError("spec", f"Forbidden: {_STATEFUL_TEXT}")
            case "job":
                _refuse_job_change(live.job, made.job)
    except FieldError as error:
        raise _refusal(where, made, error) from error


def _refusal(where: str, carried: KubernetesObject, error: FieldError) -> TraceError:
    return TraceError(where, f"{metadata(carried).name}: an API server refuses it: {error}")


# Manifests


def _refuse_invalid(carried: KubernetesObject) -> None:
    kind = carried.WhichOneof("object") or ""
    if kind == "pod_disruption_budget":
        spec = carried.pod_disruption_budget.spec
        if spec.HasField("min_available") and spec.HasField("max_unavailable"):
            both = "minAvailable and maxUnavailable cannot be both set"
            raise FieldError("spec", f"Invalid value: {both}")
    if kind == "deployment":
        _refuse_standstill(carried.deployment.spec)
    template = pod_template(carried)
    if template is None:
        return
    if kind in _SELECTING:
        _refuse_no_selector(getattr(carried, kind).spec.selector)
    selector_of(carried)
    path = "spec.template.spec"
    if kind == "cron_job":
        path = f"spec.jobTemplate.{path}"
    if kind in _RESTARTING and template.spec.restart_policy not in ("", "Always"):
        _refuse_policy(path, template.spec.restart_policy, '"Always"')
    if kind in ("job", "cron_job") and template.spec.restart_policy in ("", "Always"):
        policy = template.spec.restart_policy or "Always"
        _refuse_policy(path, policy, '"OnFailure", "Never"')
    _refuse_os(template.spec, path)
    _refuse_ports(template.spec, path)
    refuse_above_limits(template.spec, path)
    for field, resources in _resources(template.spec, path):
        _refuse_overcommitted(resources, field)


def _refuse_no_selector(selector: meta_pb2.LabelSelector) -> None:
    if not selector.match_labels and not selector.match_expressions:
        raise FieldError("spec.selector", "Required value")


def _refuse_standstill(spec: workloads_pb2.DeploymentSpec) -> None:
    """Refuse a rolling update that could never take a step."""
    update = spec.strategy.rolling_update
    if not (update.HasField("max_surge") and update.HasField("max_unavailable")):
        return
    bounds = (update.max_surge, update.max_unavailable)
    if all(not bound.int_value and bound.string_value in ("", "0%") for bound in bounds):
        path = "spec.strategy.rollingUpdate.maxUnavailable"
        raise FieldError(path, "Invalid value: 0: may not be 0 when `maxSurge` is 0")


def _refuse_policy(path: str, policy: str, supported: str) -> None:
    text = f'Unsupported value: "{policy}": supported values: {supported}'
    raise FieldError(f"{path}.restartPolicy", text)


def _refuse_os(spec: pod_pb2.PodSpec, path: str) -> None:
    if not spec.HasField("os"):
        return
    if not spec.os.name:
        raise FieldError(f"{path}.os.name", "Required value: cannot be empty")
    if spec.os.name not in ("linux", "windows"):
        supported = '"linux", "windows"'
        text = f'Unsupported value: "{spec.os.name}": supported values: {supported}'
        raise FieldError(f"{path}.os", text)


def _refuse_ports(spec: pod_pb2.PodSpec, path: str) -> None:
    """Refuse a port of the host's network with another number there."""
    for index, container in enumerate(spec.containers if spec.host_network else ()):
        for number, port in enumerate(container.ports):
            if port.host_port not in (0, port.container_port):
                where = f"{path}.containers[{index}].ports[{number}].hostPort"
                text = "must match `containerPort` when `hostNetwork` is true"
                raise FieldError(where, f"Invalid value: {port.host_port}: {text}")


def _resources(
    spec: pod_pb2.PodSpec, path: str
) -> Iterator[tuple[str, pod_pb2.ResourceRequirements]]:
    for name, containers in (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
    ):
        for index, container in enumerate(containers):
            yield f"{path}.{name}[{index}].resources", container.resources


def _refuse_overcommitted(resources: pod_pb2.ResourceRequirements, path: str) -> None:
    """Refuse a request of a resource that cannot be overcommitted, unless its limit is the same."""
    for name in sorted(resources.requests):
        is_huge = name.startswith("hugepages-")
        is_extended = "/" in name and "kubernetes.io/" not in name
        if not (is_huge or is_extended):
            continue
        if name not in resources.limits:
            text = "Limit must be set for non overcommitable resources"
            raise FieldError(f"{path}.limits", f"Required value: {text} ({name})")
        request, limit = (
            parse(amounts[name]) for amounts in (resources.requests, resources.limits)
        )
        if request.nano != limit.nano:
            text = f'Invalid value: "{request}": must be equal to {name} limit of {limit}'
            raise FieldError(f"{path}.requests", text)


# Changes


def _refuse_selector(live: Any, made: Any) -> None:
    if live.HasField("selector") and live.selector != made.selector:
        raise FieldError("spec.selector", f"Invalid value: {_labels(made.selector)}: {_IMMUTABLE}")


def _labels(selector: meta_pb2.LabelSelector) -> str:
    return str(dict(selector.match_labels))


def _fixed(spec: workloads_pb2.StatefulSetSpec) -> workloads_pb2.StatefulSetSpec:
    """Return what does not change of a StatefulSet, with the API server's defaults."""
    fixed = workloads_pb2.StatefulSetSpec()
    fixed.CopyFrom(spec)
    for name in ("replicas", "ordinals", "template", "update_strategy", "min_ready_seconds"):
        fixed.ClearField(name)
    fixed.pod_management_policy = fixed.pod_management_policy or "OrderedReady"
    for claim in fixed.volume_claim_templates:
        _default_claim(claim)
    return fixed


def _default_claim(claim: storage_pb2.PersistentVolumeClaim) -> None:
    """Leave of a claim's template what its manifest says, with the API server's defaults."""
    claim.ClearField("status")
    claim.metadata.ClearField("creation_timestamp")
    claim.spec.volume_mode = claim.spec.volume_mode or "Filesystem"
    requests = claim.spec.resources.requests
    for name, amount in requests.items():
        requests[name] = str(parse(amount).nano)


def _refuse_job_change(live: workloads_pb2.Job, made: workloads_pb2.Job) -> None:
    if _fixed_template(live, live) != _fixed_template(live, made):
        raise FieldError("spec.template", f"Invalid value: {_IMMUTABLE}")
    before, after = live.spec, made.spec
    for name, path in _JOB_FIXED.items():
        if _value(before, name) != _value(after, name):
            raise FieldError(f"spec.{path}", f"Invalid value: {_IMMUTABLE}")
    if _value(before, "completions") != _value(after, "completions") and not _is_elastic(after):
        raise FieldError("spec.completions", f"Invalid value: {after.completions}: {_IMMUTABLE}")


def _fixed_template(
    live: workloads_pb2.Job, job: workloads_pb2.Job
) -> workloads_pb2.PodTemplateSpec:
    """Return what does not change of a Job's template.

    Where its pods may run may change while it is suspended and has not started.
    """
    template = workloads_pb2.PodTemplateSpec()
    template.CopyFrom(job.spec.template)
    if live.spec.suspend and not live.status.HasField("start_time"):
        template.ClearField("metadata")
        for name in ("node_selector", "tolerations", "scheduling_gates"):
            template.spec.ClearField(name)
        template.spec.affinity.ClearField("node_affinity")
    if not template.spec.affinity.ByteSize():
        template.spec.ClearField("affinity")
    return template


def _is_elastic(spec: workloads_pb2.JobSpec) -> bool:
    """Return whether an indexed Job changes completions and parallelism together."""
    return spec.completion_mode == "Indexed" and spec.completions == spec.parallelism


def _value(message: Message, name: str) -> object:
    """Return a field's value, None if it is absent."""
    return getattr(message, name) if message.HasField(name) else None
