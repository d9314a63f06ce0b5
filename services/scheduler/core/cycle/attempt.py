"""One pod's attempt, from top to bottom: from PreFilter to Bind, or to PostFilter.

`Attempts.schedule` is the whole of it. A scheduling cycle (`ProfileCycles`) chooses a node:
PreFilter, the nominated node, Filter, extenders and, where several nodes are left, PreScore, Score
and the host choice. Then the pod is assumed, and Reserve, Permit, PreBind and Bind run. Where no
node fits, PostFilter may make room. Preemption begins before that: the key by which an equivalent
pod's refusal is looked up (`FitError.key_after_dry_run`) needs the batch dry run. Either way the
attempt ends in a decision, with the steps that the queue receives.

Filters count nominated pods of equal or higher priority: on a node that has some, the pod must fit
with them and without them. A pod that is nominated itself is tried on its node first, even where
PreFilter excludes that node, and takes it without scoring if it fits. If it does not fit, the
node's own refusal stays in the diagnosis.

Extenders, where a session has some, are called with the nodes that pass the filters, in the
snapshot's order, and their refusals join the diagnosis. Where several nodes are left, their scores
are added to the totals.

A refusal by Reserve or Permit makes the assumed pod unschedulable and names the plugin whose events
may move it. PreBind is part of the binding cycle: its refusal names no plugin, and the assumed pod
counts as deleted. Any other status than a refusal is an error.

A pod that Permit holds stays assumed and in flight. What becomes of it is `Attempts.after_permit`:
PreBind and Bind where it is allowed; a rejection while it waits is one of Permit, by a pod that
counts as deleted. A victim of preemption that waits is rejected instead of deleted.

A `CycleRecorder` receives what a cycle leaves beside its result: phases and their times and, for
evaluations (`evaluate.py`), the verdicts about all nodes.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, ScheduleOne, schedulingCycle, schedulePod,
findNodesThatFitPod, evaluateNominatedNode, prioritizeNodes, bindingCycle, handleBindingCycleError,
handleSchedulingFailure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from services.framework.preemption.batch_dry_run import BatchDryRun
from services.framework.preemption.candidates import hashed_tie_break
from services.framework.preemption.outcome import ExtenderError
from services.framework.runtime.diagnosis import (
    NO_NODES_TEXT,
    Unschedulable,
    unschedulable_in_binding,
    unschedulable_when_assumed,
)
from services.framework.runtime.failed_cycle import FitError
from services.framework.runtime.framework import BoundPod, Framework, Held, NotBound
from services.framework.runtime.guard import PluginFailed
from services.framework.runtime.verdicts import ClassVerdicts
from services.framework.snapshot.nominations import NominatedPlace
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code, Status
from services.framework.waiting_pods import WaitingPods
from services.kube.devices import ClaimChanges
from services.kube.pod import Pod
from services.scheduler.core.cycle.extenders import EXTENDER_PLUGIN, Extenders, SentNodes
from services.scheduler.core.cycle.host_choice import HostChoice
from services.scheduler.core.decisions import Binding, Decision, Failed, HeldAtPermit, Skipped
from services.scheduler.core.queueing.mirror import QueueMirror
from services.scheduler.core.queueing.steps import (
    ERROR,
    AddUnschedulable,
    CommitPop,
    CommitUnschedulable,
    DeleteNomination,
    Done,
    Head,
    Nominate,
    QueueStep,
    WhyFailed,
)

EXTENDERS_PHASE = "Extenders"
"""The name of the phase that extenders take."""


class CycleRecorder:
    """Records a cycle's phases, and the verdicts that it read, beside its result.

    phases_ns: the time that each phase took by `stopwatch`, which returns ns of any clock; empty
    without one. PreFilter is a phase of the first attempt of an equivalence class, and of attempts
    of a class that it refuses. It runs in the first attempt, for the plugins of which no cached
    class holds a column with the pod's key; PreScore likewise, as a part of Score. Filter and Score
    update the columns of the class; they are no phases where an equivalent pod's refusal is
    repeated.

    wants_all: the cycle goes on to all nodes where upstream's returns before it has seen them.
    verdicts, sent: the results of the filters, and of extenders if they were called; None where the
    cycle ended before.
    """

    __slots__ = ("_last_ns", "_stopwatch", "phases_ns", "sent", "verdicts", "wants_all")

    def __init__(
        self, stopwatch: Callable[[], int] | None = None, *, wants_all: bool = False
    ) -> None:
        self.wants_all = wants_all
        self.verdicts: ClassVerdicts | None = None
        self.sent: SentNodes | None = None
        self.phases_ns: dict[str, int] = {}
        self._stopwatch = stopwatch
        self._last_ns = stopwatch() if stopwatch is not None else 0

    def phase(self, name: str) -> None:
        """Add the time since the last phase to that of `name`, which is the latest from now on."""
        if self._stopwatch is not None:
            now_ns = self._stopwatch()
            # Extenders that refuse a nominated node end Filter twice; the latest phase is the last.
            self.phases_ns[name] = self.phases_ns.pop(name, 0) + now_ns - self._last_ns
            self._last_ns = now_ns


CycleResult = Binding | FitError | Unschedulable | Failed
"""What a scheduling cycle comes to; after a FitError, PostFilter may still make room."""


class Attempt(NamedTuple):
    """A head and its pod, with the state that a decision may change and that an undo restores.

    framework: the plugins of the pod's profile.
    shares_refusals: whether the pod's refusal is that of every equivalent pod while nothing
    changes. A pod that is nominated itself is decided again, and so is every pod under a user's
    PostFilter plugin, which may read more of a pod than what makes it equivalent.
    """

    head: Head
    pod: Pod
    framework: Framework
    recorder: CycleRecorder
    nominated_before: NominatedPlace | None
    choice_mark: int
    shares_refusals: bool

    def decided(
        self,
        verdict: Binding | HeldAtPermit | Unschedulable | Failed,
        steps: Iterable[QueueStep],
        claims: ClaimChanges | None = None,
    ) -> Decision:
        """Return the decision that ends the attempt."""
        return Decision(
            head=self.head,
            pod=self.pod,
            verdict=verdict,
            steps=tuple(steps),
            nominated_before=self.nominated_before,
            choice_mark=self.choice_mark,
            phases_ns=self.recorder.phases_ns,
            claims=claims,
        )


class Attempts:
    """Makes attempts on one snapshot, one after the other.

    `cycles` are those of the profiles by scheduler name, which share `choice`. `seed` keys the hash
    that breaks ties, `stopwatch` returns ns of any clock. `repeats_refusals` is off where a failed
    attempt changes what later ones evaluate, as sampling nodes does, and where extenders are
    called. Ignored failures of `extenders` become warnings of the decision; None where a session
    has no extenders.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        mirror: QueueMirror,
        batch_dry_run: BatchDryRun,
        *,
        cycles: Mapping[str, ProfileCycles],
        choice: HostChoice,
        seed: int,
        repeats_refusals: bool,
        stopwatch: Callable[[], int] | None,
        extenders: Extenders | None,
        waiting: WaitingPods,
    ) -> None:
        self._snapshot = snapshot
        self._waiting = waiting
        self._mirror = mirror
        self._batch_dry_run = batch_dry_run
        self._cycles = cycles
        self._choice = choice
        self._seed = seed
        self._stopwatch = stopwatch
        self._repeats_refusals = repeats_refusals
        self._extenders = extenders
        self._bind_by_extender = None if extenders is None else extenders.bind

    def schedule(self, head: Head, pod: Pod | None, now_ns: int) -> Decision:
        """Schedule the pod of a head, and assume it on its node if it is bound.

        A pod that is gone, is being deleted or is assigned needs no scheduling any more.
        """
        self._snapshot.now_ns = now_ns
        nominated = self._snapshot.nominations.place_of(head.pop.uid)
        mark = self._choice.mark()
        if pod is None or pod.is_terminating or pod.node_name:
            return Decision(
                head=head,
                pod=pod,
                verdict=Skipped(),
                steps=(CommitPop(head.pop), Done(head.pop)),
                nominated_before=nominated,
                choice_mark=mark,
            )
        cycles = self._cycles[pod.spec.scheduler_name]
        framework = cycles.framework
        shares = not (nominated or pod.nominated_node_name) and framework.refuses_by_class
        recorder = CycleRecorder(self._stopwatch)
        attempt = Attempt(head, pod, framework, recorder, nominated, mark, shares)
        try:
            decision = self._decide(attempt, cycles, now_ns)
        except PluginFailed as error:
            recorder.phases_ns.clear()  # The phase that failed is not among them.
            decision = self._requeue(attempt, Failed(message=str(error)))
        if self._extenders is not None and (warnings := self._extenders.take_warnings()):
            return replace(decision, warnings=warnings)
        return decision

    def _decide(self, attempt: Attempt, cycles: ProfileCycles, now_ns: int) -> Decision:
        result = cycles.schedule_pod(
            attempt.pod,
            attempt.head.attempts,
            attempt.recorder,
            repeats=attempt.shares_refusals and self._repeats_refusals,
        )
        match result:
            case Binding():
                return self._assume_and_bind(attempt, result)
            case FitError():
                return self._make_room(attempt, result, now_ns)
            case Unschedulable() | Failed():
                return self._requeue(attempt, result)

    def _assume_and_bind(self, attempt: Attempt, suggested: Binding) -> Decision:
        """Assume the pod on its node and bind it.

        A queue before v1.34 returns a bound pod that changes before its binding is confirmed.
        Source: kubernetes v1.20 pkg/scheduler/internal/cache/cache.go, AssumePod.
        """
        pod, framework, nominations = attempt.pod, attempt.framework, self._snapshot.nominations
        # The pod was popped again while its binding by an earlier attempt is not confirmed yet.
        if self._snapshot.pod(pod.uid) is not None:
            problem = f"pod {pod.uid} is in the cache, so can't be assumed"
            return self._requeue(attempt, Failed(message=problem))
        self._snapshot.assume(pod, suggested.node_name)
        result = framework.reserve_and_bind(
            pod, suggested.row, suggested.node_name, self._bind_by_extender
        )
        if isinstance(result, NotBound):
            self._snapshot.forget(pod.uid)
            moves: Sequence[QueueStep] = ()
            if result.in_binding:
                moves = self._mirror.after_failed_binding(pod, suggested.node_name)
            return self._requeue(attempt, _verdict(result), moves)
        steps: list[QueueStep] = [CommitPop(attempt.head.pop)]
        if nominations.node_of(pod.uid):
            nominations.drop(pod.uid)
            steps.append(DeleteNomination(pod.uid))
        if isinstance(result, Held):
            now_ns = self._snapshot.now_ns
            self._waiting.hold(pod, suggested.node_name, result.waits, now_ns)
            return attempt.decided(HeldAtPermit(suggested), steps)
        return attempt.decided(suggested, steps, result.claims)

    def _make_room(self, attempt: Attempt, error: FitError, now_ns: int) -> Decision:
        """Run PostFilter, unless an equivalent pod was refused for the same reasons."""
        pod, framework = attempt.pod, attempt.framework
        error.batch = self._batch_dry_run
        key: Hashable = None
        if attempt.shares_refusals:
            key = error.key_after_dry_run(framework.preemptor, now_ns)
        verdict = error.verdicts.reuse_refusal(key)
        if verdict is None:
            tie_break = hashed_tie_break(
                seed=self._seed, uid=pod.uid, attempt_number=attempt.head.attempts
            )
            outcome = framework.post_filter(pod, error, tie_break=tie_break, now_ns=now_ns)
            verdict = error.diagnosis.unschedulable(outcome)
            if verdict.nomination is None and not verdict.freed and attempt.shares_refusals:
                error.verdicts.keep_refusal(key, verdict)
            verdict = self._reject_waiting(framework, verdict)
        if framework.post_filters:
            attempt.recorder.phase("PostFilter")
        return self._requeue(attempt, verdict)

    def _requeue(
        self, attempt: Attempt, verdict: Unschedulable | Failed, moves: Iterable[QueueStep] = ()
    ) -> Decision:
        """Return the pod to the queue, and change its nomination after that, as upstream does.

        Victims, and nominations of pods of lower priority, are cleared by the simulation
        (`replay/world/loop/outcomes.py`) and come back as events; there are no steps for them.

        The verdict's "" clears the nomination, its None leaves it alone.
        """
        pod, nominations = attempt.pod, self._snapshot.nominations
        why = self._note_requeued(attempt.framework, pod, verdict)
        node_name = verdict.nominated_node_name
        nominated: Sequence[QueueStep] = ()
        if node_name:
            nominations.put(pod, node_name)
            nominated = (Nominate(pod.uid, node_name),)
        elif node_name == "" and nominations.node_of(pod.uid):
            nominations.drop(pod.uid)
            nominated = (DeleteNomination(pod.uid),)
        steps = (CommitUnschedulable(attempt.head.pop, why), *nominated, *moves)
        return attempt.decided(verdict, steps)

    def _note_requeued(
        self, framework: Framework, pod: Pod, verdict: Unschedulable | Failed
    ) -> WhyFailed:
        """Note that the pod is back in the queue, and return the reason that the queue receives.

        Without a plugin that refused it, the pod waits for no plugin's events: the queue handles
        it as one whose attempt failed.
        """
        why, by_pods = ERROR, True
        if isinstance(verdict, Unschedulable):
            by_pods = framework.any_reads_beyond_nodes(verdict.plugins)
            if verdict.plugins or verdict.pending_plugins:
                reads = self._mirror.traits.registers_events
                selector = framework.selector_for_hints(pod, verdict.plugins) if reads else None
                why = WhyFailed(verdict.plugins, verdict.pending_plugins, False, selector)
        self._mirror.requeued(pod, by_pods=by_pods)
        return why

    def after_permit(
        self, held: Decision, status: Status | None, *, is_pending: bool, cycle: int
    ) -> Decision:
        """Return what becomes of a pod that has waited at Permit; `status` refuses it.

        A pod that is not pending any more is given up. `cycle` is the queue's.
        Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, bindingCycle,
        handleBindingCycleError.
        """
        assert isinstance(held.verdict, HeldAtPermit)
        binding, pod, pop = held.verdict.binding, held.attempted_pod, held.head.pop
        framework = self._cycles[pod.spec.scheduler_name].framework
        result: BoundPod | NotBound
        if status is None:
            result = framework.pre_bind_and_bind(pod, binding.node_name, self._bind_by_extender)
        else:
            result = NotBound(status, in_binding=False)
        if isinstance(result, BoundPod):
            return replace(held, verdict=binding, steps=(), claims=result.claims)
        if self._snapshot.name(binding.row) == binding.node_name:
            framework.unreserve(pod, binding.row)
        if self._snapshot.is_assumed(pod.uid):
            self._snapshot.forget(pod.uid)
        moves = self._mirror.after_failed_binding(pod, binding.node_name)
        if not is_pending:
            return replace(held, verdict=Skipped(), steps=(Done(pop), *moves))
        verdict = _verdict(result)
        why = self._note_requeued(framework, pod, verdict)
        done = (Done(pop),) if result.in_binding else ()
        steps = (*done, AddUnschedulable(pop, cycle, why), *moves)
        return replace(held, verdict=verdict, steps=steps)

    def _reject_waiting(self, framework: Framework, verdict: Unschedulable) -> Unschedulable:
        """Reject the victims that wait at Permit; the other ones are left to the API server."""
        nomination, preemptor = verdict.nomination, framework.preemptor
        if nomination is None or all(pod.uid not in self._waiting for pod in nomination.victims):
            return verdict
        victims = [pod for pod in nomination.victims if pod.uid not in self._waiting]
        name = preemptor.name if preemptor is not None else ""
        for pod in nomination.victims:
            self._waiting.reject(pod.uid, name, "preempted")
        if not victims:
            return replace(verdict, nomination=None)
        deletions = tuple(pod for pod in nomination.deletions if pod in victims)
        rest = replace(nomination, victims=tuple(victims), deletions=deletions)
        return replace(verdict, nomination=rest)


class ProfileCycles:
    """Scheduling cycles for the pods of one profile; they do not change the snapshot.

    `nominated_first` tries a pod's nominated node alone before all others, which v1.16 did not.
    `extenders` are those of the session, None where it has none.
    """

    def __init__(
        self,
        framework: Framework,
        choice: HostChoice,
        extenders: Extenders | None = None,
        *,
        nominated_first: bool = True,
    ) -> None:
        self.framework = framework
        self._nominated_first = nominated_first
        self.extenders = extenders
        self._choice = choice
        self._snapshot = framework.snapshot

    def schedule_pod(
        self,
        pod: Pod,
        attempt_number: int,
        recorder: CycleRecorder | None = None,
        *,
        repeats: bool = False,
    ) -> CycleResult:
        """Return a node for `pod`, or why no node fits; `attempt_number` keys the tie-break.

        With `repeats`, a refusal of an equivalent pod is returned where nothing has changed since.
        """
        recorder = recorder or CycleRecorder()
        if self._snapshot.node_count == 0:
            return Unschedulable(message=NO_NODES_TEXT, nominated_node_name="")
        verdicts, ran = self.framework.verdicts.pre_filtered(pod)
        refusal = verdicts.filters.pre_filter.refusal
        if ran or refusal is not None:
            recorder.phase("PreFilter")
        refused = verdicts.refusal_if_unchanged() if repeats else None
        if refused is not None:
            return refused
        if refusal is not None:
            if refusal.code is Code.ERROR:
                text = f'running PreFilter plugin "{refusal.plugin}": {refusal.message}'
                return Failed(message=text)
            recorder.verdicts = verdicts
            return FitError(pod=pod, verdicts=verdicts, diagnosis=verdicts.diagnosis())
        verdicts.sync(pod)
        row = verdicts.try_nominated_node() if self._nominated_first else None
        nominated = (
            None if row is None else self._unless_extenders_refuse(pod, row, verdicts, recorder)
        )
        if nominated is not None:
            if not recorder.wants_all:
                return nominated
            verdicts.refuser = verdicts.refuser.copy()
            verdicts.refuser[nominated.row] = 0
        result = self._best_node(pod, attempt_number, verdicts, recorder)
        return result if nominated is None or isinstance(result, Failed) else nominated

    def _unless_extenders_refuse(
        self, pod: Pod, row: int, verdicts: ClassVerdicts, recorder: CycleRecorder
    ) -> Binding | None:
        """Return the pod's nominated node, which passed the filters, if extenders accept it.

        The failure of one, as that of a filter before, leaves it to the other nodes' turn.
        """
        recorder.phase("Filter")
        if self.extenders is not None:
            refused = self.extenders.refusals_of_row(pod, row)
            recorder.phase(EXTENDERS_PHASE)
            if refused is not None:
                verdicts.tried = refused
                return None
        return Binding(node_name=pod.nominated_node_name, row=row, evaluated=1, feasible=1)

    def _best_node(
        self, pod: Pod, attempt_number: int, verdicts: ClassVerdicts, recorder: CycleRecorder
    ) -> Binding | FitError | Failed:
        """Filter all nodes, call the extenders, score the remaining nodes, and choose one.

        passed, sample, fits: int8[nodes], 0 in the rows that passed the filters, in those of them
        that are looked at, and in those that extenders leave of these.
        """
        passed = verdicts.refuser
        recorder.phase("Filter")
        failure = verdicts.filter_failure
        if failure is not None:
            text = f'running "{failure.plugin}" filter plugin: {failure.message}'
            return Failed(message=text)
        sample, looked_at = self._choice.sample(passed, self._snapshot, verdicts.tried)
        fits, scores = sample, bool(self.framework.weights)
        sent: SentNodes | None = None
        extenders = self.extenders
        if extenders is not None and (
            # Where no plugin scores, nodes are worth another score with extenders than without.
            not scores or extenders.filters_or_scores(pod)
        ):
            answer = extenders.send(pod, sample)
            recorder.phase(EXTENDERS_PHASE)
            if isinstance(answer, ExtenderError):
                return Failed(message=answer.message)
            sent, fits = answer, answer.refuser
        recorder.verdicts, recorder.sent = verdicts, sent
        feasible = len(fits) - int(np.count_nonzero(fits))
        if not feasible:
            if sent is None:
                return FitError(pod=pod, verdicts=verdicts, diagnosis=verdicts.diagnosis())
            by_filters = verdicts.sample_diagnosis(sample, is_sample=looked_at > 0)
            diagnosis = sent.diagnosis(by_filters, verdicts.filters.pre_filter)
            return FitError(pod=pod, verdicts=verdicts, diagnosis=diagnosis)
        evaluated = looked_at or verdicts.evaluated
        if sent is not None:
            evaluated -= sent.unanswered
        if feasible == 1:  # It is taken without PreScore and Score.
            row = int(np.flatnonzero(fits == 0)[0])
            return Binding(self._snapshot.name(row), row, evaluated, feasible)
        totals = verdicts.totals()
        failed = totals.synced_failure()
        if failed:
            return Failed(message=failed)
        chosen = self._choice.choose(
            totals if sent is None else sent.scored(totals, any_plugin_scores=scores),
            fits,
            self._snapshot,
            pod.uid,
            attempt_number,
        )
        if sent is not None or scores:
            recorder.phase("Score")
        return Binding(
            node_name=self._snapshot.name(chosen.row),
            row=chosen.row,
            evaluated=evaluated,
            feasible=feasible,
            tied=chosen.tied,
            total=chosen.total,
        )


def _verdict(not_bound: NotBound) -> Unschedulable | Failed:
    """Return the verdict with which an assumed pod that was not bound is requeued."""
    status = not_bound.status
    if not status.code.is_rejected:
        return Failed(message=_failure_text(status))
    if not_bound.in_binding:
        return unschedulable_in_binding(status)
    return unschedulable_when_assumed(status)


def _failure_text(status: Status) -> str:
    if status.code is Code.SKIP:
        return "no Bind plugin took the pod"
    if status.plugin == EXTENDER_PLUGIN:
        return status.message
    return f"running plugin {status.plugin!r}: {status.message}"
