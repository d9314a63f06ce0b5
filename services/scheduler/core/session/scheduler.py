"""The scheduler without its transport: events and heads in, queue steps and decisions out.

It holds the snapshot and the pending pods, decides one head after the other as if each had been
popped, and can undo the decisions beyond the prefix that the queue accepted. The world answers
later whether it carried out a decision; until then a bound pod is assumed.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, ScheduleOne, schedulingCycle,
handleSchedulingFailure, handleBindingCycleError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from services.framework.cluster_event import ClaimUsers
from services.framework.plugin import StatefulPlugin
from services.framework.plugins.events import claim_users
from services.framework.plugins.in_tree import SERVED, Registry
from services.framework.preemption.batch_dry_run import BatchDryRun
from services.framework.preemption.budgets import any_guarded
from services.framework.preemption.rules import (
    AfterRefusal,
    after_deletion_refused,
    after_status_refused,
)
from services.framework.runtime.framework import Framework
from services.framework.snapshot.catalog import CatalogObject
from services.framework.snapshot.devices import DEVICE_KINDS
from services.framework.snapshot.snapshot import Snapshot
from services.framework.waiting_pods import WaitingPod, WaitingPods
from services.kube.devices import ResourceClaim
from services.kube.node import Node
from services.kube.pod import Pod
from services.kube.workloads import Controller, PodDisruptionBudget
from services.scheduler.core.cycle.attempt import Attempts
from services.scheduler.core.cycle.evaluate import PodEvaluation, evaluate_pod
from services.scheduler.core.cycle.extenders import Extenders
from services.scheduler.core.decisions import Binding, Decision, HeldAtPermit, MayWait, Stage
from services.scheduler.core.queueing import events
from services.scheduler.core.queueing.changes import on_object
from services.scheduler.core.queueing.mirror import QueueMirror
from services.scheduler.core.queueing.steps import (
    Activate,
    AddUnschedulable,
    DeleteNomination,
    Done,
    EventLabel,
    Head,
    Move,
    PopId,
    QueueAdd,
    QueueStep,
    QueueUpdate,
)
from services.scheduler.core.session.options import (
    HeldPod,
    SchedulerOptions,
    SchedulerState,
    make_cycles,
)


class Scheduler:
    """One session's scheduler; `stopwatch` returns ns of any clock and affects no decision.

    `registry` makes the profiles' plugins; DefaultPreemption is added by the rules.
    """

    def __init__(
        self,
        options: SchedulerOptions,
        *,
        registry: Registry = SERVED,
        stopwatch: Callable[[], int] | None = None,
    ) -> None:
        self._options = options
        self._queue = options.queue
        self.snapshot = Snapshot(pod_level_resizes=options.rules.pod_level_resizes)
        self._extenders = Extenders(options.extenders, self.snapshot) if options.extenders else None
        self.waiting = WaitingPods()
        self._choice, self._cycles = make_cycles(
            options, self.snapshot, registry, self._extenders, self.waiting
        )
        self.pods: dict[str, Pod] = {}
        self._mirror = QueueMirror(self.snapshot.nominations, options.queue, self._gate_of)
        self._pending = self._mirror.pending
        self._attempts = Attempts(
            self.snapshot,
            self._mirror,
            BatchDryRun(self.snapshot, options.rules.preemption),
            cycles=self._cycles,
            choice=self._choice,
            seed=options.seed,
            repeats_refusals=options.sampling is None and not options.extenders,
            stopwatch=stopwatch,
            extenders=self._extenders,
            waiting=self.waiting,
        )
        self._held: dict[str, Decision] = {}
        self._expected: list[str] = []
        self.has_permits = any(cycle.framework.has_permits for cycle in self._cycles.values())
        self._unanswered: dict[PopId, Decision] = {}
        self._preempting: dict[PopId, None] = {}
        self._latest_cycle = 0
        gate_kinds = (cycle.framework.gate_kinds for cycle in self._cycles.values())
        self._gate_kinds = frozenset[str]().union(*gate_kinds)
        self._has_in_tree_hints = (
            options.queue_has_in_tree_hints
            and not options.extenders
            and not any(cycle.framework.has_out_of_tree for cycle in self._cycles.values())
        )

    # Cluster events

    def put_pod(self, new: Pod) -> list[QueueStep]:
        """Add or update a pod, and return the steps for the queue."""
        old = self.pods.get(new.uid)
        assumed = self.snapshot.pod(new.uid) if self.snapshot.is_assumed(new.uid) else None
        waits_on_permit = new.uid in self.waiting
        self.pods[new.uid] = new
        is_pending = self._put_pending(new)
        if waits_on_permit and not is_pending:
            self.waiting.reject(new.uid, "", "removed")
        effects = events.on_pod(
            old,
            new,
            handlers=self._queue.handlers,
            scheduler_names=self._cycles,
            assumed=assumed,
            waits_on_permit=waits_on_permit,
        )
        self._change_snapshot(effects.snapshot, new)
        steps = self._mirror.follow(effects.operations)
        for step in steps:
            if isinstance(step, (QueueAdd, QueueUpdate)):
                self._note_gates(new, step.gates)
        return steps

    def _note_gates(self, pod: Pod, gates: Sequence[str]) -> None:
        if gates:
            by_pods = self.framework_of(pod).any_reads_beyond_nodes(gates)
            self._pending.mark_movable(pod.uid, by_pods=by_pods)
        self._pending.set_gated(pod.uid, gated=bool(gates))

    def remove_pod(self, uid: str) -> list[QueueStep]:
        """Remove a deleted pod; an unknown one is ignored."""
        old = self.pods.pop(uid, None)
        if old is None:
            return []
        self._pending.drop(uid)
        waits_on_permit = uid in self.waiting
        self.waiting.reject(uid, "", "removed")
        effects = events.on_pod(
            old,
            None,
            handlers=self._queue.handlers,
            scheduler_names=self._cycles,
            waits_on_permit=waits_on_permit,
        )
        self._change_snapshot(effects.snapshot, old)
        return self._mirror.follow(effects.operations)

    def put_node(self, node: Node) -> list[QueueStep]:
        """Add or update a node."""
        row = self.snapshot.row(node.name)
        old = self.snapshot.node(row) if row is not None else None
        self.snapshot.set_node(node)
        if old is None:
            return list(events.on_node_added(node))
        return list(events.on_node_updated(old, node, handlers=self._queue.handlers))

    def remove_node(self, name: str) -> list[QueueStep]:
        """Remove a deleted node; an unknown one is ignored."""
        row = self.snapshot.row(name)
        if row is None:
            return []
        node = self.snapshot.node(row)
        self.snapshot.remove_node(name)
        return list(events.on_node_deleted(node, handlers=self._queue.handlers))

    def put_budget(self, budget: PodDisruptionBudget) -> list[QueueStep]:
        """Add or update a budget; this moves no pod."""
        self.snapshot.set_budget(budget)
        return []

    def remove_budget(self, namespace: str, name: str) -> list[QueueStep]:
        """Remove a deleted budget; this moves no pod."""
        self.snapshot.remove_budget(namespace, name)
        return []

    def put_object(self, value: CatalogObject) -> list[QueueStep]:
        """Add or update an object of another kind."""
        kind = value.kind.value if isinstance(value, Controller) else type(value).__name__
        namespace = getattr(value, "namespace", "")
        old = self.snapshot.catalog.held(kind, namespace, value.name)
        gates = self._gates(kind, namespace, value.name)
        self.snapshot.catalog.put(value)
        self._put_all_pending(kind)
        steps = self._after_gates(gates)
        return [*steps, *on_object(old, value, self._queue.catalog_events)]

    def remove_object(self, kind: str, namespace: str, name: str) -> list[QueueStep]:
        """Remove a deleted object of another kind; an unknown one is ignored."""
        old = self.snapshot.catalog.held(kind, namespace, name)
        gates = self._gates(kind, namespace, name)
        self.snapshot.catalog.remove(kind, namespace, name)
        self._put_all_pending(kind)
        steps = self._after_gates(gates)
        if old is not None:
            steps += on_object(old, None, self._queue.catalog_events)
        return steps

    # Scheduling

    def decide(self, head: Head, now_ns: int) -> Decision:
        """Schedule the queue's next pod, and update the snapshot with the decision.

        A binding's Done follows its answer (`answer`).
        """
        self._latest_cycle = head.pop.cycle
        decision = self._attempts.schedule(head, self.pods.get(head.pop.uid), now_ns)
        if isinstance(decision.verdict, HeldAtPermit):
            self._held[head.pop.uid] = decision
            if self._options.rules.nominates_expected:
                self._expected.append(head.pop.uid)
        if decision.awaits_answer:
            self._unanswered[head.pop] = decision
        return decision

    def resolve(self, now_ns: int) -> list[Decision]:
        """Return what becomes of the pods that wait at Permit no longer, in order.

        A decision about one may let further ones go on.
        """
        self.snapshot.now_ns = now_ns
        self.waiting.expire(now_ns)
        decisions: list[Decision] = []
        while decided := self.waiting.take_decided():
            for uid, status in decided:
                latest = self.pods.get(uid)
                is_pending = latest is not None and self._waits(latest)
                held = self._held.pop(uid)
                decision = self._attempts.after_permit(
                    held, status, is_pending=is_pending, cycle=self._latest_cycle
                )
                if decision.awaits_answer:
                    self._unanswered[held.head.pop] = decision
                decisions.append(decision)
        return decisions

    def ends_round(self, decision: Decision) -> bool:
        """Return whether a round ends with the decision: the next attempt must see its effects.

        It must where a victim has a disruption budget, whose status the disruption controller
        changes. Upstream's attempts read the status that its API server has by then.
        """
        nomination = decision.nomination
        return nomination is not None and any_guarded(
            nomination.deletions, self.snapshot.budgets.values()
        )

    def take_expected(self) -> list[WaitingPod]:
        """Return the pods that have begun to wait at Permit since the last call, and still do.

        Their status is to name the node, so that others count on it.
        Source: kubernetes v1.36 pkg/scheduler/schedule_one.go, bindingCycle
        (NominatedNodeNameForExpectation).
        """
        expected, self._expected = self._expected, []
        pods = (self.waiting.get(uid) for uid in expected)
        return [pod for pod in pods if pod is not None]

    def undo(self, decisions: Sequence[Decision]) -> None:
        """Undo decisions whose pops the queue did not accept, the latest first.

        They are the last ones, so that the queue's cycle, which counts pops, is again that before
        the first of them. Their pods stay marked as movable: a move may be sent that moves none.
        """
        if decisions:
            self._latest_cycle = decisions[0].head.pop.cycle - 1
        for decision in reversed(decisions):
            self._unanswered.pop(decision.head.pop, None)
            self._choice.reset(decision.choice_mark)
            if decision.pod is None:
                continue
            assert not isinstance(decision.verdict, HeldAtPermit), "one pod an exchange is certain"
            if isinstance(decision.verdict, Binding):
                self._release(decision)
            self.snapshot.nominations.restore(decision.pod, decision.nominated_before)

    # Answers

    def answer(self, pop: PopId, stage: Stage | None) -> list[QueueStep]:
        """Handle the simulation's answer to a decision; `stage` is the refused part, or None.

        An unknown pop is ignored.
        """
        decision = self._unanswered.pop(pop, None)
        if decision is None:
            return []
        if isinstance(decision.verdict, Binding):
            if stage is None:
                self._framework(decision).post_bind(
                    decision.attempted_pod, decision.verdict.node_name
                )
                self._pending.bound(pop.uid)
                return [Done(pop)]
            return self._binding_refused(decision)
        steps = self._preemption_ended(decision)
        if stage is None:
            return steps
        after = after_status_refused if stage is Stage.NOMINATE else after_deletion_refused
        return [*steps, *self._after_refusal(after(self._options.rules.preemption), pop.uid)]

    def time_goes_on(self) -> list[QueueStep]:
        """Hold the preemptors whose nominations are not answered before further events.

        An answer before the next event means that the deletions took no time. Without it they run
        beside the scheduling cycles, as upstream's do from v1.33 on, and what happens meanwhile
        must not make the preemptor active, before it is known which room it will have.
        Source: kubernetes v1.34 framework/preemption/preemption.go, prepareCandidateAsync, which
        begins within the cycle.
        """
        steps: list[QueueStep] = []
        for pop, decision in self._unanswered.items():
            if decision.nomination is not None and pop not in self._preempting:
                self._hold_preemptor(pop)
                steps += self._gate_changed(pop.uid)
        return steps

    # Queries

    def evaluate(self, pod: Pod, attempt_number: int, now_ns: int) -> PodEvaluation:
        """Return every verdict about a pending pod in the current state, which is not changed."""
        cycle = self._cycles[pod.spec.scheduler_name]
        mark = self._choice.mark()
        evaluation = evaluate_pod(
            cycle,
            pod,
            attempt_number=attempt_number,
            now_ns=now_ns,
            preemptor=cycle.framework.preemptor,
            seed=self._options.seed,
        )
        self._choice.reset(mark)
        if self._extenders is not None:
            self._extenders.take_warnings()
        return evaluation

    @property
    def scheduler_names(self) -> Sequence[str]:
        """Return the names whose pods are scheduled, one a profile."""
        return tuple(self._cycles)

    def serves(self, pod: Pod) -> bool:
        """Return whether one of the profiles schedules the pod."""
        return pod.spec.scheduler_name in self._cycles

    def framework_of(self, pod: Pod) -> Framework:
        """Return the plugins of the pod's profile; those of the first one if none serves it."""
        cycle = self._cycles.get(pod.spec.scheduler_name) or next(iter(self._cycles.values()))
        return cycle.framework

    def sort_key(self, pod: Pod) -> bytes:
        """Return where QueueSort puts a pending pod that is served; empty: by priority."""
        return self._cycles[pod.spec.scheduler_name].framework.sort_key(pod)

    def may_wait(self) -> MayWait:
        """Return which events the simulation may delay while no pod can be popped.

        A pod whose binding waits for its answer needs no event unless the binding is refused.
        """
        if self._held:
            return MayWait.NOTHING
        if len(self._pending) == len(self.assumed()):
            return MayWait.ALL
        return MayWait.NOTHING if self._pending.any_for_pods else MayWait.STATUS

    def may_move_pods(self, move: Move) -> bool:
        """Return whether an event may move a pod that waits for events or is in flight."""
        users: ClaimUsers | None = None
        if self._has_in_tree_hints and isinstance(move.new, ResourceClaim):
            users = claim_users(self._queue.version, move.label, move.old, move.new)
        if users is None:
            in_flight = bool(self._unanswered or self._held)
            return self._pending.may_move(move.event, in_flight=in_flight)
        return any(
            self._pending.is_movable(uid) or self._is_in_flight(uid)
            for uid in self._pending.users(users)
        )

    def may_matter(self, update: QueueUpdate) -> bool:
        """Return whether the queue must receive an update of a pending pod.

        It reads no condition, and where nothing else has changed the event is the general
        UnschedulablePodUpdate, for which no plugin in the tree has registered.
        """
        if update.gates or not self._has_in_tree_hints:
            return True
        old, new = update.old, update.new
        conditions, version = old.conditions, old.resource_version
        return replace(new, conditions=conditions, resource_version=version) != old

    def _is_in_flight(self, uid: str) -> bool:
        return uid in self._held or any(pop.uid == uid for pop in self._unanswered)

    def reads_objects(self, event: EventLabel) -> bool:
        """Return whether a hint of a pending pod may read the object of `event`."""
        return self._pending.may_be_read(event)

    def assumed(self) -> Sequence[tuple[PopId, str]]:
        """Return the bindings that wait for an answer, or for Permit plugins, with their nodes."""
        bindings = [
            (decision.head.pop, decision.verdict.node_name)
            for decision in self._unanswered.values()
            if isinstance(decision.verdict, Binding)
        ]
        held = [
            (decision.head.pop, decision.verdict.binding.node_name)
            for decision in self._held.values()
            if isinstance(decision.verdict, HeldAtPermit)
        ]
        return [*bindings, *held]

    def choice_mark(self) -> int:
        """Return the host choice's position (the preset v1.16's lastNodeIndex)."""
        return self._choice.mark()

    def unanswered(self) -> tuple[Decision, ...]:
        """Return the decisions that wait for an answer, in order."""
        return tuple(self._unanswered.values())

    # The checkpoint's part beside the snapshot

    def state(self) -> SchedulerState:
        """Return the state that cannot be derived from objects; called between rounds."""
        return SchedulerState(
            latest_cycle=self._latest_cycle,
            choice_mark=self._choice.mark(),
            held_back=tuple(self._mirror.held),
            unanswered=self.unanswered(),
            preempting=tuple(self._preempting),
            held=tuple(self._saved_held()),
            pending=tuple(self._pending.items()),
            movable=tuple(self._pending.movable()),
            plugins={
                name: {
                    plugin.name: plugin.saved_state(self.snapshot)
                    for plugin in cycle.framework.plugins
                    if isinstance(plugin, StatefulPlugin)
                }
                for name, cycle in self._cycles.items()
            },
        )

    def restore(self, pods: Iterable[Pod], state: SchedulerState) -> None:
        """Restore another scheduler's state; the snapshot is restored already, and no step is sent.

        `pods` are all pods that were received, in their order. Raises KeyError, TypeError or
        ValueError for plugins' states that their plugins never save.
        """
        for name, cycle in self._cycles.items():
            for plugin in cycle.framework.plugins:
                if isinstance(plugin, StatefulPlugin):
                    plugin.restore_state(state.plugins[name][plugin.name], self.snapshot)
        self.pods.update((pod.uid, pod) for pod in pods)
        for uid, waits_for_pods in state.pending:
            self._pending.put(uid, waits_for_pods=waits_for_pods)
            pod = self.pods[uid]
            self._put_gate(self._cycles[pod.spec.scheduler_name].framework, pod)
        for uid, by_pods in state.movable:
            self._pending.mark_movable(uid, by_pods=by_pods)
        self._latest_cycle = state.latest_cycle
        self._choice.reset(state.choice_mark)
        self._mirror.hold(state.held_back)
        self._unanswered = {decision.head.pop: decision for decision in state.unanswered}
        for pop in state.preempting:
            self._hold_preemptor(pop)
        for held in state.held:
            self._restore_held(held)
        for uid, _ in state.movable:
            self._pending.set_gated(uid, gated=bool(self._gate_of(self.pods[uid])))

    # Internals

    def _saved_held(self) -> Iterator[HeldPod]:
        for waiting in self.waiting:
            decision = self._held[waiting.pod.uid]
            assert isinstance(decision.verdict, HeldAtPermit)
            saved = replace(decision, verdict=decision.verdict.binding)
            yield HeldPod(decision=saved, plugins=waiting.plugins)

    def _restore_held(self, held: HeldPod) -> None:
        binding, pod = held.decision.verdict, held.decision.attempted_pod
        if not isinstance(binding, Binding):
            raise TypeError("a pod that waits at Permit has a node")
        self._held[pod.uid] = replace(held.decision, verdict=HeldAtPermit(binding))
        plugins = dict(held.plugins)
        self.waiting.restore(WaitingPod(pod=pod, node_name=binding.node_name, plugins=plugins))

    def _hold_preemptor(self, pop: PopId) -> None:
        decision = self._unanswered[pop]
        preemptor = self._framework(decision).preemptor
        if preemptor is not None:
            self._preempting[pop] = None
            preemptor.preemption_began(decision.attempted_pod)

    def _preemption_ended(self, decision: Decision) -> list[QueueStep]:
        """Let a held preemptor in again.

        Upstream opens the gate just before the last victim's deletion is requested, so that this
        deletion moves the pod; the events of deletions follow the answer.
        """
        pop = decision.head.pop
        preemptor = self._framework(decision).preemptor
        if pop not in self._preempting or preemptor is None:
            return []
        del self._preempting[pop]
        preemptor.preemption_ended(decision.attempted_pod)
        return self._gate_changed(pop.uid)

    def _gate_changed(self, uid: str) -> list[QueueStep]:
        """Return the steps for a pod whose gate has changed, unless it does not wait any more."""
        pod = self.pods.get(uid)
        return self._mirror.gate_changed(pod) if pod is not None and self._waits(pod) else []

    def _put_pending(self, pod: Pod) -> bool:
        """Follow whether a pod is pending, and return it."""
        if not self._waits(pod):
            self._pending.drop(pod.uid)
            return False
        framework = self._cycles[pod.spec.scheduler_name].framework
        extenders = self._extenders
        waits = (
            extenders is not None and extenders.filters_or_scores(pod)
        ) or framework.waits_for_pods(pod)
        self._pending.put(pod.uid, waits_for_pods=waits)
        self._put_gate(framework, pod)
        return True

    def _put_gate(self, framework: Framework, pod: Pod) -> None:
        """Keep the names of the objects that the pod's gates read."""
        if self._gate_kinds:
            self._pending.put_gate(pod.uid, pod.namespace, framework.gate_names(pod))

    def _waits(self, pod: Pod) -> bool:
        """Return whether the queue has the pod, or a decision about it that may return it."""
        return not pod.node_name and not pod.is_terminal and self.serves(pod)

    def _put_all_pending(self, kind: str) -> None:
        """Put all pending pods again: their plugins may read objects such as a Service.

        No plugin that reads beyond single nodes reads devices or claims.
        """
        for uid in () if kind in DEVICE_KINDS else self._pending.uids():
            self._put_pending(self.pods[uid])

    def _binding_refused(self, decision: Decision) -> list[QueueStep]:
        """Return the pod to the queue, unless it was deleted, has ended or was bound by others.

        Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, handleSchedulingFailure.
        """
        assert isinstance(decision.verdict, Binding)
        self._release(decision)
        pop, pod = decision.head.pop, decision.attempted_pod
        steps: list[QueueStep] = [Done(pop)]
        latest = self.pods.get(pod.uid)
        if latest is not None and self._waits(latest):
            self._mirror.requeued(latest, by_pods=True)
            steps = [AddUnschedulable(pop, self._latest_cycle)]
        # Its room is free again also where the pod was deleted while it was being bound.
        return [*steps, *self._mirror.after_failed_binding(pod, decision.verdict.node_name)]

    def _release(self, decision: Decision) -> None:
        """Remove an assumed pod from its node, unless an event has changed it meanwhile."""
        assert isinstance(decision.verdict, Binding)
        pod, row = decision.attempted_pod, decision.verdict.row
        if self.snapshot.name(row) == decision.verdict.node_name:
            self._framework(decision).unreserve(pod, row)
        if self.snapshot.is_assumed(pod.uid):
            self.snapshot.forget(pod.uid)

    def _after_refusal(self, after: AfterRefusal, uid: str) -> Iterable[QueueStep]:
        if after.forget_nomination:
            self.snapshot.nominations.drop(uid)
            yield DeleteNomination(uid)
        if after.activate and self._queue.has_activate:
            yield Activate(uid)

    def _gates(self, kind: str, namespace: str, name: str) -> list[tuple[Pod, str]]:
        """Return the waiting pods whose gates an object may change, with the gates."""
        if kind not in self._gate_kinds:
            return []
        pods = (self.pods[uid] for uid in self._pending.gated_by(namespace, name))
        return [(pod, self._gate_of(pod)) for pod in pods]

    def _after_gates(self, before: Iterable[tuple[Pod, str]]) -> list[QueueStep]:
        """Return the steps for the pods whose gate has changed from `before`."""
        changed = (pod for pod, gate in before if self._gate_of(pod) != gate)
        return [step for pod in changed for step in self._mirror.gate_changed(pod)]

    def _gate_of(self, pod: Pod) -> str:
        status = self._cycles[pod.spec.scheduler_name].framework.pre_enqueue(pod)
        return status.plugin if status is not None else ""

    def _framework(self, decision: Decision) -> Framework:
        return self._cycles[decision.attempted_pod.spec.scheduler_name].framework

    def _change_snapshot(self, change: events.SnapshotChange, pod: Pod) -> None:
        match change:
            case events.SnapshotChange.ADD | events.SnapshotChange.UPDATE:
                self.snapshot.set_pod(pod)
            case events.SnapshotChange.DELETE:
                self.snapshot.remove_pod(pod.uid)
            case events.SnapshotChange.NONE:
                pass
