"""What an eviction manager remembers from step to step, and how a step changes it.

Source: kubernetes v1.32 pkg/kubelet/eviction/eviction_manager.go, synchronize up to "update
internal state", and the helpers that it calls there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from services.eviction.core.conditions import holding, last_observed
from services.eviction.core.observations import Observation, is_fresh
from services.eviction.core.results import Outcome
from services.eviction.core.signals import ConditionType, Signal
from services.eviction.core.thresholds import Notifications, Threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A manager's memory; times in ns.

    `conditions` hold now; `condition_last_observed_ns` is when each was last observed.
    `first_observed_ns` is since when each threshold has been met, grace or not, and
    `thresholds_met` are those whose grace has elapsed, which stay until their minimum reclaim is
    free again. `observation_times_ns` holds the time of each signal's last observation (None
    where that was unknown). `file_systems_detected` is false until the first step.
    `notifications` is what the kernel was asked to tell.
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
        """Tell whether a step that meets no threshold would change nothing but times."""
        return (
            self.file_systems_detected
            and not self.conditions
            and not self.first_observed_ns
            and not self.thresholds_met
        )

    def is_like(self, other: State) -> bool:
        """Tell whether two states differ in nothing but observations' times and notifications."""
        return (
            self.file_systems_detected == other.file_systems_detected
            and self.conditions == other.conditions
            and self.condition_last_observed_ns == other.condition_last_observed_ns
            and self.first_observed_ns == other.first_observed_ns
            and self.thresholds_met == other.thresholds_met
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A step at `now_ns` that waits for its collection, with the outcome if that frees nothing."""

    now_ns: int
    outcome: Outcome
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerSnapshot:
    """A manager's memory without its configuration, for a checkpoint.

    It is a State whose thresholds stand beside it, named by their text, which is unique among
    those of one configuration, and the step that waits.
    """

    state: State
    first_observed_ns: Mapping[str, int]
    thresholds_met: tuple[str, ...]
    pending: Pending | None


def observed(
    before: State,
    watched: tuple[Threshold, ...],
    observations: Mapping[Signal, Observation],
    *,
    now_ns: int,
    pressure_transition_ns: int,
) -> State:
    """Return the state after the `observations` of a step at `now_ns`."""
    current = tuple(each for each in watched if _holds(each, before, observations))
    first_observed_ns = {each: before.first_observed_ns.get(each, now_ns) for each in current}
    condition_times = last_observed(current, before.condition_last_observed_ns, now_ns)
    return State(
        file_systems_detected=True,
        conditions=holding(condition_times, period_ns=pressure_transition_ns, now_ns=now_ns),
        condition_last_observed_ns=condition_times,
        first_observed_ns=first_observed_ns,
        thresholds_met=tuple(
            each
            for each, since_ns in first_observed_ns.items()
            if now_ns - since_ns >= each.grace_ns
        ),
        observation_times_ns={signal: each.time_ns for signal, each in observations.items()},
        notifications=before.notifications,
    )


def actionable(
    after: State, before: State, observations: Mapping[Signal, Observation]
) -> tuple[Threshold, ...]:
    """Return the thresholds to act on: met, and measured anew since the step `before`."""
    return tuple(
        each
        for each in after.thresholds_met
        if each.signal in observations
        and is_fresh(observations[each.signal], before.observation_times_ns.get(each.signal))
    )


def snapshot_of(state: State, pending: Pending | None) -> ManagerSnapshot:
    """Return the value that stands for the state."""
    return ManagerSnapshot(
        state=replace(state, first_observed_ns={}, thresholds_met=()),
        first_observed_ns={str(each): at_ns for each, at_ns in state.first_observed_ns.items()},
        thresholds_met=tuple(str(each) for each in state.thresholds_met),
        pending=pending,
    )


def state_of(snapshot: ManagerSnapshot, watched: Sequence[Threshold]) -> State:
    """Return the state that `snapshot` stands for, without thresholds that are not `watched`."""
    since, met = snapshot.first_observed_ns, frozenset(snapshot.thresholds_met)
    return replace(
        snapshot.state,
        first_observed_ns={each: since[str(each)] for each in watched if str(each) in since},
        thresholds_met=tuple(each for each in watched if str(each) in met),
    )


def _holds(threshold: Threshold, before: State, observations: Mapping[Signal, Observation]) -> bool:
    seen = observations.get(threshold.signal)
    if seen is None:
        return False
    # More than the value is needed only where the grace had already elapsed.
    return threshold.is_met(seen, with_min_reclaim=threshold in before.thresholds_met)
