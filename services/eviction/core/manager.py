"""The eviction manager of one node: synchronize, reclaim, evict, admit.

A step is a pure function of the state, the node's statistics and its pods. If garbage must be
collected, the step is interrupted: `synchronize` returns NeedReclaim, the node collects garbage,
and `resume` ends the step with the statistics after the collection. As upstream, ranking and
message are based on the statistics before the collection; only the decision to evict is based on
the statistics after it.

Failures outside the manager are inputs if they matter: missing statistics (summary None) and file
systems that could not be inspected. Failed collections and failed kills have no effect, so they are
not inputs.

Source: kubernetes v1.32 pkg/kubelet/eviction/eviction_manager.go, managerImpl.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from services.eviction.core.local_storage import local_storage_evictions
from services.eviction.core.observations import NO_COLLECTION, NodeSummary, Observation, observe
from services.eviction.core.pod import EvictionPod
from services.eviction.core.ranking import rank
from services.eviction.core.results import (
    CLEANUP_TIMEOUT_NS,
    MONITORING_INTERVAL_NS,
    Eviction,
    NeedReclaim,
    NodeEvent,
    PodAdmitResult,
    StepDecision,
    StepResult,
    ThresholdEvidence,
    eviction_message,
)
from services.eviction.core.rules import rules_of
from services.eviction.core.signals import ConditionType, Signal
from services.eviction.core.state import (
    ManagerSnapshot,
    ManagerState,
    PendingStep,
    actionable,
    admit,
    holding,
    node_conditions,
    observed,
    snapshot_of,
    state_of,
)
from services.eviction.core.thresholds import (
    Threshold,
    by_eviction_priority,
    met,
    parse_thresholds,
    refreshed,
)
from services.kube.kubelet import EvictionConfig


class StepOrderError(ValueError):
    """`synchronize` was called while a step waits, or `resume` while no step waits."""


@dataclass(frozen=True, slots=True)
class _Step:
    now_ns: int
    pods: Sequence[EvictionPod]
    summary: NodeSummary
    observations: Mapping[Signal, Observation]


Memento = tuple[ManagerState, PendingStep | None]


class Manager:
    """Node-pressure eviction on one node."""

    __slots__ = ("_config", "_layout", "_pending", "_phases", "_rules", "_state", "_thresholds")

    def __init__(self, config: EvictionConfig) -> None:
        """Parse the configuration. Raises ConfigError, with upstream's text."""
        self._config = config
        self._rules = rules_of(config.mode)
        self._thresholds = parse_thresholds(config, self._rules.signals)
        self._layout = self._rules.layout(config)
        self._phases = self._rules.phases(self._thresholds, self._layout)
        self._state = ManagerState()
        self._pending: PendingStep | None = None

    @property
    def thresholds(self) -> tuple[Threshold, ...]:
        """The configured thresholds, as parsed."""
        return self._thresholds

    @property
    def watched(self) -> tuple[Threshold, ...]:
        """The thresholds that every step after the first observes."""
        return self._phases.later_steps

    @property
    def watched_now(self) -> tuple[Threshold, ...]:
        """The thresholds that the next step observes."""
        return self._watched_in(self._state)

    @property
    def state(self) -> ManagerState:
        """The state after the last step."""
        return self._state

    @property
    def is_waiting(self) -> bool:
        """Whether a step waits for its garbage collection."""
        return self._pending is not None

    def synchronize(
        self,
        *,
        now_ns: int,
        summary: NodeSummary | None,
        pods: Sequence[EvictionPod],
        disk_info_error: str = "",
    ) -> StepResult | NeedReclaim:
        """Take a step at `now_ns` with the active `pods`, in the node's order.

        `summary` is None if the statistics could not be read. `disk_info_error` is why the file
        systems could not be inspected; it matters only until the first successful inspection.
        Raises StepOrderError while a step waits for its collection.
        """
        if self._pending is not None:
            raise StepOrderError("the last step waits for its garbage collection")
        before = self._state
        if self._watches_nothing:
            return self._result(now_ns, before, StepDecision())
        if not before.file_systems_detected and disk_info_error:
            text = f"eviction manager: failed to get HasDedicatedImageFs: {disk_info_error}"
            return replace(self._result(now_ns, before, StepDecision()), error=text)
        if summary is None:
            self._state = replace(before, file_systems_detected=True)
            return self._result(now_ns, before, StepDecision())
        step = _Step(now_ns, pods, summary, observe(summary))
        self._state = self._notified(self._observed(before, step), step.observations, now_ns)
        outcome, reclaim = self._decide(before, step)
        if reclaim is None:
            return self._result(now_ns, before, outcome)
        changed = self._is_changed(before, outcome)
        self._pending = PendingStep(now_ns=now_ns, outcome=outcome, changed=changed)
        return reclaim

    def resume(self, summary: NodeSummary | None) -> StepResult:
        """End the waiting step with the statistics after the collection.

        The pod is not evicted if no threshold is met any more; this test includes minimum reclaims
        and ignores grace periods. Without statistics (None), the pod is evicted. Raises
        StepOrderError if no step waits. Source: reclaimNodeLevelResources.
        """
        if self._pending is None:
            raise StepOrderError("no step waits for a garbage collection")
        pending, self._pending = self._pending, None
        outcome = pending.outcome
        if summary is not None and not met(
            self._phases.later_steps, observe(summary), with_min_reclaim=True
        ):
            outcome = replace(outcome, evictions=(), ranking=(), stats_ages_ns=())
        return self._answer(pending.now_ns, outcome, changed=pending.changed)

    def may_skip(
        self, observations: Mapping[Signal, Observation], *, now_ns: int, limited: bool
    ) -> bool:
        """Return whether a step at `now_ns` would change nothing, whatever the pods use.

        This holds if the state is at rest, no threshold of `watched` is met, and no pod can exceed
        a limit on local storage. `limited`: whether some pod can (local_storage.may_be_evicted).
        """
        return (
            self._pending is None
            and self._state.is_at_rest
            and not (limited and self._config.local_storage_isolation)
            and not self._conditions_at(now_ns)
            and not met(self._phases.later_steps, observations, with_min_reclaim=False)
        )

    def skip(self, observations: Mapping[Signal, Observation], *, now_ns: int) -> StepResult:
        """Return the result of a step for which `may_skip` is true; record the observations' times.

        These times decide whether the observations of the next step are new.
        """
        times = {signal: observation.time_ns for signal, observation in observations.items()}
        state = replace(self._state, observation_times_ns=times)
        self._state = self._notified(state, observations, now_ns)
        return self._answer(now_ns, StepDecision(), changed=False)

    def calm(
        self, observations: Mapping[Signal, Observation], *, now_ns: int, limited: bool
    ) -> Mapping[Signal, int] | None:
        """Return the available amount of each signal with which steps change nothing.

        None if `may_skip` is false. With these amounts or more, `may_skip` stays true for the same
        pods (`limited` as there) and the capacities in `observations`.
        """
        if not self.may_skip(observations, now_ns=now_ns, limited=limited):
            return None
        amounts: dict[Signal, int] = {}
        for threshold in self._phases.later_steps:
            seen = observations.get(threshold.signal)
            if seen is not None:
                amount = threshold.value.amount(seen.capacity).value()
                amounts[threshold.signal] = max(amount, amounts.get(threshold.signal, 0))
        return amounts

    def admit(self, pod: EvictionPod) -> PodAdmitResult:
        """Return whether the kubelet admits `pod` under the current conditions."""
        return admit(pod, self._state.conditions)

    def memento(self) -> Memento:
        """Return the state for `go_back` without copying it; valid only for this manager."""
        return self._state, self._pending

    def go_back(self, memento: Memento) -> None:
        """Undo all steps since `memento` was taken."""
        self._state, self._pending = memento

    def snapshot(self) -> ManagerSnapshot:
        """Return the state, including a waiting step, for a checkpoint."""
        return snapshot_of(self._state, self._pending)

    def restore(self, snapshot: ManagerSnapshot) -> None:
        """Set the state to that of `snapshot`.

        Thresholds that are not configured are dropped, so that a checkpoint can be restored with
        other thresholds.
        """
        self._state = state_of(snapshot, self._phases.later_steps)
        self._pending = snapshot.pending

    @property
    def _watches_nothing(self) -> bool:
        return not self._thresholds and not self._config.local_storage_isolation

    def _conditions_at(self, now_ns: int) -> tuple[ConditionType, ...]:
        return holding(
            self._state.condition_last_observed_ns,
            period_ns=self._config.pressure_transition_ns,
            now_ns=now_ns,
        )

    def _watched_in(self, state: ManagerState) -> tuple[Threshold, ...]:
        phases = self._phases
        return phases.later_steps if state.file_systems_detected else phases.first_step

    def _observed(self, before: ManagerState, step: _Step) -> ManagerState:
        return observed(
            before,
            self._watched_in(before),
            step.observations,
            now_ns=step.now_ns,
            pressure_transition_ns=self._config.pressure_transition_ns,
        )

    def _notified(
        self, state: ManagerState, observations: Mapping[Signal, Observation], now_ns: int
    ) -> ManagerState:
        """Return the state with the kernel notifications to set from now on."""
        if not self._config.kernel_memcg_notification:
            return state
        notifications = refreshed(
            state.notifications, self._thresholds, observations, now_ns=now_ns
        )
        return replace(state, notifications=notifications)

    def _decide(self, before: ManagerState, step: _Step) -> tuple[StepDecision, NeedReclaim | None]:
        if self._config.local_storage_isolation:
            evictions = self._local_storage_evictions(step)
            if evictions:
                return StepDecision(evictions=evictions), None
        thresholds = by_eviction_priority(actionable(self._state, before, step.observations))
        if not thresholds:
            return StepDecision(), None
        return self._reclaim(thresholds, step)

    def _local_storage_evictions(self, step: _Step) -> tuple[Eviction, ...]:
        return local_storage_evictions(
            step.pods,
            step.summary.pods,
            imagefs_is_dedicated=self._layout.imagefs_is_dedicated,
            sidecars=self._rules.sidecars,
            grace_period_s=self._rules.immediate_grace_s,
        )

    def _reclaim(
        self, thresholds: Sequence[Threshold], step: _Step
    ) -> tuple[StepDecision, NeedReclaim | None]:
        threshold = thresholds[0]
        signal = threshold.signal
        rule = self._layout.disk_rule(signal)
        collect = NO_COLLECTION if rule is None else rule.collect
        ranked = rank(step.pods, step.summary.pods, signal, self._layout)
        victims = (
            self._eviction(pod, threshold, step, rank=place, ranked=len(ranked))
            for place, (pod, _) in enumerate(ranked, 1)
            if not pod.is_critical
        )
        event = NodeEvent(
            type="Warning",
            reason="EvictionThresholdMet",
            message=f"Attempting to reclaim {signal.resource.value}",
        )
        outcome = StepDecision(
            evictions=tuple(itertools.islice(victims, 1)),
            ranking=tuple(place for _, place in ranked),
            events=(event,),
            collected=collect,
            signal=signal,
            stats_ages_ns=_ages_ns(thresholds, step) if ranked else (),
        )
        if not collect:
            return outcome, None
        return outcome, NeedReclaim(
            signal=signal, containers=collect.containers, images=collect.images
        )

    def _eviction(
        self, pod: EvictionPod, threshold: Threshold, step: _Step, *, rank: int, ranked: int
    ) -> Eviction:
        seen = step.observations[threshold.signal]
        message, annotations = eviction_message(
            pod,
            step.summary.pods.get(pod.uid),
            threshold,
            seen,
            name_init_containers=self._rules.init_containers_in_messages,
        )
        soft_grace_s = self._rules.soft_grace_s(self._config, pod)
        return Eviction(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            cause=threshold.signal.value,
            grace_period_s=self._rules.immediate_grace_s if threshold.is_hard else soft_grace_s,
            message=message,
            annotations=annotations,
            evidence=ThresholdEvidence(
                threshold=str(threshold),
                available=seen.available,
                capacity=seen.capacity,
                rank=rank,
                ranked=ranked,
            ),
        )

    def _is_changed(self, before: ManagerState, outcome: StepDecision) -> bool:
        return not (outcome.is_empty and self._state.is_like(before))

    def _result(self, now_ns: int, before: ManagerState, outcome: StepDecision) -> StepResult:
        return self._answer(now_ns, outcome, changed=self._is_changed(before, outcome))

    def _answer(self, now_ns: int, outcome: StepDecision, *, changed: bool) -> StepResult:
        state = self._state
        wait_ns = CLEANUP_TIMEOUT_NS if outcome.evictions else MONITORING_INTERVAL_NS
        return StepResult(
            now_ns=now_ns,
            conditions_held=state.conditions,
            conditions=node_conditions(state.conditions),
            condition_last_observed_ns=state.condition_last_observed_ns,
            first_observed_ns=state.first_observed_ns,
            thresholds_met=state.thresholds_met,
            evictions=outcome.evictions,
            ranking=outcome.ranking,
            events=outcome.events,
            collected=outcome.collected,
            next_step_ns=now_ns + wait_ns,
            changed=changed,
            quiet=not changed and (state.is_at_rest or self._watches_nothing),
            signal=outcome.signal,
            stats_ages_ns=outcome.stats_ages_ns,
            notify_at=state.notifications.amounts,
        )


def _ages_ns(thresholds: Iterable[Threshold], step: _Step) -> tuple[tuple[Signal, int], ...]:
    """Return the age of the statistics of each threshold's signal, if they have a time."""
    times_ns = [
        (threshold.signal, step.observations[threshold.signal].time_ns) for threshold in thresholds
    ]
    return tuple((signal, step.now_ns - at_ns) for signal, at_ns in times_ns if at_ns is not None)
