"""Mirrors the queue in the scheduler: its rules, nominations, gated pods, and pending pods.

`QueueTraits` is what the queue's version means for the scheduler. The queue is the record of
nominations; the filters need them for every node, so the scheduler follows the effect of each step
that it sends. Pods that a PreEnqueue plugin holds are kept out of queues without gates.

PendingPods counts the pods that other pods' arrival may make schedulable, and the pods that an
event may move at all: those that were tried and requeued, and those that a PreEnqueue plugin held.
None that is held is moved before the scheduler lets it in, which SetGates or Update says. In which
sub-queue they are only the queue knows; the counts suffice to see that an event moves none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from services.framework.cluster_event import ClaimUsers
from services.framework.snapshot.nominations import Nominations
from services.kube.pod import Pod
from services.scheduler.core.queueing import changes, events
from services.scheduler.core.queueing.changes import CatalogEvents
from services.scheduler.core.queueing.events import EventHandlers
from services.scheduler.core.queueing.steps import (
    EventLabel,
    Move,
    QueueAdd,
    QueueDelete,
    QueueOperation,
    QueueStep,
    QueueUpdate,
    SetGates,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTraits:
    """The properties of a queue's version that the scheduler depends on.

    handlers, catalog_events: what it receives for events of pods and nodes, and of other objects.
    renominates_from_status: a requeued pod's nomination becomes that of its status.
    moves_after_failed_binding: a refused binding is followed by a move.
    has_gates, has_activate: the queue supports PreEnqueue gates and Activate.
    registers_events: plugins register for events, so that only events that may move a pod are sent,
    with what queueing hints read: objects, arguments of profiles, selectors of default spread
    constraints. With QueueConfig.queueing_hints false the queue receives the same and ignores what
    hints read.
    returns_deleted_pods: a head may be a pod that was deleted after it failed.
    """

    version: str
    handlers: EventHandlers
    catalog_events: CatalogEvents
    renominates_from_status: bool
    moves_after_failed_binding: bool
    has_gates: bool
    has_activate: bool
    registers_events: bool
    returns_deleted_pods: bool


_V1_20 = QueueTraits(
    version="v1.20",
    handlers=events.V1_20,
    catalog_events=changes.V1_20,
    renominates_from_status=True,
    moves_after_failed_binding=False,
    has_gates=False,
    has_activate=False,
    registers_events=False,
    returns_deleted_pods=True,
)

_V1_34 = QueueTraits(
    version="v1.34",
    handlers=events.V1_34,
    catalog_events=changes.V1_34,
    renominates_from_status=False,
    moves_after_failed_binding=True,
    has_gates=True,
    has_activate=True,
    registers_events=True,
    returns_deleted_pods=False,
)

QUEUE_TRAITS = {
    traits.version: traits
    for traits in (
        _V1_20,
        replace(_V1_20, version="v1.16"),
        _V1_34,
        replace(_V1_34, version="v1.36", handlers=events.V1_36),
    )
}


class QueueMirror:
    """Follows one queue; `gate_of` names the PreEnqueue plugin that holds a pod, "" for none."""

    def __init__(
        self, nominations: Nominations, traits: QueueTraits, gate_of: Callable[[Pod], str]
    ) -> None:
        self.traits = traits
        self.pending = PendingPods()
        self._nominations = nominations
        self._gate_of = gate_of
        self._held: set[str] = set()

    def follow(self, operations: Iterable[QueueOperation]) -> list[QueueStep]:
        """Return the steps that the queue receives for these operations, and follow each."""
        steps: list[QueueStep] = []
        for operation in operations:
            match operation:
                case QueueAdd(pod=pod):
                    steps += self._add(pod)
                case QueueUpdate(old=old, new=new):
                    steps += self._update(operation, old, new)
                case QueueDelete(pod=pod):
                    steps += self._delete(operation, pod)
                case _:
                    steps.append(operation)
        return steps

    @property
    def held(self) -> Sequence[str]:
        """Return the uids of the pods that are kept out of the queue, in their order."""
        return sorted(self._held)

    def hold(self, uids: Iterable[str]) -> None:
        """Hold pods that another mirror held."""
        self._held.update(uids)

    def requeued(self, pod: Pod, *, by_pods: bool) -> None:
        """Follow AddUnschedulable: before v1.34 only the status' nomination is kept.

        An event may move the pod from now on, and with `by_pods` events of pods may.
        """
        if self.traits.renominates_from_status:
            self._put(pod, pod.nominated_node_name)
        self.pending.mark_movable(pod.uid, by_pods=by_pods)

    def gate_changed(self, pod: Pod) -> list[QueueStep]:
        """Follow a change of the plugins that gate a pod which has not changed itself."""
        gate = self._gate_of(pod)
        if self.traits.has_gates:
            if gate:
                self.pending.mark_movable(pod.uid, by_pods=False)
            self.pending.set_gated(pod.uid, gated=bool(gate))
            return [SetGates(pod=pod, gates=(gate,) if gate else ())]
        if gate or pod.uid not in self._held:
            return []
        self._held.discard(pod.uid)
        return self._add(pod)

    def after_failed_binding(self, pod: Pod, node_name: str) -> Sequence[QueueStep]:
        """Return the move after a failed binding, which frees the resources of its node.

        Its object is the pod as assumed, with the node, for hints ignore pods without one. The pod
        itself is not moved by it. v1.34 only; older versions have no such move.
        Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, assume, handleBindingCycleError.
        """
        if not self.traits.moves_after_failed_binding:
            return ()
        assumed = replace(pod, node_name=node_name)
        event = EventLabel.ASSIGNED_POD_DELETE
        return (Move(event=event, old=assumed, all_but_uid=pod.uid),)

    def _add(self, pod: Pod) -> list[QueueStep]:
        gate = self._gate_of(pod)
        if gate and not self.traits.has_gates:
            self._held.add(pod.uid)
            return []
        if pod.nominated_node_name:
            self._nominations.put(pod, pod.nominated_node_name)
        return [QueueAdd(pod=pod, gates=(gate,) if gate else ())]

    def _update(self, operation: QueueUpdate, old: Pod, new: Pod) -> list[QueueStep]:
        """Follow an update; if neither version has a nomination, the one in memory stays.

        Source: kubernetes v1.34 pkg/scheduler/backend/queue/nominator.go, UpdateNominatedPod.
        """
        if new.uid in self._held:
            self._held.discard(new.uid)
            return self._add(new)
        named = old.nominated_node_name or new.nominated_node_name
        self._put(new, new.nominated_node_name if named else self._nominations.node_of(new.uid))
        gate = self._gate_of(new) if self.traits.has_gates else ""
        return [replace(operation, gates=(gate,)) if gate else operation]

    def _delete(self, operation: QueueDelete, pod: Pod) -> list[QueueStep]:
        self._nominations.drop(pod.uid)
        if pod.uid in self._held:
            self._held.discard(pod.uid)
            return []
        return [operation]

    def _put(self, pod: Pod, node_name: str) -> None:
        if node_name:
            self._nominations.put(pod, node_name)
        else:
            self._nominations.drop(pod.uid)


_OF_PODS_ON_NODES = (EventLabel.ASSIGNED_POD_ADD, EventLabel.ASSIGNED_POD_UPDATE)


_GateKey = tuple[str, str | None]
"""The namespace and the name of an object that gates read; None: any name."""
_NO_PODS: Mapping[str, None] = {}


class PendingPods:
    """The pending pods of our profiles, those with an unanswered decision included."""

    __slots__ = (
        "_gated",
        "_gated_by",
        "_gates",
        "_movable",
        "_movable_by_pods",
        "_movable_now",
        "_pending_for_pods",
        "_pods",
    )

    def __init__(self) -> None:
        self._pods: dict[str, bool] = {}
        self._gates: dict[str, tuple[_GateKey, ...]] = {}
        self._gated_by: dict[_GateKey, dict[str, None]] = {}
        self._pending_for_pods = 0
        self._movable: dict[str, bool] = {}
        self._gated: set[str] = set()
        self._movable_now = 0
        self._movable_by_pods = 0

    def __len__(self) -> int:
        """Return the number of pending pods."""
        return len(self._pods)

    @property
    def any_for_pods(self) -> bool:
        """Return whether a pod assigned to a node may make one of them schedulable."""
        return self._pending_for_pods > 0

    def may_move(self, event: EventLabel, *, in_flight: bool) -> bool:
        """Return whether an event may move one of them, or a pod whose decision may be refused.

        `in_flight` is set where a decision waits for its answer. Events of assigned pods move only
        pods that were refused by plugins which read beyond single nodes: no other plugin registers
        for them, and a pod that was requeued without a plugin's name backs off in any case.
        """
        if event in _OF_PODS_ON_NODES and not self._any_movable_by_pods:
            return False
        return self._movable_now > 0 or in_flight

    def is_movable(self, uid: str) -> bool:
        """Return whether an event may move a pod that is not in flight."""
        return uid in self._movable and uid not in self._gated

    def users(self, of_claim: ClaimUsers) -> Iterator[str]:
        """Yield the UIDs of a claim's owners, and of the pending pods that may name it."""
        yield from of_claim.owner_uids
        yield from self.gated_by(of_claim.namespace, of_claim.claim_name)

    def may_be_read(self, event: EventLabel) -> bool:
        """Return whether a hint about one of them may read what an event is about.

        Events of assigned pods concern only pods whose plugins read beyond single nodes; events
        that free resources concern all.
        """
        if event in _OF_PODS_ON_NODES:
            return self._any_movable_by_pods
        return bool(self._pods)

    @property
    def _any_movable_by_pods(self) -> bool:
        return self._pending_for_pods > 0 or self._movable_by_pods > 0

    def uids(self) -> Sequence[str]:
        """Return their UIDs."""
        return tuple(self._pods)

    def items(self) -> Sequence[tuple[str, bool]]:
        """Return their UIDs, and whether other pods may make each schedulable, as last put."""
        return tuple(self._pods.items())

    def movable(self) -> Sequence[tuple[str, bool]]:
        """Return the UIDs of those that an event may move, and whether events of pods may."""
        return tuple(self._movable.items())

    def put(self, uid: str, *, waits_for_pods: bool) -> None:
        """Put a pod or replace it, `waits_for_pods` if other pods may make it schedulable."""
        self._pending_for_pods += waits_for_pods - self._pods.get(uid, False)
        self._pods[uid] = waits_for_pods

    def mark_movable(self, uid: str, *, by_pods: bool) -> None:
        """Note that an event may move a pod from now on, `by_pods` if events of pods may."""
        self._count_movable(uid, -1)
        self._movable[uid] = by_pods or self._movable.get(uid, False)
        self._count_movable(uid, 1)

    def set_gated(self, uid: str, *, gated: bool) -> None:
        """Note that a PreEnqueue plugin holds a pod, or holds it no longer."""
        if gated != (uid in self._gated):
            self._count_movable(uid, -1)
            (self._gated.add if gated else self._gated.discard)(uid)
            self._count_movable(uid, 1)

    def bound(self, uid: str) -> None:
        """Note that a pod has left the queue for good, though its event is not here yet."""
        self._count_movable(uid, -1)
        self._movable.pop(uid, None)

    def drop(self, uid: str) -> None:
        """Remove a pod; an unknown one is ignored."""
        waits_for_pods = self._pods.pop(uid, None)
        if waits_for_pods is None:
            return
        self._pending_for_pods -= waits_for_pods
        self.bound(uid)
        self._gated.discard(uid)
        self._drop_gate(uid)

    def _count_movable(self, uid: str, sign: int) -> None:
        if self.is_movable(uid):
            self._movable_now += sign
            self._movable_by_pods += sign * self._movable[uid]

    def put_gate(self, uid: str, namespace: str, names: Collection[str] | None) -> None:
        """Keep the names of the objects that a pod's gates read; None: any of the namespace."""
        keys = ((namespace, None),) if names is None else tuple((namespace, n) for n in names)
        if self._gates.get(uid, ()) == keys:
            return
        self._drop_gate(uid)
        if keys:
            self._gates[uid] = keys
        for key in keys:
            self._gated_by.setdefault(key, {})[uid] = None

    def gated_by(self, namespace: str, name: str) -> Sequence[str]:
        """Return the pods whose gates may read the object of that name, in their order."""
        by_name = self._gated_by.get((namespace, name), _NO_PODS)
        by_any = self._gated_by.get((namespace, None), _NO_PODS)
        if len(by_name) + len(by_any) <= 1:
            return tuple(by_name or by_any)
        return [uid for uid in self._pods if uid in by_name or uid in by_any]

    def _drop_gate(self, uid: str) -> None:
        for key in self._gates.pop(uid, ()):
            pods = self._gated_by.get(key)
            if pods is not None:
                pods.pop(uid, None)
                if not pods:
                    del self._gated_by[key]
