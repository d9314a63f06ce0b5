"""The scheduler without its wires: events and heads in, queue steps and decisions out.

It keeps the snapshot and the pods that wait, decides one head after the other as if each had been
popped, and can take back what it decided beyond the prefix that the queue accepted. What a
decision asks of the world is answered later; until then a bound pod is assumed.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, ScheduleOne, schedulingCycle,
handleSchedulingFailure, handleBindingCycleError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from services.kube.budget import PodDisruptionBudget
from services.kube.node import Node
from services.kube.pod import Pod
from services.kube.workloads import Controller
from services.scheduler.core import events
from services.scheduler.core.assumption import TurnedDown, why_not_bound
from services.scheduler.core.catalog import Kept
from services.scheduler.core.cycle import Errored, NoNodes, Suggested, Unschedulable
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
from services.scheduler.core.events_objects import on_object
from services.scheduler.core.failed_cycle import SnapshotFailedCycle
from services.scheduler.core.framework import Framework
from services.scheduler.core.options import Options, cycles_of
from services.scheduler.core.plugins.default_preemption import preemptor_among
from services.scheduler.core.pod_evaluation import PodEvaluation, evaluate_pod
from services.scheduler.core.preemption import aftermath
from services.scheduler.core.preemption.outcome import CannotHelp
from services.scheduler.core.preemption.outcome import Nominate as Nomination
from services.scheduler.core.preemption.pick import hashed_tie_break
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
from services.scheduler.core.registry import SERVED, Registry
from services.scheduler.core.snapshot import Snapshot
from services.scheduler.core.surveyor import Surveyor


class Scheduler:
    """One session's scheduler; `stopwatch` returns ns of any clock and is never decided by.

    `registry` makes the profiles' plugins; DefaultPreemption is added by the rules.
    """

    def __init__(
        self,
        options: Options,
        *,
        registry: Registry = SERVED,
        stopwatch: Callable[[], int] | None = None,
    ) -> None:
        self._options = options
        self._queue = options.queue
        self._stopwatch = stopwatch
        self.snapshot = Snapshot()
        self._choice, self._cycles = cycles_of(options, self.snapshot, registry, stopwatch)
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

    def put_object(self, value: Kept) -> list[QueueStep]:
        """Take an object of another kind that came or changed."""
        kind = value.kind.value if isinstance(value, Controller) else type(value).__name__
        old = self.snapshot.catalog.held(kind, getattr(value, "namespace", ""), value.name)
        self.snapshot.catalog.put(value)
        return list(on_object(old, value, self._queue.objects))

    def remove_object(self, kind: str, namespace: str, name: str) -> list[QueueStep]:
        """Take an object of another kind that went; an unknown one is passed over."""
        old = self.snapshot.catalog.held(kind, namespace, name)
        self.snapshot.catalog.remove(kind, namespace, name)
        return [] if old is None else list(on_object(old, None, self._queue.objects))

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
        cycle = self._cycles[pod.spec.scheduler_name]
        mark = self._choice.mark()
        found = evaluate_pod(
            cycle,
            pod,
            attempt=attempt,
            now_ns=now_ns,
            preemptor=preemptor_among(cycle.framework.post_filters),
            seed=self._options.seed,
        )
        self._choice.reset(mark)
        return found

    @property
    def scheduler_names(self) -> Sequence[str]:
        """Return the names whose pods are scheduled, one a profile."""
        return tuple(self._cycles)

    def serves(self, pod: Pod) -> bool:
        """Tell whether one of the profiles schedules the pod."""
        return pod.spec.scheduler_name in self._cycles

    def sort_key(self, pod: Pod) -> bytes:
        """Return where QueueSort puts a pending pod that is served; empty: by priority."""
        return self._cycles[pod.spec.scheduler_name].framework.sort_key(pod)

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
            case Errored(message=message, phases_ns=phases_ns):
                return self._give_back(attempt, pod, Failed(message=message), phases_ns)
            case Unschedulable():
                return self._refuse(cycle.framework, attempt, pod, result, now_ns)

    def _assume(
        self, framework: Framework, attempt: Attempt, pod: Pod, suggested: Suggested
    ) -> Decision:
        self.snapshot.assume(pod, suggested.node_name)
        turned_down = why_not_bound(framework, pod, suggested)
        if turned_down is not None:
            self.snapshot.forget(pod.uid)
            return self._turn_down(attempt, pod, turned_down, suggested.phases_ns)
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

    def _turn_down(
        self, attempt: Attempt, pod: Pod, turned_down: TurnedDown, phases_ns: Mapping[str, int]
    ) -> Decision:
        moves = turned_down.in_binding and self._queue.moves_after_failed_binding
        after = (events.after_failed_binding(pod),) if moves else ()
        return self._give_back(attempt, pod, turned_down.verdict, phases_ns, after)

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
        outcome = framework.post_filter(
            pod,
            SnapshotFailedCycle(pod, framework, diagnosis, self._surveyor),
            tie_break=hashed_tie_break(
                seed=self._options.seed, uid=pod.uid, attempt=attempt.head.attempts
            ),
            now_ns=now_ns,
        )
        phases = dict(result.phases_ns)
        if self._stopwatch and framework.post_filters:
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
        verdict: Refused | Failed,
        phases_ns: Mapping[str, int] = NOT_MEASURED,
        after: Iterable[QueueStep] = (),
    ) -> Decision:
        """Requeue the pod, then nominate it or clear its nomination, in upstream's order.

        A failed attempt waits for no plugin and loses its nomination.
        """
        requeue = AddUnschedulable(pop=attempt.head.pop, is_error=True)
        nominated: str | None = ""
        if isinstance(verdict, Refused):
            requeue = AddUnschedulable(
                pop=attempt.head.pop,
                plugins=verdict.plugins,
                pending_plugins=verdict.pending_plugins,
                is_error=not verdict.plugins and not verdict.pending_plugins,
            )
            nominated = verdict.nominated_node_name
        self._mirror.given_back(pod)
        cleared = self._nominate(pod, nominated)
        steps = (CommitPop(attempt.head.pop), requeue, *cleared, *after)
        return attempt.decided(verdict, steps, phases_ns)

    def _nominate(self, pod: Pod, node_name: str | None) -> Sequence[QueueStep]:
        """Nominate the pod to a node; "" clears its nomination, None leaves it alone."""
        if node_name:
            self.snapshot.nominations.put(pod, node_name)
            return (Nominate(pod.uid, node_name),)
        if node_name == "" and self.snapshot.nominations.node_of(pod.uid):
            self.snapshot.nominations.drop(pod.uid)
            return (DeleteNomination(pod.uid),)
        return ()

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
        pod, row = decision.bound_pod, decision.verdict.row
        if self.snapshot.name(row) == decision.verdict.node_name:
            self._framework(decision).unreserve(pod, row)
        if self.snapshot.is_assumed(pod.uid):
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
