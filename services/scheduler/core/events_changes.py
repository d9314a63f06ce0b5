"""What changed between two versions of a node or of a pod, as cluster events.

Source: kubernetes v1.34 pkg/scheduler/framework/events.go, NodeSchedulingPropertiesChange and
PodSchedulingPropertiesChange; v1.20 pkg/scheduler/eventhandlers.go,
nodeSchedulingPropertiesChange.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from services.kube.node import Node
from services.kube.pod import Pod
from services.kube.requests import scaled_down
from services.scheduler.core.queue_steps import ClusterEvent

_Node = Callable[[Node, Node], bool]
_Pod = Callable[[Pod, Pod], bool]


def _statuses(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.conditions}


def _uncordoned(old: Node, new: Node) -> bool:
    return old.unschedulable and not new.unschedulable


_NODE_CHANGES: tuple[tuple[_Node, ClusterEvent], ...] = (
    (
        lambda old, new: dict(old.allocatable) != dict(new.allocatable),
        ClusterEvent.NODE_ALLOCATABLE_CHANGE,
    ),
    (lambda old, new: dict(old.labels) != dict(new.labels), ClusterEvent.NODE_LABEL_CHANGE),
    (lambda old, new: old.taints != new.taints, ClusterEvent.NODE_TAINT_CHANGE),
    (lambda old, new: _statuses(old) != _statuses(new), ClusterEvent.NODE_CONDITION_CHANGE),
)


def node_changes(old: Node, new: Node) -> Sequence[ClusterEvent]:
    """Return every change of a node that may matter, in upstream's order (v1.34).

    Uncordoning counts as a change of taints, so that event may come twice.
    """
    changes = [ClusterEvent.NODE_TAINT_CHANGE] if _uncordoned(old, new) else []
    changes += [event for changed, event in _NODE_CHANGES if changed(old, new)]
    if dict(old.annotations) != dict(new.annotations):
        changes.append(ClusterEvent.NODE_ANNOTATION_CHANGE)
    return changes


def first_node_change(old: Node, new: Node) -> ClusterEvent | None:
    """Return the first change of a node that may matter; None without any (v1.20)."""
    if _uncordoned(old, new):
        return ClusterEvent.NODE_SPEC_UNSCHEDULABLE_CHANGE
    return next((event for changed, event in _NODE_CHANGES if changed(old, new)), None)


_POD_CHANGES: tuple[tuple[_Pod, ClusterEvent, ClusterEvent], ...] = (
    (
        lambda old, new: old.labels is not new.labels and dict(old.labels) != dict(new.labels),
        ClusterEvent.ASSIGNED_POD_LABEL_CHANGE,
        ClusterEvent.PENDING_POD_LABEL_CHANGE,
    ),
    (
        lambda old, new: scaled_down(old.spec, new.spec),
        ClusterEvent.ASSIGNED_POD_SCALE_DOWN,
        ClusterEvent.PENDING_POD_SCALE_DOWN,
    ),
    (
        lambda old, new: bool(old.spec.scheduling_gates) and not new.spec.scheduling_gates,
        ClusterEvent.ASSIGNED_POD_GATES_ELIMINATED,
        ClusterEvent.PENDING_POD_GATES_ELIMINATED,
    ),
    (
        lambda old, new: len(old.spec.tolerations) != len(new.spec.tolerations),
        ClusterEvent.ASSIGNED_POD_TOLERATION_CHANGE,
        ClusterEvent.PENDING_POD_TOLERATION_CHANGE,
    ),
)
"""Each with the event of a pod on a node, and of one that waits."""


def pod_changes(old: Pod, new: Pod) -> Sequence[ClusterEvent]:
    """Return every change of a pod that may matter, in upstream's order (v1.34).

    A change that is none of these is a general update. Device claims are not read, nor are
    requests in a pod's status.
    """
    pending = not new.node_name
    general = ClusterEvent.PENDING_POD_UPDATE if pending else ClusterEvent.ASSIGNED_POD_UPDATE
    if old.spec is new.spec and old.labels is new.labels:
        return [general]
    changes = [events[pending] for changed, *events in _POD_CHANGES if changed(old, new)]
    return changes or [general]
