"""One pod's attempt, from its scheduling cycle to the steps that the queue receives.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, schedulingCycle, handleSchedulingFailure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

from services.framework.preemption.outcome import CannotHelp
from services.framework.preemption.outcome import Nominate as Nomination
from services.framework.preemption.pick import hashed_tie_break
from services.framework.preemption.preemptor import no_extenders
from services.framework.runtime.cached_attempt import CachedAttempt
from services.framework.runtime.diagnosis import (
    NO_NODES_TEXT,
    Diagnosis,
    Refused,
    fit_error_text,
    reason_counts,
)
from services.framework.runtime.framework import Framework
from services.framework.runtime.guard import PluginFailed
from services.framework.snapshot.snapshot import Snapshot
from services.kube.pod import Pod, PreemptionPolicy
from services.scheduler.core.cycle.batch_dry_run import BatchDryRun
from services.scheduler.core.cycle.cycle import (
    Cycle,
    CycleError,
    FitError,
    NotBound,
    ScheduleResult,
    reserve_and_bind,
)
from services.scheduler.core.cycle.extenders import Extenders
from services.scheduler.core.cycle.failed_cycle import SnapshotFailedCycle
from services.scheduler.core.decisions import NOT_MEASURED, Attempt, Binding, Decision, Failed
from services.scheduler.core.queueing import events
from services.scheduler.core.queueing.mirror import QueueMirror, QueueTraits
from services.scheduler.core.queueing.steps import (
    CommitPop,
    CommitUnschedulable,
    DeleteNomination,
    Nominate,
    QueueStep,
    WhyFailed,
)

_KEPT_MAX = 16
_ERROR = WhyFailed(is_error=True)


class Attempts:
    """Makes attempts on one snapshot, one after the other.

    `seed` keys the hash that breaks ties, `stopwatch` returns ns of any clock. `keeps_refusals` is
    off where a failed attempt changes what later ones evaluate, as sampling nodes does, and where
    extenders are called. Ignored failures of `extenders` become warnings of the decision.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        mirror: QueueMirror,
        batch_dry_run: BatchDryRun,
        *,
        queue: QueueTraits,
        seed: int,
        keeps_refusals: bool,
        stopwatch: Callable[[], int] | None,
        extenders: Extenders,
    ) -> None:
        self._snapshot = snapshot
        self._mirror = mirror
        self._batch_dry_run = batch_dry_run
        self._queue = queue
        self._seed = seed
        self._stopwatch = stopwatch
        self._refusals: dict[str, CachedRefusals] = {}
        self._keeps_refusals = keeps_refusals
        self._extenders = extenders

    def schedule(self, cycle: Cycle, attempt: Attempt, pod: Pod, now_ns: int) -> Decision:
        """Decide what becomes of a pod, and assume it where it is bound."""
        try:
            decision = self._decided(cycle, attempt, pod, now_ns)
        except PluginFailed as error:
            decision = self._give_back(cycle.framework, attempt, pod, Failed(message=str(error)))
        warnings = self._extenders.take_warnings()
        return replace(decision, warnings=warnings) if warnings else decision

    def _decided(self, cycle: Cycle, attempt: Attempt, pod: Pod, now_ns: int) -> Decision:
        started = cycle.begin(pod)
        if started is None:
            refused = Refused(message=NO_NODES_TEXT, nominated_node_name="")
            return self._give_back(cycle.framework, attempt, pod, refused)
        if self._keeps_refusals:
            cached = self._refusals_of(cycle.framework).unchanged(pod, started.cached)
            if cached is not None:
                return self._give_back(cycle.framework, attempt, pod, cached)
        result = cycle.complete(pod, attempt.head.attempts, started)
        match result:
            case ScheduleResult():
                return self._assume(cycle.framework, attempt, pod, result)
            case CycleError(message=message, phases_ns=phases_ns):
                return self._give_back(
                    cycle.framework, attempt, pod, Failed(message=message), phases_ns
                )
            case FitError():
                return self._refuse(cycle.framework, attempt, pod, started.cached, result, now_ns)

    def _refusals_of(self, framework: Framework) -> CachedRefusals:
        name = framework.profile.scheduler_name
        found = self._refusals.get(name)
        if found is None:
            found = self._refusals[name] = CachedRefusals(framework)
        return found

    def _assume(
        self, framework: Framework, attempt: Attempt, pod: Pod, suggested: ScheduleResult
    ) -> Decision:
        """Assume the pod on its node and bind it.

        A queue before v1.34 returns a bound pod that changes before its binding is confirmed.
        Source: kubernetes v1.20 pkg/scheduler/internal/cache/cache.go, AssumePod.
        """
        if self._snapshot.pod(pod.uid) is not None:
            problem = f"pod {pod.uid} is in the cache, so can't be assumed"
            return self._give_back(
                framework, attempt, pod, Failed(message=problem), suggested.phases_ns
            )
        self._snapshot.assume(pod, suggested.node_name)
        not_bound = reserve_and_bind(framework, pod, suggested, self._extenders)
        if not_bound is not None:
            self._snapshot.forget(pod.uid)
            return self._give_back_unbound(framework, attempt, pod, not_bound, suggested)
        steps: list[QueueStep] = [CommitPop(attempt.head.pop)]
        if self._snapshot.nominations.node_of(pod.uid):
            self._snapshot.nominations.drop(pod.uid)
            steps.append(DeleteNomination(pod.uid))
        binding = Binding(
            node_name=suggested.node_name,
            row=suggested.row,
            evaluated=suggested.evaluated,
            feasible=suggested.feasible,
            tied=suggested.tied,
            total=suggested.total,
        )
        return attempt.decided(binding, steps, suggested.phases_ns)

    def _give_back_unbound(
        self,
        framework: Framework,
        attempt: Attempt,
        pod: Pod,
        not_bound: NotBound,
        suggested: ScheduleResult,
    ) -> Decision:
        moves = not_bound.in_binding and self._queue.moves_after_failed_binding
        after = (events.after_failed_binding(pod, suggested.node_name),) if moves else ()
        phases_ns = suggested.phases_ns
        return self._give_back(framework, attempt, pod, not_bound.verdict, phases_ns, after)

    def _refuse(
        self,
        framework: Framework,
        attempt: Attempt,
        pod: Pod,
        cached: CachedAttempt,
        result: FitError,
        now_ns: int,
    ) -> Decision:
        diagnosis = result.diagnosis
        began = self._stopwatch() if self._stopwatch else 0
        failed = SnapshotFailedCycle(pod, framework, diagnosis, self._batch_dry_run, cached)
        refusals = self._refusals_of(framework)
        key = refusals.key(pod, diagnosis, failed, now_ns)
        refused = refusals.alike(cached, key)
        if refused is None:
            refused = self._refused(framework, attempt, pod, failed, diagnosis, now_ns)
            if refused.nomination is None:
                refusals.keep(pod, cached, key, refused)
        phases = dict(result.phases_ns)
        if self._stopwatch and framework.post_filters:
            phases["PostFilter"] = self._stopwatch() - began
        return self._give_back(framework, attempt, pod, refused, phases)

    def _refused(
        self,
        framework: Framework,
        attempt: Attempt,
        pod: Pod,
        failed: SnapshotFailedCycle,
        diagnosis: Diagnosis,
        now_ns: int,
    ) -> Refused:
        """Run PostFilter, and describe what became of it."""
        outcome = framework.post_filter(
            pod,
            failed,
            tie_break=hashed_tie_break(seed=self._seed, uid=pod.uid, attempt=attempt.head.attempts),
            now_ns=now_ns,
        )
        message = outcome.message if isinstance(outcome, CannotHelp) else ""
        reasons = reason_counts(diagnosis)
        return Refused(
            message=fit_error_text(diagnosis, message, reasons),
            plugins=diagnosis.unschedulable_plugins,
            pending_plugins=diagnosis.pending_plugins,
            preemption_message=message,
            nominated_node_name=_nominated(outcome),
            nomination=outcome if isinstance(outcome, Nomination) else None,
            reasons=reasons,
        )

    def _give_back(
        self,
        framework: Framework,
        attempt: Attempt,
        pod: Pod,
        verdict: Refused | Failed,
        phases_ns: Mapping[str, int] = NOT_MEASURED,
        after: Iterable[QueueStep] = (),
    ) -> Decision:
        """Requeue the pod, then nominate it or clear its nomination, in upstream's order.

        A failed attempt waits for no plugin.
        """
        why = _ERROR
        if isinstance(verdict, Refused) and (verdict.plugins or verdict.pending_plugins):
            reads = self._queue.is_v134
            selector = framework.selector_for_hints(pod, verdict.plugins) if reads else None
            why = WhyFailed(verdict.plugins, verdict.pending_plugins, False, selector)
        self._mirror.requeued(pod)
        cleared = self._nominate(pod, verdict.nominated_node_name)
        steps = (CommitUnschedulable(attempt.head.pop, why), *cleared, *after)
        return attempt.decided(verdict, steps, phases_ns)

    def _nominate(self, pod: Pod, node_name: str | None) -> Sequence[QueueStep]:
        """Nominate the pod to a node; "" clears its nomination, None leaves it alone."""
        if node_name:
            self._snapshot.nominations.put(pod, node_name)
            return (Nominate(pod.uid, node_name),)
        if node_name == "" and self._snapshot.nominations.node_of(pod.uid):
            self._snapshot.nominations.drop(pod.uid)
            return (DeleteNomination(pod.uid),)
        return ()


def _nominated(outcome: Nomination | CannotHelp | None) -> str | None:
    """Return status.nominatedNodeName to write: "" clears it, None leaves it alone."""
    if isinstance(outcome, Nomination):
        return outcome.node
    return "" if outcome is not None and outcome.clear_nomination else None


class CachedRefusals:
    """Refusals under one profile, for as long as what they follow from is the same.

    Equivalent pods are refused for the same reasons, and preemption that cannot help one of them
    cannot help the others. A refusal holds while nothing at all has changed. Its message is the
    same while equally many nodes are refused for the same reasons, and preemption fails on equally
    many for the same. A pod that is nominated itself, and one for which room can be made, are
    always decided again. Each equivalence class keeps its latest refusals.
    """

    __slots__ = ("_holds", "_preemptor", "_snapshot")

    def __init__(self, framework: Framework) -> None:
        plugins = framework.post_filters
        self._snapshot = framework.snapshot
        self._preemptor = framework.preemptor
        self._holds = all(plugin.follows_from_class for plugin in plugins)

    def unchanged(self, pod: Pod, cached: CachedAttempt) -> Refused | None:
        """Return the last refusal of an equivalent pod if nothing has changed since."""
        if cached.refused is None or not self._follows(pod):
            return None
        version, refused = cached.refused
        return refused if version == self._snapshot.version else None

    def alike(self, cached: CachedAttempt, key: Hashable) -> Refused | None:
        """Return the refusal of an equivalent pod that had the same `key`."""
        refused = None if key is None else cached.refusals.get(key)
        if refused is not None:
            cached.refused = (self._snapshot.version, refused)
        return refused

    def keep(self, pod: Pod, cached: CachedAttempt, key: Hashable, refused: Refused) -> None:
        """Keep a refusal without a nomination."""
        if not self._follows(pod):
            return
        cached.refused = (self._snapshot.version, refused)
        if key is not None:
            if len(cached.refusals) >= _KEPT_MAX:
                cached.refusals.clear()
            cached.refusals[key] = refused

    def key(
        self, pod: Pod, diagnosis: Diagnosis, cycle: SnapshotFailedCycle, now_ns: int
    ) -> Hashable:
        """Return what a refusal's message follows from, None where that is more than this."""
        preemptor = self._preemptor
        if diagnosis.key is None or not self._follows(pod):
            return None
        if preemptor is None or pod.spec.preemption_policy is PreemptionPolicy.NEVER:
            return (diagnosis.key, ())
        batch = cycle.batch_dry_run(now_ns) if preemptor.extenders is no_extenders else None
        return None if batch is None or len(batch.rows) else (diagnosis.key, batch.key)

    def _follows(self, pod: Pod) -> bool:
        """Return whether the pod's refusal follows from its class; else it is decided again.

        A user's PostFilter plugin may read more of a pod than what makes it equivalent.
        """
        nominated = pod.nominated_node_name or self._snapshot.nominations.node_of(pod.uid)
        return self._holds and not nominated
