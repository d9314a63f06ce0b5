"""What a Job makes of failures: whether one counts, and how long to wait after so many.

Source: kubernetes v1.34 pkg/controller/job/pod_failure_policy.go, matchPodFailurePolicy;
backoff_utils.go, getRemainingTimeForFailuresCount; job_controller.go, DefaultJobPodFailureBackOff,
MaxJobPodFailureBackOff (10 min; the documentation speaks of six).
"""

from __future__ import annotations

from enum import Enum

from replay.world.models import SECOND_NS
from reprieve.kube.v1alpha1 import pod_pb2, workloads_pb2
from services.rpc.errors import FieldError

BACKOFF_NS = 10 * SECOND_NS
BACKOFF_MAX_NS = 600 * SECOND_NS


class Effect(Enum):
    """What a pod's failure does to its Job."""

    COUNT = "Count"
    IGNORE = "Ignore"
    FAIL_INDEX = "FailIndex"
    FAIL_JOB = "FailJob"


def check_policy(policy: workloads_pb2.PodFailurePolicy) -> None:
    """Refuse a policy with an action that is none. Raises FieldError."""
    known = [each.value for each in Effect]
    for index, rule in enumerate(policy.rules):
        if rule.action not in known:
            raise FieldError(
                f"spec.podFailurePolicy.rules[{index}].action",
                f"{rule.action!r} is none of {', '.join(known)}",
            )


def effect_of(policy: workloads_pb2.PodFailurePolicy, status: pod_pb2.PodStatus) -> Effect:
    """Return what a failed pod's status means by the first rule that fits; Count without one."""
    for rule in policy.rules:
        if _fits(rule, status):
            return Effect(rule.action)
    return Effect.COUNT


def backoff_ns(failures: int) -> int:
    """Return how long no pod is made after so many failures in a row, ns."""
    if failures < 1:
        return 0
    return min(BACKOFF_NS << min(failures - 1, 16), BACKOFF_MAX_NS)


def _fits(rule: workloads_pb2.PodFailurePolicyRule, status: pod_pb2.PodStatus) -> bool:
    if rule.HasField("on_exit_codes"):
        return _exit_code_fits(rule.on_exit_codes, status)
    return any(
        condition.type == wanted.type and condition.status == (wanted.status or "True")
        for wanted in rule.on_pod_conditions
        for condition in status.conditions
    )


def _exit_code_fits(
    wanted: workloads_pb2.PodFailurePolicyOnExitCodes, status: pod_pb2.PodStatus
) -> bool:
    """Tell whether a container ended as the rule says; one that succeeded never did."""
    for container in status.container_statuses:
        if wanted.HasField("container_name") and container.name != wanted.container_name:
            continue
        if not container.state.HasField("terminated"):
            continue
        code = container.state.terminated.exit_code
        if code and (code in wanted.values) == (wanted.operator == "In"):
            return True
    return False
