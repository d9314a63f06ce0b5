"""The scheduler without its wires: events and heads in, queue steps and decisions out.

It keeps the snapshot and the pods that wait, decides one head after the other as if each had been
popped, and can take back what it decided beyond the prefix that the queue accepted. What a
decision asks of the world is answered later; until then a bound pod is assumed.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, ScheduleOne, schedulingCycle,
handleSchedulingFailure, handleBindingCycleError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from services.kube.node import Node
from services.kube.pod import Pod
from services.kube.workloads import Controller, PodDisruptionBudget
from services.scheduler.core.cycle.attempts import Attempts
from services.scheduler.core.cycle.evaluate import PodEvaluation, evaluate_pod
from services.scheduler.core.cycle.extenders import Extenders
from services.scheduler.core.cycle.failed_cycle import Surveyor
from services.scheduler.core.decisions import (
    Attempt,
    Binding,
    Decision,
    Failed,
    MayWait,
    Refused,
    Skipped,
    Stage,
)
from services.scheduler.core.framework.framework import Framework
from services.scheduler.core.framework.registry import SERVED, Registry
from services.scheduler.core.plugin_api.plugin import StatefulPlugin
from services.scheduler.core.plugins.default_preemption import preemptor_among
from services.scheduler.core.preemption.rules import (
    Aftermath,
    after_deletion_refused,
    after_status_refused,
)
from services.scheduler.core.queueing import events
from services.scheduler.core.queueing.changes import on_object
from services.scheduler.core.queueing.mirror import QueueMirror, Waiting
from services.scheduler.core.queueing.steps import (
    Activate,
    AddUnschedulable,
    ClusterEvent,
    CommitPop,
    DeleteNomination,
    Done,
    Head,
    PopId,
    QueueAdd,
    QueueStep,
    QueueUpdate,
)
from services.scheduler.core.session.options import Options, cycles_of
from services.scheduler.core.session.state import Memory
from services.scheduler.core.snapshot.catalog import Kept
from services.scheduler.core.snapshot.snapshot import Snapshot


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
        self.snapshot = Snapshot()
        self._extenders = Extenders(options.extenders, self.snapshot)
        self._choice, self._cycles = cycles_of(
            options, self.snapshot, registry, stopwatch, self._extenders
        )
        self.pods: dict[str, Pod] = {}
        self._mirror = QueueMirror(self.snapshot.nominations, options.queue, self._gate_of)
        self._attempts = Attempts(
            self.snapshot,
            self._mirror,
            Surveyor(self.snapshot, options.rules.preemption),
            queue=options.queue,
            seed=options.seed,
            keeps_refusals=options.sampling is None and not options.extenders,
            stopwatch=stopwatch,
            extenders=self._extenders,
        )
        self._waiting = Waiting()
        self._unanswered: dict[PopId, Decision] = {}
        self._latest_cycle = 0

    # Cluster events

    def put_pod(self, new: Pod) -> list[QueueStep]:
        """Take a pod that came or changed; answer what the queue is told."""
        old = self.pods.get(new.uid)
        assumed = self.snapshot.pod(new.uid) if self.snapshot.is_assumed(new.uid) else None
        self.pods[new.uid] = new
        self._count_waiting(new)
        effects = events.on_pod(
            old,
            new,
            handlers=self._queue.handlers,
            scheduler_names=self._cycles,
            assumed=assumed,
        )
        self._change_snapshot(effects.snapshot, new)
        steps = self._mirror.follow(effects.operations)
        for step in steps:
            if isinstance(step, (QueueAdd, QueueUpdate)) and step.gates:
                self._waiting.listens(new.uid, for_pods=True)
        return steps

    def remove_pod(self, uid: str) -> list[QueueStep]:
        """Take a pod that went; an unknown one is passed over."""
        old = self.pods.pop(uid, None)
        if old is None:
            return []
        self._waiting.drop(uid)
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
        self._recount_waiting()
        return list(on_object(old, value, self._queue.objects))

    def remove_object(self, kind: str, namespace: str, name: str) -> list[QueueStep]:
        """Take an object of another kind that went; an unknown one is passed over."""
        old = self.snapshot.catalog.held(kind, namespace, name)
        self.snapshot.catalog.remove(kind, namespace, name)
        self._recount_waiting()
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
        cycle = self._cycles[pod.spec.scheduler_name]
        decision = self._attempts.schedule(cycle, attempt, pod, now_ns)
        self._note_given_back(cycle.framework, decision)
        if decision.awaits_answer:
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

    def answer(self, pop: PopId, stage: Stage | None) -> list[QueueStep]:
        """Take what became of a decision: `stage` is what was refused, None where nothing was.

        An unknown pop is passed over.
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
        rules = self._options.rules.preemption
        if stage is Stage.NOMINATE:
            after = after_status_refused(rules)
        else:
            after = after_deletion_refused(rules)
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
        self._extenders.take_warnings()
        return found

    @property
    def scheduler_names(self) -> Sequence[str]:
        """Return the names whose pods are scheduled, one a profile."""
        return tuple(self._cycles)

    def serves(self, pod: Pod) -> bool:
        """Tell whether one of the profiles schedules the pod."""
        return pod.spec.scheduler_name in self._cycles

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """Return a namespace's labels, none for one that is not known."""
        found = self.snapshot.catalog.namespaces.get(namespace)
        return found.labels if found is not None else {}

    def sort_key(self, pod: Pod) -> bytes:
        """Return where QueueSort puts a pending pod that is served; empty: by priority."""
        return self._cycles[pod.spec.scheduler_name].framework.sort_key(pod)

    def may_wait(self) -> MayWait:
        """Return what need not be told at once, where no pod can be popped as things stand.

        A pod whose binding waits for its answer needs nothing unless that is a refusal.
        """
        if len(self._waiting) == len(self.assumed()):
            return MayWait.ALL
        return MayWait.NOTHING if self._waiting.any_for_pods else MayWait.STATUS

    def is_heard(self, event: ClusterEvent) -> bool:
        """Tell whether an event may move a pod: one that listens, or one that is in flight."""
        return self._waiting.hears(event, in_flight=bool(self._unanswered))

    def reads_objects(self, event: ClusterEvent) -> bool:
        """Tell whether a hint about a pod that waits may read what `event` is about."""
        return self._waiting.reads(event)

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

    def unanswered(self) -> tuple[Decision, ...]:
        """Return the decisions that wait for an answer, in order."""
        return tuple(self._unanswered.values())

    # What a checkpoint keeps beside the snapshot

    def memory(self) -> Memory:
        """Return what follows from no object; called between rounds."""
        return Memory(
            latest_cycle=self._latest_cycle,
            choice_mark=self._choice.mark(),
            held_back=tuple(self._mirror.held),
            unanswered=self.unanswered(),
            waiting=tuple(self._waiting.items()),
            listening=tuple(self._waiting.listening()),
            plugins={
                name: {
                    plugin.name: plugin.saved_state(self.snapshot)
                    for plugin in cycle.framework.plugins
                    if isinstance(plugin, StatefulPlugin)
                }
                for name, cycle in self._cycles.items()
            },
        )

    def recall(self, pods: Iterable[Pod], memory: Memory) -> None:
        """Go on where another scheduler stood, whose snapshot this one's is; nothing is told.

        `pods` are all pods that were told, in their order. Raises KeyError, TypeError or ValueError
        for plugins' states that are none.
        """
        for name, cycle in self._cycles.items():
            for plugin in cycle.framework.plugins:
                if isinstance(plugin, StatefulPlugin):
                    plugin.restore_state(memory.plugins[name][plugin.name], self.snapshot)
        self.pods.update((pod.uid, pod) for pod in pods)
        for uid, for_pods in memory.waiting:
            self._waiting.count(uid, for_pods=for_pods)
        for uid, for_pods in memory.listening:
            self._waiting.listens(uid, for_pods=for_pods)
        self._latest_cycle = memory.latest_cycle
        self._choice.reset(memory.choice_mark)
        self._mirror.hold(memory.held_back)
        self._unanswered = {each.head.pop: each for each in memory.unanswered}

    # How

    def _count_waiting(self, pod: Pod) -> None:
        if pod.node_name or pod.is_terminal or not self.serves(pod):
            self._waiting.drop(pod.uid)
        else:
            framework = self._cycles[pod.spec.scheduler_name].framework
            for_pods = self._extenders.judge(pod) or framework.waits_for_pods(pod)
            self._waiting.count(pod.uid, for_pods=for_pods)

    def _note_given_back(self, framework: Framework, decision: Decision) -> None:
        verdict = decision.verdict
        if not isinstance(verdict, (Refused, Failed)):
            return
        for_pods = isinstance(verdict, Failed) or framework.is_refused_for_pods(verdict.plugins)
        self._waiting.listens(decision.head.pop.uid, for_pods=for_pods)

    def _recount_waiting(self) -> None:
        """Ask anew, since what a pod looks at may follow from objects such as its Service."""
        for uid in self._waiting.uids():
            self._count_waiting(self.pods[uid])

    def _binding_refused(self, decision: Decision) -> list[QueueStep]:
        self._release(decision)
        pop, pod = decision.head.pop, decision.bound_pod
        if pod.uid not in self.pods:
            return [Done(pop)]
        self._mirror.given_back(self.pods[pod.uid])
        self._waiting.listens(pod.uid, for_pods=True)
        requeue = AddUnschedulable(pop, self._latest_cycle)
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

    def _after_refusal(self, after: Aftermath, uid: str) -> Iterable[QueueStep]:
        if after.forget_nomination:
            self.snapshot.nominations.drop(uid)
            yield DeleteNomination(uid)
        if after.activate and self._queue.has_activate:
            yield Activate(uid)

    def _gate_of(self, pod: Pod) -> str:
        status = self._cycles[pod.spec.scheduler_name].framework.pre_enqueue(pod)
        return status.plugin if status is not None else ""

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
