"""The scheduler without its wires: events and heads in, queue steps and decisions out.

It keeps the snapshot and the pods that wait, decides one head after the other as if each had been
popped, and can take back what it decided beyond the prefix that the queue accepted. What a
decision asks of the world is answered later; until then a bound pod is assumed.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, ScheduleOne, schedulingCycle,
handleSchedulingFailure, handleBindingCycleError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from services.kube.budget import PodDisruptionBudget
from services.kube.node import Node
from services.kube.pod import Pod
from services.scheduler.core import events
from services.scheduler.core.cycle import Cycle, NoNodes, Suggested, Unschedulable
from services.scheduler.core.decisions import (
    NOT_MEASURED,
    Attempt,
    Binding,
    Decision,
    Failed,
    Refused,
    Skipped,
    Stage,
)
from services.scheduler.core.diagnosis import NO_NODES_TEXT, fit_error_text, reason_counts
from services.scheduler.core.failed_cycle import SnapshotFailedCycle
from services.scheduler.core.framework import Framework
from services.scheduler.core.pod_evaluation import PodEvaluation, evaluate_pod
from services.scheduler.core.preemption import aftermath
from services.scheduler.core.preemption.outcome import CannotHelp
from services.scheduler.core.preemption.outcome import Nominate as Nomination
from services.scheduler.core.preemption.pick import hashed_tie_break
from services.scheduler.core.preemption.preemptor import Preemptor
from services.scheduler.core.profile import DEFAULT_PROFILE, Profile
from services.scheduler.core.queue_mirror import QueueMirror
from services.scheduler.core.queue_steps import (
    Activate,
    AddUnschedulable,
    CommitPop,
    DeleteNomination,
    Done,
    Head,
    Nominate,
    PopId,
    QueueStep,
)
from services.scheduler.core.rules import QueueRules, Rules
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.core.status import Status
from services.scheduler.core.surveyor import Surveyor

PREEMPTION_PLUGIN = "DefaultPreemption"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a scheduler decides; `seed` keys the hash that breaks ties."""

    rules: Rules
    queue: QueueRules
    seed: int = 0
    profiles: tuple[Profile, ...] = (DEFAULT_PROFILE,)
    disable_preemption: bool = False


class Scheduler:
    """One session's scheduler; `stopwatch` returns ns of any clock and is never decided by."""

    def __init__(self, options: Options, *, stopwatch: Callable[[], int] | None = None) -> None:
        self._options = options
        self._queue = options.queue
        self._stopwatch = stopwatch
        self.snapshot = Snapshot()
        self._choice = options.rules.host_choice(options.seed)
        self._cycles = {
            profile.scheduler_name: Cycle(
                Framework(self.snapshot, profile),
                self._choice,
                nominated_first=options.rules.nominated_first,
                stopwatch=stopwatch,
            )
            for profile in options.profiles
        }
        self._preempting = {
            profile.scheduler_name
            for profile in options.profiles
            if not options.disable_preemption
            and any(each.name == PREEMPTION_PLUGIN for each in profile.plugins)
        }
        self._preemptor = Preemptor(rules=options.rules.preemption)
        self._surveyor = Surveyor(self.snapshot, options.rules.preemption)
        self.pods: dict[str, Pod] = {}
        self._mirror = QueueMirror(self.snapshot.nominations, options.queue, self._is_gated)
        self._unanswered: dict[PopId, Decision] = {}
        self._latest_cycle = 0

    # Cluster events

    def put_pod(self, new: Pod) -> list[QueueStep]:
        """Take a pod that came or changed; answer what the queue is told."""
        old = self.pods.get(new.uid)
        assumed = self.snapshot.pod(new.uid) if self.snapshot.is_assumed(new.uid) else None
        self.pods[new.uid] = new
        effects = events.on_pod(
            old,
            new,
            handlers=self._queue.handlers,
            scheduler_names=self._cycles,
            assumed=assumed,
        )
        self._change_snapshot(effects.snapshot, new)
        return self._mirror.follow(effects.operations)

    def remove_pod(self, uid: str) -> list[QueueStep]:
        """Take a pod that went; an unknown one is passed over."""
        old = self.pods.pop(uid, None)
        if old is None:
            return []
        effects = events.on_pod(
            old, None, handlers=self._queue.handlers, scheduler_names=self._cycles
        )
        self._change_snapshot(effects.snapshot, old)
        return self._mirror.follow(effects.operations)

    def put_node(self, node: Node) -> list[QueueStep]:
        """Take a node that came or changed."""
        row = self.snapshot.row(node.name)
        old = self.snapshot.node(row) if row is not None else None
        self.snapshot.set_node(node)
        if old is None:
            return list(events.on_node_added(node))
        return list(events.on_node_updated(old, node, handlers=self._queue.handlers))

    def remove_node(self, name: str) -> list[QueueStep]:
        """Take a node that went; an unknown one is passed over."""
        row = self.snapshot.row(name)
        if row is None:
            return []
        node = self.snapshot.node(row)
        self.snapshot.remove_node(name)
        return list(events.on_node_deleted(node, handlers=self._queue.handlers))

    def put_budget(self, budget: PodDisruptionBudget) -> list[QueueStep]:
        """Take a budget's state; no pod waits for that."""
        self.snapshot.set_budget(budget)
        return []

    def remove_budget(self, namespace: str, name: str) -> list[QueueStep]:
        """Take a budget that went; no pod waits for that."""
        self.snapshot.remove_budget(namespace, name)
        return []

    # Scheduling

    def decide(self, head: Head, now_ns: int) -> Decision:
        """Decide what becomes of the queue's next pod, and change the snapshot accordingly."""
        self._latest_cycle = max(self._latest_cycle, head.pop.cycle)
        pod = self.pods.get(head.pop.uid)
        if pod is None or pod.is_terminating or pod.node_name:
            steps = (CommitPop(head.pop), Done(head.pop))
            return self._before(head, pod).decided(Skipped(), steps)
        attempt = self._before(head, pod)
        decision = self._schedule(attempt, pod, now_ns)
        self._unanswered[head.pop] = decision
        return decision

    def _before(self, head: Head, pod: Pod | None) -> Attempt:
        nominated = self.snapshot.nominations.node_of(head.pop.uid)
        return Attempt(head, pod, nominated, self._choice.mark())

    def undo(self, decisions: Sequence[Decision]) -> None:
        """Take back decisions whose pops the queue did not accept, the latest first."""
        for decision in reversed(decisions):
            self._unanswered.pop(decision.head.pop, None)
            self._choice.reset(decision.choice_mark)
            if decision.pod is None:
                continue
            if isinstance(decision.verdict, Binding):
                self._release(decision)
            if decision.nominated_before:
                self.snapshot.nominations.put(decision.pod, decision.nominated_before)
            else:
                self.snapshot.nominations.drop(decision.pod.uid)

    # Answers

    def answer(self, pop: PopId, stage: Stage | None, index: int = 0) -> list[QueueStep]:
        """Take what became of a decision: `stage` is what was refused, None where nothing was.

        `index` is the refused victim's place among the deletions. An unknown pop is passed over.
        """
        decision = self._unanswered.pop(pop, None)
        if decision is None:
            return []
        if isinstance(decision.verdict, Binding):
            if stage is None:
                self._framework(decision).post_bind(decision.bound_pod, decision.verdict.node_name)
                return [Done(pop)]
            return self._binding_refused(decision)
        nomination = decision.nomination
        if stage is None or nomination is None or decision.pod is None:
            return []
        if stage is Stage.NOMINATE:
            after = aftermath.after_status_refused(nomination, self._options.rules.preemption)
        else:
            after = aftermath.after_deletion_refused(
                nomination, index, self._options.rules.preemption
            )
        return list(self._after_refusal(after, pop.uid))

    # What people look at

    def evaluate(self, pod: Pod, attempt: int, now_ns: int) -> PodEvaluation:
        """Return every verdict about a pending pod as things stand; nothing is changed."""
        name = pod.spec.scheduler_name
        mark = self._choice.mark()
        found = evaluate_pod(
            self._cycles[name],
            pod,
            attempt=attempt,
            now_ns=now_ns,
            preemptor=self._preemptor if name in self._preempting else None,
            seed=self._options.seed,
        )
        self._choice.reset(mark)
        return found

    def serves(self, pod: Pod) -> bool:
        """Tell whether one of the profiles schedules the pod."""
        return pod.spec.scheduler_name in self._cycles

    def assumed(self) -> Sequence[tuple[PopId, str]]:
        """Return the bindings that wait for an answer, with their nodes."""
        return [
            (decision.head.pop, decision.verdict.node_name)
            for decision in self._unanswered.values()
            if isinstance(decision.verdict, Binding)
        ]

    def choice_mark(self) -> int:
        """Return where the host choice stands (the preset v1.16's lastNodeIndex)."""
        return self._choice.mark()

    def unanswered(self) -> Sequence[Decision]:
        """Return the decisions that wait for an answer, in order."""
        return tuple(self._unanswered.values())

    # How a pod is decided

    def _schedule(self, attempt: Attempt, pod: Pod, now_ns: int) -> Decision:
        cycle = self._cycles[pod.spec.scheduler_name]
        result = cycle.schedule_pod(pod, attempt.head.attempts)
        match result:
            case Suggested():
                return self._assume(cycle.framework, attempt, pod, result)
            case NoNodes():
                refused = Refused(message=NO_NODES_TEXT, nominated_node_name="")
                return self._give_back(attempt, pod, refused)
            case Unschedulable():
                return self._refuse(cycle.framework, attempt, pod, result, now_ns)

    def _assume(
        self, framework: Framework, attempt: Attempt, pod: Pod, suggested: Suggested
    ) -> Decision:
        self.snapshot.assume(pod, suggested.node_name)
        refusal = (
            framework.reserve(pod, suggested.row)
            or framework.permit(pod, suggested.row)
            or framework.pre_bind(pod, suggested.node_name)
        )
        if refusal is not None:
            framework.unreserve(pod, suggested.row)
            self.snapshot.forget(pod.uid)
            return self._fail(attempt, pod, refusal)
        steps: list[QueueStep] = [CommitPop(attempt.head.pop)]
        if self.snapshot.nominations.node_of(pod.uid):
            self.snapshot.nominations.drop(pod.uid)
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

    def _fail(self, attempt: Attempt, pod: Pod, status: Status) -> Decision:
        failed = Failed(message=f"running plugin {status.plugin!r}: {status.message}")
        requeue = AddUnschedulable(pop=attempt.head.pop, plugins=(status.plugin,))
        self._mirror.given_back(pod)
        return attempt.decided(failed, (CommitPop(attempt.head.pop), requeue))

    def _refuse(
        self,
        framework: Framework,
        attempt: Attempt,
        pod: Pod,
        result: Unschedulable,
        now_ns: int,
    ) -> Decision:
        diagnosis = result.diagnosis
        began = self._stopwatch() if self._stopwatch else 0
        outcome: Nomination | CannotHelp | None = None
        if pod.spec.scheduler_name in self._preempting:
            outcome = self._preemptor.preempt(
                pod,
                SnapshotFailedCycle(pod, framework, diagnosis, self._surveyor),
                tie_break=hashed_tie_break(
                    seed=self._options.seed, uid=pod.uid, attempt=attempt.head.attempts
                ),
                now_ns=now_ns,
            )
        phases = dict(result.phases_ns)
        if self._stopwatch:
            phases["PostFilter"] = self._stopwatch() - began
        said = outcome.message if isinstance(outcome, CannotHelp) else ""
        reasons = reason_counts(diagnosis)
        refused = Refused(
            message=fit_error_text(diagnosis, said, reasons),
            plugins=diagnosis.unschedulable_plugins,
            pending_plugins=diagnosis.pending_plugins,
            preemption_message=said,
            nominated_node_name=_nominated(outcome),
            nomination=outcome if isinstance(outcome, Nomination) else None,
            reasons=reasons,
        )
        return self._give_back(attempt, pod, refused, phases)

    def _give_back(
        self,
        attempt: Attempt,
        pod: Pod,
        refused: Refused,
        phases_ns: Mapping[str, int] = NOT_MEASURED,
    ) -> Decision:
        """Requeue the pod, then nominate it or clear its nomination, in upstream's order."""
        requeue = AddUnschedulable(
            pop=attempt.head.pop,
            plugins=refused.plugins,
            pending_plugins=refused.pending_plugins,
            is_error=not refused.plugins and not refused.pending_plugins,
        )
        steps: list[QueueStep] = [CommitPop(attempt.head.pop), requeue]
        self._mirror.given_back(pod)
        if refused.nominated_node_name:
            self.snapshot.nominations.put(pod, refused.nominated_node_name)
            steps.append(Nominate(pod.uid, refused.nominated_node_name))
        elif refused.nominated_node_name == "" and self.snapshot.nominations.node_of(pod.uid):
            self.snapshot.nominations.drop(pod.uid)
            steps.append(DeleteNomination(pod.uid))
        return attempt.decided(refused, steps, phases_ns)

    # How answers are taken

    def _binding_refused(self, decision: Decision) -> list[QueueStep]:
        self._release(decision)
        pop, pod = decision.head.pop, decision.bound_pod
        if pod.uid not in self.pods:
            return [Done(pop)]
        self._mirror.given_back(self.pods[pod.uid])
        requeue = AddUnschedulable(pop=pop, is_error=True, cycle=self._latest_cycle)
        if not self._queue.moves_after_failed_binding:
            return [requeue]
        return [requeue, events.after_failed_binding(pod)]

    def _release(self, decision: Decision) -> None:
        """Take an assumed pod off its node again, unless the world has moved it on meanwhile."""
        assert isinstance(decision.verdict, Binding)
        pod = decision.bound_pod
        if self.snapshot.is_assumed(pod.uid):
            self._framework(decision).unreserve(pod, decision.verdict.row)
            self.snapshot.forget(pod.uid)

    def _after_refusal(self, after: aftermath.Aftermath, uid: str) -> Iterable[QueueStep]:
        if after.forget_nomination:
            self.snapshot.nominations.drop(uid)
            yield DeleteNomination(uid)
        if after.activate and self._queue.has_activate:
            yield Activate(uid)

    def _is_gated(self, pod: Pod) -> bool:
        return self._cycles[pod.spec.scheduler_name].framework.pre_enqueue(pod) is not None

    def _framework(self, decision: Decision) -> Framework:
        return self._cycles[decision.bound_pod.spec.scheduler_name].framework

    def _change_snapshot(self, change: events.SnapshotChange, pod: Pod) -> None:
        match change:
            case events.SnapshotChange.ADD | events.SnapshotChange.UPDATE:
                self.snapshot.set_pod(pod)
            case events.SnapshotChange.DELETE:
                self.snapshot.remove_pod(pod.uid)
            case events.SnapshotChange.NONE:
                pass


def _nominated(outcome: Nomination | CannotHelp | None) -> str | None:
    """Return status.nominatedNodeName to write: "" clears it, None leaves it alone."""
    if isinstance(outcome, Nomination):
        return outcome.node
    return "" if outcome is not None and outcome.clear_nomination else None
