"""What each version's handlers tell the queue, chosen once by the queue's mode.

Both versions route pods alike (events.py); they differ in what a single change causes.

Source: kubernetes v1.34 (queueing hints on) and v1.20 pkg/scheduler/eventhandlers.go.
"""

from __future__ import annotations

from dataclasses import replace

from services.kube.node import Node
from services.kube.pod import Pod
from services.scheduler.core.events_changes import first_node_change, node_changes, pod_changes
from services.scheduler.core.queue_steps import (
    AssignedPodAdd,
    AssignedPodUpdate,
    ClusterEvent,
    Move,
    QueueDelete,
    QueueOperation,
    QueueUpdate,
)


class EventHandlers:
    """What v1.34's handlers answer: every event carries its objects, for the queueing hints.

    No check of the pods against the node comes before a move; with hints on there is none.
    """

    def node_updated(
        self, old: Node, new: Node, *, none_unschedulable: bool
    ) -> tuple[QueueOperation, ...]:
        """Move once for each kind of change of a node.

        `none_unschedulable` tells that the queue holds no unschedulable pod.
        """
        del none_unschedulable
        return tuple(Move(event=event, old=old, new=new) for event in node_changes(old, new))

    def node_deleted(self, node: Node) -> tuple[QueueOperation, ...]:
        """Move for a node's end: a node less may even out a spread."""
        return (Move(event=ClusterEvent.NODE_DELETE, old=node),)

    def assigned_added(self, pod: Pod) -> tuple[QueueOperation, ...]:
        """Move for a pod that came to a node."""
        return (Move(event=ClusterEvent.ASSIGNED_POD_ADD, new=pod),)

    def assigned_updated(self, old: Pod, new: Pod) -> tuple[QueueOperation, ...]:
        """Move once for each kind of change of a pod on a node."""
        return tuple(Move(event=event, old=old, new=new) for event in pod_changes(old, new))

    def pending_updated(
        self, old: Pod, new: Pod, *, assumed: Pod | None
    ) -> tuple[QueueOperation, ...]:
        """Update the queue unless the pod is `assumed`, which is the pod as it was then.

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
        """Take the pod out; what it was assumed or nominated to take becomes free.

        One that waits on Permit is rejected at the same time.
        A nominated pod that is bound passes here too, so a binding wakes pods as well; upstream
        stopped that in v1.35.
        """
        delete = QueueDelete(pod=pod)
        if waits_on_permit:
            return delete, Move(event=ClusterEvent.ASSIGNED_POD_DELETE, old=pod)
        if pod.nominated_node_name:
            return delete, _nomination_ended(pod)
        return (delete,)


class HandlersV120(EventHandlers):
    """Handlers of v1.20, and of v1.16, whose events differ in nothing that the queue reads."""

    def node_updated(
        self, old: Node, new: Node, *, none_unschedulable: bool
    ) -> tuple[QueueOperation, ...]:
        """Move for the first kind of change.

        With no unschedulable pod there is a move for any update: it moves nothing, but a pod
        whose cycle is under way then goes to backoffQ when it fails.
        """
        if none_unschedulable:
            return (Move(event=ClusterEvent.UNKNOWN, old=old, new=new),)
        event = first_node_change(old, new)
        return () if event is None else (Move(event=event, old=old, new=new),)

    def node_deleted(self, node: Node) -> tuple[QueueOperation, ...]:
        """Answer nothing."""
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
        """Take the pod out; nobody is woken."""
        del waits_on_permit
        return (QueueDelete(pod=pod),)


V1_34 = EventHandlers()
V1_20 = HandlersV120()


def _nomination_ended(pod: Pod) -> Move:
    return Move(event=ClusterEvent.ASSIGNED_POD_DELETE, old=pod, priority_at_most=pod.priority)


def _as_compared(pod: Pod) -> Pod:
    return replace(pod, resource_version="", node_name="", annotations={}, conditions=())
