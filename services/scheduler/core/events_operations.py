"""What the scheduler tells its queue, as values."""

from __future__ import annotations

from services.kube.node import Node
from services.kube.pod import Pod
from services.kube.value import value
from services.scheduler.core.catalog import Kept
from services.scheduler.core.events_labels import ClusterEvent


@value(kw_only=True)
class QueueAdd:
    """A pod waits to be scheduled; `gates` are the PreEnqueue plugins that hold it back."""

    pod: Pod
    gates: tuple[str, ...] = ()


@value(kw_only=True)
class QueueUpdate:
    """A waiting pod has changed; `gates` are the PreEnqueue plugins that hold it back now."""

    old: Pod
    new: Pod
    gates: tuple[str, ...] = ()


@value(kw_only=True)
class QueueDelete:
    """A pod waits no longer: it has gone, has finished or has got a node."""

    pod: Pod


@value(kw_only=True)
class AssignedPodAdd:
    """A pod has come to a node: older queues move the pods whose affinity it meets."""

    pod: Pod


@value(kw_only=True)
class AssignedPodUpdate:
    """A pod on a node has changed: older queues move the pods whose affinity it meets."""

    old: Pod
    new: Pod


@value(kw_only=True)
class Move:
    """Unschedulable pods may have become schedulable.

    `old` is None for what came and `new` for what went. Only pods of a priority of at most
    `priority_at_most` are moved, where it is not None, and never the pod `all_but_uid`.
    """

    event: ClusterEvent
    old: Pod | Node | Kept | None = None
    new: Pod | Node | Kept | None = None
    priority_at_most: int | None = None
    all_but_uid: str = ""

    @property
    def label(self) -> str:
        """Return the event's label."""
        return self.event.value


QueueOperation = QueueAdd | QueueUpdate | QueueDelete | AssignedPodAdd | AssignedPodUpdate | Move
