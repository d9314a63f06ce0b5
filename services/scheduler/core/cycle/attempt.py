"""One pod's attempt, told once and top to bottom: from PreFilter to Bind, or to PostFilter.

`Attempts.schedule` is the whole of it. The scheduling cycle of the pod's profile (`Cycle`) chooses
a node: PreFilter, the nominated node, Filter, extenders, Score, the host choice. Then the pod is
assumed, and Reserve, Permit, PreBind and Bind run. Where no node fits, PostFilter may make room.
Either way the attempt ends in a decision, with the steps that the queue receives.

Filters count nominated pods of equal or higher priority: on a node that has some, the pod must fit
with them and without them. A pod that is nominated itself is tried on its node first, even where
PreFilter excludes that node, and takes it without scoring if it fits. If it does not fit, the
node's own refusal stays in the diagnosis.

Extenders, where a session has some, are called with the nodes that pass the filters, in the
snapshot's order, and their refusals join the diagnosis. Where several nodes are left, their scores
are added to the totals.

A refusal by Reserve or Permit makes the assumed pod unschedulable and names the plugin whose events
may move it. PreBind is part of the binding cycle: its refusal names no plugin, and the assumed pod
counts as deleted. Any other status than a refusal is an error; so is WAIT, which is not supported.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, schedulingCycle, schedulePod,
findNodesThatFitPod, evaluateNominatedNode, prioritizeNodes, bindingCycle, handleBindingCycleError,
handleSchedulingFailure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from services.framework.columns.kernels import Int8s
from services.framework.preemption.outcome import CannotHelp
from services.framework.preemption.outcome import Nominate as Nomination
from services.framework.preemption.pick import hashed_tie_break
from services.framework.preemption.preemptor import ExtenderError
from services.framework.runtime.diagnosis import (
    NO_NODES_TEXT,
    Diagnosis,
    Refused,
    fit_error_text,
    reason_counts,
    refused_by_pre_filter,
    refused_when_assumed,
)
from services.framework.runtime.framework import Framework
from services.framework.runtime.guard import PluginFailed
from services.framework.runtime.verdicts import (
    CachedAttempt,
    EquivalenceClass,
    NodeDryRun,
    overridden_by,
    still_tried,
)
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import SUCCESS, Code, Status
from services.kube.pod import Pod
from services.scheduler.core.cycle.batch_dry_run import BatchDryRun
from services.scheduler.core.cycle.cached_refusals import CachedRefusals
from services.scheduler.core.cycle.extenders import Extenders
from services.scheduler.core.cycle.failed_cycle import SnapshotFailedCycle
from services.scheduler.core.cycle.host_choice import ChosenNode, HostChoice, SampledChoice
from services.scheduler.core.cycle.sent_nodes import SentNodes
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

_ERROR = WhyFailed(is_error=True)
EXTENDERS_PHASE = "Extenders"
"""The name of the phase that extenders take."""


class ScheduleResult(NamedTuple):
    """A node to take.

    `feasible` of `evaluated` nodes fitted, and `tied` of them had the best `total`, which is None
    where the pod was not scored. `phases_ns` holds what the stopwatch measured, by extension point:
    those that ran. PreFilter runs for the first pod of an equivalence class, and Filter and Score
    update the columns of the class.
    """

    node_name: str
    row: int
    evaluated: int
    feasible: int
    tied: int = 1
    total: int | None = None
    phases_ns: Mapping[str, int] = NOT_MEASURED


@dataclass(frozen=True, slots=True, kw_only=True)
class FitError:
    """No node fits; preemption may be tried."""

    diagnosis: Diagnosis
    phases_ns: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoNodesAvailable:
    """The snapshot has no node at all; nothing can be preempted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleError:
    """A plugin failed, which ends the cycle; `message` names it, as upstream does."""

    message: str
    phases_ns: Mapping[str, int] = field(default_factory=dict)


class StartedCycle(NamedTuple):
    """A cycle after PreFilter."""

    cached: CachedAttempt
    timer: PhaseTimer


CycleResult = ScheduleResult | FitError | NoNodesAvailable | CycleError


@dataclass(frozen=True, slots=True, kw_only=True)
class NotBound:
    """The assumed pod is not bound; `in_binding` is set where PreBind or Bind refused it."""

    verdict: Refused | Failed
    in_binding: bool


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
            reads = self._queue.registers_events
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


class Cycle:
    """The scheduling cycle of one profile: a node for a pod; the snapshot is not changed.

    `nominated_first` tries a pod's nominated node alone before all others, which v1.16 did not.
    `extenders` are those of the session, maybe none. `stopwatch` returns ns of any clock; without
    one nothing is measured.
    """

    def __init__(
        self,
        framework: Framework,
        choice: HostChoice,
        extenders: Extenders | None = None,
        *,
        nominated_first: bool = True,
        stopwatch: Callable[[], int] | None = None,
    ) -> None:
        self.framework = framework
        self.nominated_first = nominated_first
        self.extenders = extenders or None
        self._choice = choice
        self._snapshot = framework.snapshot
        self._stopwatch = stopwatch

    def schedule_pod(self, pod: Pod, attempt: int) -> CycleResult:
        """Return a node for `pod`, or why no node fits; `attempt` keys the tie-break."""
        started = self.begin(pod)
        return NoNodesAvailable() if started is None else self.complete(pod, attempt, started)

    def begin(self, pod: Pod) -> StartedCycle | None:
        """Run PreFilter, unless an equivalent pod did before; None where there is no node."""
        if self._snapshot.node_count == 0:
            return None
        timer = PhaseTimer(self._stopwatch)
        cached, ran = self.framework.pre_filtered(pod)
        if ran or cached.equivalence.pre_filter.refusal is not None:
            timer.record("PreFilter")
        return StartedCycle(cached, timer)

    def complete(
        self, pod: Pod, attempt: int, started: StartedCycle
    ) -> ScheduleResult | FitError | CycleError:
        """Finish a cycle that `begin` started."""
        cached, timer = started
        refusal = cached.equivalence.pre_filter.refusal
        if refusal is not None:
            message = _pre_filter_error(refusal)
            if message:
                return CycleError(message=message, phases_ns=timer.phases_ns)
            alive = self._snapshot.columns.alive
            diagnosis = refused_by_pre_filter(cached.equivalence.pre_filter, alive)
            return FitError(diagnosis=diagnosis, phases_ns=timer.phases_ns)
        cached.sync(pod)
        tried = self._nominated_node(pod, cached.equivalence, timer)
        if isinstance(tried, ScheduleResult):
            return tried
        return self._all_nodes(pod, attempt, cached, tried, timer)

    def _nominated_node(
        self, pod: Pod, equivalence: EquivalenceClass, timer: PhaseTimer
    ) -> ScheduleResult | dict[int, Status]:
        """Return the nominated node if the pod fits there, else its refusal by row.

        A failure there, of a filter or an extender, leaves it to the other nodes' turn.
        """
        tried = (
            try_nominated_node(self._snapshot, pod, equivalence) if self.nominated_first else None
        )
        if tried is None:
            return {}
        row, refusal = tried
        if refusal is not None:
            return {row: refusal} if refusal.code.is_rejected else {}
        timer.record("Filter")
        if self.extenders is not None:
            refused = self.extenders.refusals_of_row(pod, row)
            timer.record(EXTENDERS_PHASE)
            if refused is not None:
                return refused
        return ScheduleResult(
            node_name=pod.nominated_node_name,
            row=row,
            evaluated=1,
            feasible=1,
            phases_ns=timer.phases_ns,
        )

    def _all_nodes(
        self,
        pod: Pod,
        attempt: int,
        cached: CachedAttempt,
        tried: dict[int, Status],
        timer: PhaseTimer,
    ) -> ScheduleResult | FitError | CycleError:
        """Filter all nodes, call the extenders, score what is left, and choose.

        tried: the refusal of the nominated node, by row.
        """
        equivalence, overridden = cached.equivalence, cached.overridden
        refuser = overridden_by(equivalence.refuser, overridden)
        timer.record("Filter")
        message = filter_error(equivalence, refuser, overridden)
        if message:
            return CycleError(message=message, phases_ns=timer.phases_ns)
        extenders = self.extenders
        if extenders is not None and (
            # Where no plugin scores, nodes are worth another score with extenders than without.
            not self.framework.weights or extenders.filter_or_score(pod)
        ):
            return self._extended(pod, attempt, cached, refuser, tried, extenders, timer)
        message = score_error(equivalence, refuser)
        if message:
            return CycleError(message=message, phases_ns=timer.phases_ns)
        chosen = self._choice.choose(
            equivalence, refuser, self._snapshot, pod.uid, attempt, tried=tuple(tried)
        )
        if chosen.feasible > 1 and self.framework.weights:
            timer.record("Score")
        if chosen.row < 0:
            diagnosis = cached.diagnosis(pod, tried)
            return FitError(diagnosis=diagnosis, phases_ns=timer.phases_ns)
        evaluated = chosen.looked_at or self._evaluated(equivalence, tried)
        return self._result(chosen, evaluated, timer)

    def _extended(
        self,
        pod: Pod,
        attempt: int,
        cached: CachedAttempt,
        refuser: Int8s,
        tried: dict[int, Status],
        extenders: Extenders,
        timer: PhaseTimer,
    ) -> ScheduleResult | FitError | CycleError:
        """Send the nodes that passed the filters to the extenders, score what they leave."""
        equivalence, choice = cached.equivalence, self._choice
        sample, looked_at = refuser, 0
        if isinstance(choice, SampledChoice):
            sample, looked_at = choice.sample(refuser, self._snapshot, tuple(tried))
            choice = choice.inner
        sent = SentNodes(extenders, self._snapshot, pod, sample)
        failure = sent.filter()
        timer.record(EXTENDERS_PHASE)
        if failure is not None:
            return CycleError(message=failure.message, phases_ns=timer.phases_ns)
        if not sent.left:
            diagnosis = sent.diagnosis(cached, tried, is_sample=looked_at > 0)
            return FitError(diagnosis=diagnosis, phases_ns=timer.phases_ns)
        left = sent.refuser()
        message = score_error(equivalence, left)
        if message:
            return CycleError(message=message, phases_ns=timer.phases_ns)
        totals = sent.scored(equivalence, any_plugin_scores=bool(self.framework.weights))
        chosen = choice.choose(totals, left, self._snapshot, pod.uid, attempt)
        if chosen.feasible > 1:
            timer.record("Score")
        evaluated = (looked_at or self._evaluated(equivalence, tried)) - sent.unanswered()
        return self._result(chosen, evaluated, timer)

    def _result(self, chosen: ChosenNode, evaluated: int, timer: PhaseTimer) -> ScheduleResult:
        return ScheduleResult(
            node_name=self._snapshot.name(chosen.row),
            row=chosen.row,
            evaluated=evaluated,
            feasible=chosen.feasible,
            tied=chosen.tied,
            total=chosen.total if chosen.feasible > 1 else None,
            phases_ns=timer.phases_ns,
        )

    def _evaluated(self, equivalence: EquivalenceClass, tried: Mapping[int, Status]) -> int:
        if equivalence.pre_filter.node_names is None:
            return self._snapshot.node_count
        return int(np.count_nonzero(equivalence.refuser >= 0)) + len(
            still_tried(tried, equivalence.refuser)
        )


def try_nominated_node(
    snapshot: Snapshot, pod: Pod, equivalence: EquivalenceClass
) -> tuple[int, Status | None] | None:
    """Return the row of the pod's nominated node and how its filters refuse the pod, if they do.

    None without a nominated node in the snapshot. PreFilter's choice of nodes is disregarded.
    Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, evaluateNominatedNode.
    """
    row = snapshot.row(pod.nominated_node_name) if pod.nominated_node_name else None
    return None if row is None else (row, NodeDryRun(pod, row, equivalence, snapshot).refusal())


def _pre_filter_error(refusal: Status | None) -> str:
    if refusal is None or refusal.code is not Code.ERROR:
        return ""
    return f'running PreFilter plugin "{refusal.plugin}": {refusal.message}'


def filter_error(
    equivalence: EquivalenceClass, refuser: Int8s, overridden: Mapping[int, Status]
) -> str:
    """Return how a filter failed, "" where none did; a node refused before it hides that."""
    if not overridden and not equivalence.can_fail:
        return ""
    statuses = [status for status in overridden.values() if status.code is Code.ERROR]
    failure = statuses[0] if statuses else equivalence.filter_failure(refuser)
    return filter_error_text(failure) if failure else ""


def filter_error_text(failure: Status) -> str:
    """Return the message of a cycle that a filter's failure ends."""
    return f'running "{failure.plugin}" filter plugin: {failure.message}'


def score_error(equivalence: EquivalenceClass, refuser: Int8s) -> str:
    """Return how scoring fails, "" where it does not or where one node at most is to be scored."""
    return equivalence.score_failure if len(refuser) - np.count_nonzero(refuser) > 1 else ""


class PhaseTimer:
    """Times phases by a stopwatch; measures nothing without one."""

    __slots__ = ("_last", "_stopwatch", "phases_ns")

    def __init__(self, stopwatch: Callable[[], int] | None) -> None:
        self._stopwatch = stopwatch
        self._last = stopwatch() if stopwatch is not None else 0
        self.phases_ns: dict[str, int] = {}

    def record(self, phase: str) -> None:
        """Record the time since the last record as that of `phase`."""
        if self._stopwatch is None:
            return
        now = self._stopwatch()
        self.phases_ns[phase] = now - self._last
        self._last = now


def reserve_and_bind(
    framework: Framework, pod: Pod, suggested: ScheduleResult, extenders: Extenders
) -> NotBound | None:
    """Run Reserve, Permit, PreBind and Bind for an assumed pod; None where it is to be bound.

    An extender that binds comes before the plugins that do.

    Where it may not, everything is unreserved when this returns.
    """
    status = framework.reserve(pod, suggested.row)
    if status is not None:
        return NotBound(verdict=_in_scheduling(status), in_binding=False)
    status = framework.permit(pod, suggested.row)
    if status is not None:
        framework.unreserve(pod, suggested.row)
        return NotBound(verdict=_in_scheduling(status), in_binding=False)
    status = framework.pre_bind(pod, suggested.node_name)
    if status is None:
        by_extender = extenders.bind(pod, suggested.node_name)
        if isinstance(by_extender, ExtenderError):
            framework.unreserve(pod, suggested.row)
            return NotBound(verdict=Failed(message=by_extender.message), in_binding=True)
        bound = SUCCESS if by_extender else framework.bind(pod, suggested.node_name)
        status = None if bound.code is Code.SUCCESS else bound
    if status is not None:
        framework.unreserve(pod, suggested.row)
        return NotBound(verdict=_in_binding(status), in_binding=True)
    return None


def _in_scheduling(status: Status) -> Refused | Failed:
    if not status.code.is_rejected:
        return _failed(status)
    diagnosis = refused_when_assumed(status)
    reasons = reason_counts(diagnosis)
    return Refused(
        message=fit_error_text(diagnosis, reasons=reasons),
        plugins=diagnosis.unschedulable_plugins,
        pending_plugins=diagnosis.pending_plugins,
        nominated_node_name="",
        reasons=reasons,
    )


def _in_binding(status: Status) -> Refused | Failed:
    if not status.code.is_rejected:
        return _failed(status)
    reasons = tuple((reason, 1) for reason in status.reasons)
    return Refused(message=status.message, nominated_node_name="", reasons=reasons)


def _failed(status: Status) -> Failed:
    if status.code is Code.SKIP:
        return Failed(message="no Bind plugin took the pod")
    waits = status.code is Code.WAIT
    message = "waiting at Permit is not served" if waits else status.message
    return Failed(message=f"running plugin {status.plugin!r}: {message}")


def _nominated(outcome: Nomination | CannotHelp | None) -> str | None:
    """Return status.nominatedNodeName to write: "" clears it, None leaves it alone."""
    if isinstance(outcome, Nomination):
        return outcome.node
    return "" if outcome is not None and outcome.clear_nomination else None
