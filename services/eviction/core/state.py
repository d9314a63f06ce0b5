"""Pressure conditions, and the state of an eviction manager between steps.

A condition holds from the step in which a threshold is met, even before its grace period elapses,
until the transition period has passed since the last such step. With a transition period of 0, it
never holds.

Source: kubernetes v1.32 pkg/kubelet/eviction/helpers.go (nodeConditionsLastObservedAt,
nodeConditionsObservedSince), eviction_manager.go (synchronize up to "update internal state", and
the helpers that it calls there) and pkg/kubelet/nodestatus/setters.go (the three pressure setters).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from services.eviction.core.observations import Observation, is_fresh
from services.eviction.core.pod import EvictionPod, is_best_effort
from services.eviction.core.results import EVICTED_REASON, PodAdmitResult, StepDecision
from services.eviction.core.signals import ConditionType, Signal
from services.eviction.core.thresholds import Notifications, Threshold
from services.kube.pod import Condition
from services.kube.taints import MEMORY_PRESSURE, Taint, TaintEffect, tolerated

_MEMORY_PRESSURE_TAINT = Taint(key=MEMORY_PRESSURE, effect=TaintEffect.NO_SCHEDULE)
_ADMITTED = PodAdmitResult(admit=True)


def last_observed(
    thresholds: Iterable[Threshold], before: Mapping[ConditionType, int], now_ns: int
) -> dict[ConditionType, int]:
    """Return the last observation time of each condition, updated by thresholds met now."""
    observed = {threshold.signal.condition for threshold in thresholds}
    return {
        condition: now_ns if condition in observed else before[condition]
        for condition in ConditionType
        if condition in observed or condition in before
    }


def holding(
    observed_ns: Mapping[ConditionType, int], *, period_ns: int, now_ns: int
) -> tuple[ConditionType, ...]:
    """Return the conditions observed less than `period_ns` ago, by name.

    Upstream's order is a Go map's; the message about a pod that is not admitted shows this order.
    """
    return tuple(
        sorted(
            (condition for condition, at_ns in observed_ns.items() if now_ns - at_ns < period_ns),
            key=lambda condition: condition.value,
        )
    )


def node_conditions(held: Iterable[ConditionType]) -> tuple[Condition, ...]:
    """Return the three pressure conditions of a node's status; those in `held` are true."""
    true = tuple(held)
    return tuple(
        _TRUE[condition] if condition in true else _FALSE[condition] for condition in ConditionType
    )


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
"""Reason and message of each condition if it is true, and if it is false."""


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
    listed = " ".join(condition.value for condition in conditions)
    return PodAdmitResult(
        admit=False, reason=EVICTED_REASON, message=f"The node had condition: [{listed}]. "
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerState:
    """The state of an eviction manager between two steps; times in ns.

    conditions: the conditions that hold. condition_last_observed_ns: when each was last observed.
    first_observed_ns: since when each threshold has been met, regardless of grace periods.
    thresholds_met: thresholds whose grace period has elapsed; a threshold stays until its minimum
    reclaim is available. observation_times_ns: the time of each signal's last observation (None if
    it had no time). file_systems_detected: false until the first step. notifications: the
    notifications that the kernel should send.
    """

    file_systems_detected: bool = False
    conditions: tuple[ConditionType, ...] = ()
    condition_last_observed_ns: Mapping[ConditionType, int] = field(default_factory=dict)
    first_observed_ns: Mapping[Threshold, int] = field(default_factory=dict)
    thresholds_met: tuple[Threshold, ...] = ()
    observation_times_ns: Mapping[Signal, int | None] = field(default_factory=dict)
    notifications: Notifications = field(default_factory=Notifications)

    @property
    def is_at_rest(self) -> bool:
        """Whether a step in which no threshold is met would change nothing except times."""
        return (
            self.file_systems_detected
            and not self.conditions
            and not self.first_observed_ns
            and not self.thresholds_met
        )

    def is_like(self, other: ManagerState) -> bool:
        """Return whether two states are equal, except for observation times and notifications."""
        return (
            self.file_systems_detected == other.file_systems_detected
            and self.conditions == other.conditions
            and self.condition_last_observed_ns == other.condition_last_observed_ns
            and self.first_observed_ns == other.first_observed_ns
            and self.thresholds_met == other.thresholds_met
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingStep:
    """A step at `now_ns` that waits for its garbage collection.

    `outcome` is the outcome if the collection frees nothing.
    """

    now_ns: int
    outcome: StepDecision
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerSnapshot:
    """A manager's state for a checkpoint, without its configuration.

    Thresholds are stored by their text, which is unique within a configuration. `pending` is the
    waiting step.
    """

    state: ManagerState
    first_observed_ns: Mapping[str, int]
    thresholds_met: tuple[str, ...]
    pending: PendingStep | None


def observed(
    before: ManagerState,
    watched: tuple[Threshold, ...],
    observations: Mapping[Signal, Observation],
    *,
    now_ns: int,
    pressure_transition_ns: int,
) -> ManagerState:
    """Return the state after the `observations` of a step at `now_ns`."""
    current = tuple(threshold for threshold in watched if _holds(threshold, before, observations))
    first_observed_ns = {
        threshold: before.first_observed_ns.get(threshold, now_ns) for threshold in current
    }
    condition_times = last_observed(current, before.condition_last_observed_ns, now_ns)
    return ManagerState(
        file_systems_detected=True,
        conditions=holding(condition_times, period_ns=pressure_transition_ns, now_ns=now_ns),
        condition_last_observed_ns=condition_times,
        first_observed_ns=first_observed_ns,
        thresholds_met=tuple(
            threshold
            for threshold, since_ns in first_observed_ns.items()
            if now_ns - since_ns >= threshold.grace_ns
        ),
        observation_times_ns={
            signal: observation.time_ns for signal, observation in observations.items()
        },
        notifications=before.notifications,
    )


def actionable(
    after: ManagerState, before: ManagerState, observations: Mapping[Signal, Observation]
) -> tuple[Threshold, ...]:
    """Return the thresholds to act on: met, and with an observation newer than in `before`."""
    return tuple(
        threshold
        for threshold in after.thresholds_met
        if threshold.signal in observations
        and is_fresh(
            observations[threshold.signal], before.observation_times_ns.get(threshold.signal)
        )
    )


def snapshot_of(state: ManagerState, pending: PendingStep | None) -> ManagerSnapshot:
    """Return the state and the waiting step in the form of a checkpoint."""
    return ManagerSnapshot(
        state=replace(state, first_observed_ns={}, thresholds_met=()),
        first_observed_ns={
            str(threshold): at_ns for threshold, at_ns in state.first_observed_ns.items()
        },
        thresholds_met=tuple(str(threshold) for threshold in state.thresholds_met),
        pending=pending,
    )


def state_of(snapshot: ManagerSnapshot, watched: Sequence[Threshold]) -> ManagerState:
    """Return the state of `snapshot`, without thresholds that are not `watched`."""
    since, met = snapshot.first_observed_ns, frozenset(snapshot.thresholds_met)
    return replace(
        snapshot.state,
        first_observed_ns={
            threshold: since[str(threshold)] for threshold in watched if str(threshold) in since
        },
        thresholds_met=tuple(threshold for threshold in watched if str(threshold) in met),
    )


def _holds(
    threshold: Threshold, before: ManagerState, observations: Mapping[Signal, Observation]
) -> bool:
    seen = observations.get(threshold.signal)
    if seen is None:
        return False
    # The minimum reclaim counts only if the grace period had elapsed in the previous step.
    return threshold.is_met(seen, with_min_reclaim=threshold in before.thresholds_met)
