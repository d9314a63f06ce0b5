"""Pressure conditions: when they hold, their texts in the node's status, and which pods they admit.

A condition holds from the step in which a threshold is met, before any grace, until the
transition period has passed since the last such step. With a period of 0 it never holds.

Source: kubernetes v1.32 pkg/kubelet/eviction/helpers.go (nodeConditionsLastObservedAt,
nodeConditionsObservedSince) and pkg/kubelet/nodestatus/setters.go (the three pressure setters).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from services.eviction.core.pod import EvictionPod, is_best_effort
from services.eviction.core.results import EVICTED_REASON, PodAdmitResult
from services.eviction.core.signals import ConditionType
from services.eviction.core.thresholds import Threshold
from services.kube.pod import Condition
from services.kube.taints import Taint, TaintEffect, tolerated

_MEMORY_PRESSURE_TAINT = Taint(
    key="node.kubernetes.io/memory-pressure", effect=TaintEffect.NO_SCHEDULE
)
_ADMITTED = PodAdmitResult(admit=True)


def last_observed(
    thresholds: Iterable[Threshold], before: Mapping[ConditionType, int], now_ns: int
) -> dict[ConditionType, int]:
    """Return when each condition was last observed, with the thresholds met at `now_ns`."""
    observed = {each.signal.condition for each in thresholds}
    return {
        each: now_ns if each in observed else before[each]
        for each in ConditionType
        if each in observed or each in before
    }


def holding(
    observed_ns: Mapping[ConditionType, int], *, period_ns: int, now_ns: int
) -> tuple[ConditionType, ...]:
    """Return the conditions observed less than `period_ns` ago, by name.

    Upstream's order is that of a Go map; the message of a pod that is not admitted has it.
    """
    return tuple(
        sorted(
            (each for each, at_ns in observed_ns.items() if now_ns - at_ns < period_ns),
            key=lambda each: each.value,
        )
    )


def node_conditions(held: Iterable[ConditionType]) -> tuple[Condition, ...]:
    """Return the three conditions of a node's status, true for those that are `held`."""
    true = tuple(held)
    return tuple(_TRUE[each] if each in true else _FALSE[each] for each in ConditionType)


_TEXTS: Mapping[ConditionType, tuple[str, str, str, str]] = {
    ConditionType.MEMORY_PRESSURE: (
        "KubeletHasInsufficientMemory",
        "insufficient memory available",
        "KubeletHasSufficientMemory",
        "sufficient memory available",
    ),
    ConditionType.DISK_PRESSURE: (
        "KubeletHasDiskPressure",
        "disk pressure",
        "KubeletHasNoDiskPressure",
        "no disk pressure",
    ),
    ConditionType.PID_PRESSURE: (
        "KubeletHasInsufficientPID",
        "insufficient PID available",
        "KubeletHasSufficientPID",
        "sufficient PID available",
    ),
}
"""Reason and message of a condition that is true, and of one that is false."""


def _condition(kind: ConditionType, status: str, reason: str, has: str) -> Condition:
    return Condition(type=kind.value, status=status, reason=reason, message=f"kubelet has {has}")


_TRUE = {kind: _condition(kind, "True", *texts[:2]) for kind, texts in _TEXTS.items()}
_FALSE = {kind: _condition(kind, "False", *texts[2:]) for kind, texts in _TEXTS.items()}


def admit(pod: EvictionPod, conditions: tuple[ConditionType, ...]) -> PodAdmitResult:
    """Return whether a node under these pressure `conditions` admits `pod`.

    Source: kubernetes v1.32 pkg/kubelet/eviction/eviction_manager.go, Admit.
    """
    if not conditions or pod.is_critical:
        return _ADMITTED
    if conditions == (ConditionType.MEMORY_PRESSURE,) and (
        not is_best_effort(pod) or tolerated(_MEMORY_PRESSURE_TAINT, pod.tolerations)
    ):
        return _ADMITTED
    listed = " ".join(each.value for each in conditions)
    return PodAdmitResult(
        admit=False, reason=EVICTED_REASON, message=f"The node had condition: [{listed}]. "
    )
