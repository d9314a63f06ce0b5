"""The informer event handlers: how a change in the cluster changes the snapshot and the queue.

A pod is assigned (the snapshot's), pending (the queue's, if its scheduler name is ours) or neither;
the meaning of an event follows from where the pod was and where it is. A finished pod counts as
deleted: upstream's scheduler does not watch such pods. The versions route pods alike and differ in
what a single change causes: `EventHandlers` (v1.34) or `HandlersV120`, chosen once by the queue's
version. Those of v1.34 are upstream's with queueing hints on, and are used with hints off, too,
where upstream also checks each pod against the node before a move (preCheckForNode).

Source: kubernetes v1.34 pkg/scheduler/eventhandlers.go, addAllEventHandlers (two filtering
handlers, the snapshot's first); pkg/scheduler/scheduler.go, newPodInformer (the field selector
on status.phase); v1.20 likewise.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from services.kube.node import Node
from services.kube.pod import Pod
from services.scheduler.core.queueing.changes import first_node_change, node_changes, pod_events
from services.scheduler.core.queueing.steps import (
    AssignedPodAdd,
    AssignedPodUpdate,
    EventLabel,
    Move,
    QueueAdd,
    QueueDelete,
    QueueOperation,
    QueueUpdate,
)


class SnapshotChange(Enum):
    """The change of a pod in the snapshot."""

    NONE = "none"
    ADD = "add"
    UPDATE = "update"
    DELETE = "delete"


# Constants for members: in Python 3.11 each access to a member of an Enum is a function call.
_NONE, _ADD, _UPDATE, _DELETE = SnapshotChange


class PodEffects(NamedTuple):
    """The effects of a pod's event: on the snapshot first, then on the queue, in order.

    `snapshot` ADD confirms a pod that was assumed. `snapshot` DELETE and UPDATE concern the old
    pod. `replaced` is an old pod of another UID under the same name, which is deleted from the
    snapshot before that; None otherwise.
    """

    snapshot: SnapshotChange
    operations: tuple[QueueOperation, ...]
    replaced: Pod | None = None


def on_pod(
    old: Pod | None,
    new: Pod | None,
    *,
    handlers: EventHandlers,
    scheduler_names: Collection[str],
    assumed: Pod | None = None,
    waits_on_permit: bool = False,
) -> PodEffects:
    """Return the effects of a pod that was added (`old` None), changed or was deleted (`new` None).

    `scheduler_names` are those of our profiles. `assumed` is the pod as our scheduler assumed
    it on a node, None where it did not; `waits_on_permit` says that a Permit plugin holds it.
    An update with an unchanged resource version is ignored.
    """
    if old is not None and new is not None and old.uid != new.uid:
        return _on_replaced(
            old,
            new,
            handlers=handlers,
            scheduler_names=scheduler_names,
            waits_on_permit=waits_on_permit,
        )
    before, after = _seen(old), _seen(new)
    if before is not None and before.node_name:
        if after is not None and after.node_name:
            return PodEffects(_UPDATE, handlers.assigned_updated(before, after))
        change = _DELETE
        operations: tuple[QueueOperation, ...] = (
            Move(event=EventLabel.ASSIGNED_POD_DELETE, old=before),
        )
    elif after is not None and after.node_name:
        change, operations = _ADD, handlers.assigned_added(after)
    else:
        change, operations = _NONE, ()
    waiting, is_bound = _ours(before, scheduler_names), after is not None and after.node_name
    if waiting is not None and is_bound:
        operations += handlers.pending_bound(waiting, waits_on_permit=waits_on_permit)
    else:
        operations += _on_waiting(
            waiting,
            _ours(after, scheduler_names),
            handlers=handlers,
            assumed=assumed,
            waits_on_permit=waits_on_permit,
        )
    return PodEffects(change, operations)


def on_node_added(node: Node) -> tuple[QueueOperation, ...]:
    """Return the operations for a new node."""
    return (Move(event=EventLabel.NODE_ADD, new=node),)


def on_node_updated(old: Node, new: Node, *, handlers: EventHandlers) -> tuple[QueueOperation, ...]:
    """Return the operations for a node's change."""
    return handlers.node_updated(old, new)


def on_node_deleted(node: Node, *, handlers: EventHandlers) -> tuple[QueueOperation, ...]:
    """Return the operations for a deleted node."""
    return handlers.node_deleted(node)


def _on_waiting(
    old: Pod | None,
    new: Pod | None,
    *,
    handlers: EventHandlers,
    assumed: Pod | None,
    waits_on_permit: bool,
) -> tuple[QueueOperation, ...]:
    """Return the operations for a change of a pending pod of one of our profiles."""
    if old is None:
        return () if new is None else (QueueAdd(pod=new),)
    if new is None:
        return handlers.pending_deleted(old, waits_on_permit=waits_on_permit)
    if old.resource_version and old.resource_version == new.resource_version:
        return ()
    return handlers.pending_updated(old, new, assumed=assumed)


def _ours(pod: Pod | None, scheduler_names: Collection[str]) -> Pod | None:
    """Return the pod if it is pending and one of our profiles schedules it, else None."""
    if pod is None or pod.node_name or pod.spec.scheduler_name not in scheduler_names:
        return None
    return pod


def _on_replaced(
    old: Pod,
    new: Pod,
    *,
    handlers: EventHandlers,
    scheduler_names: Collection[str],
    waits_on_permit: bool,
) -> PodEffects:
    went = on_pod(
        old,
        None,
        handlers=handlers,
        scheduler_names=scheduler_names,
        waits_on_permit=waits_on_permit,
    )
    came = on_pod(None, new, handlers=handlers, scheduler_names=scheduler_names)
    return PodEffects(
        snapshot=came.snapshot,
        operations=(*went.operations, *came.operations),
        replaced=old if went.snapshot is SnapshotChange.DELETE else None,
    )


def _seen(pod: Pod | None) -> Pod | None:
    return None if pod is None or pod.is_terminal else pod


class EventHandlers:
    """v1.34's handlers: every event carries its objects, for the queueing hints.

    No check of the pods against the node precedes a move: upstream has one only with hints off.
    """

    def node_updated(self, old: Node, new: Node) -> tuple[QueueOperation, ...]:
        """Move once for each kind of change of a node."""
        return tuple(Move(event=event, old=old, new=new) for event in node_changes(old, new))

    def node_deleted(self, node: Node) -> tuple[QueueOperation, ...]:
        """Move for a deleted node: without it, a topology spread may have less skew."""
        return (Move(event=EventLabel.NODE_DELETE, old=node),)

    def assigned_added(self, pod: Pod) -> tuple[QueueOperation, ...]:
        """Move for a pod that was assigned to a node."""
        return (Move(event=EventLabel.ASSIGNED_POD_ADD, new=pod),)

    def assigned_updated(self, old: Pod, new: Pod) -> tuple[QueueOperation, ...]:
        """Move once for each kind of change of a pod on a node."""
        return tuple(Move(event=event, old=old, new=new) for event in pod_events(old, new))

    def pending_updated(
        self, old: Pod, new: Pod, *, assumed: Pod | None
    ) -> tuple[QueueOperation, ...]:
        """Update the queue unless the pod is assumed; `assumed` is its version of that time.

        A nomination that ends or changes frees its old node for pods of at most that priority.
        """
        if assumed is not None:
            return ()
        update = QueueUpdate(old=old, new=new)
        nominated = old.nominated_node_name
        if nominated and nominated != new.nominated_node_name:
            return update, _nomination_ended(old)
        return (update,)

    def pending_deleted(self, pod: Pod, *, waits_on_permit: bool) -> tuple[QueueOperation, ...]:
        """Delete the pod; the resources that it was assumed or nominated to use become free.

        One that waits on Permit is rejected at the same time.
        """
        delete = QueueDelete(pod=pod)
        if waits_on_permit:
            return delete, Move(event=EventLabel.ASSIGNED_POD_DELETE, old=pod)
        if pod.nominated_node_name:
            return delete, _nomination_ended(pod)
        return (delete,)

    def pending_bound(self, pod: Pod, *, waits_on_permit: bool) -> tuple[QueueOperation, ...]:
        """Handle a bound pod as a deleted one, so that a binding moves unschedulable pods.

        Upstream stopped that in v1.35.
        """
        return self.pending_deleted(pod, waits_on_permit=waits_on_permit)


class HandlersV136(EventHandlers):
    """v1.36's handlers: nodes declare features, and a binding frees no nomination.

    Source: kubernetes v1.36 pkg/scheduler/eventhandlers.go, updatePod,
    deletePodFromSchedulingQueue; framework/events.go, NodeSchedulingPropertiesChange.
    """

    def node_updated(self, old: Node, new: Node) -> tuple[QueueOperation, ...]:
        """Move once for each kind of change, that of the declared features last."""
        moves = super().node_updated(old, new)
        if old.declared_features == new.declared_features:
            return moves
        return *moves, Move(event=EventLabel.NODE_DECLARED_FEATURE_CHANGE, old=old, new=new)

    def pending_bound(self, pod: Pod, *, waits_on_permit: bool) -> tuple[QueueOperation, ...]:
        """Delete the pod; its binding moves no other pod."""
        del waits_on_permit
        return (QueueDelete(pod=pod),)


class HandlersV120(EventHandlers):
    """Handlers of v1.20, and of v1.16, whose events differ in nothing that the queue reads."""

    def node_updated(self, old: Node, new: Node) -> tuple[QueueOperation, ...]:
        """Move for the first kind of change.

        Upstream moves for any update while no pod is unschedulable, which only the queue knows.
        Source: kubernetes v1.20 pkg/scheduler/eventhandlers.go, updateNodeInCache (v1.16 likewise).
        """
        event = first_node_change(old, new)
        return () if event is None else (Move(event=event, old=old, new=new),)

    def node_deleted(self, node: Node) -> tuple[QueueOperation, ...]:
        """Return no operation."""
        del node
        return ()

    def assigned_added(self, pod: Pod) -> tuple[QueueOperation, ...]:
        """Leave the choice of pods to the queue."""
        return (AssignedPodAdd(pod=pod),)

    def assigned_updated(self, old: Pod, new: Pod) -> tuple[QueueOperation, ...]:
        """Leave the choice of pods to the queue."""
        return (AssignedPodUpdate(old=old, new=new),)

    def pending_updated(
        self, old: Pod, new: Pod, *, assumed: Pod | None
    ) -> tuple[QueueOperation, ...]:
        """Update the queue, even for an assumed pod unless only unimportant fields differ.

        Source: kubernetes v1.20 pkg/scheduler/eventhandlers.go, skipPodUpdate.
        """
        if assumed is not None and _as_compared(assumed) == _as_compared(new):
            return ()
        return (QueueUpdate(old=old, new=new),)

    def pending_deleted(self, pod: Pod, *, waits_on_permit: bool) -> tuple[QueueOperation, ...]:
        """Delete the pod; no other pod is moved."""
        del waits_on_permit
        return (QueueDelete(pod=pod),)


V1_36 = HandlersV136()
V1_34 = EventHandlers()
V1_20 = HandlersV120()


def _nomination_ended(pod: Pod) -> Move:
    return Move(event=EventLabel.ASSIGNED_POD_DELETE, old=pod, priority_at_most=pod.priority)


def _as_compared(pod: Pod) -> Pod:
    return replace(pod, resource_version="", node_name="", annotations={}, conditions=())
