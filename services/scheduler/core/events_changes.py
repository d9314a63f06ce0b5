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
from services.scheduler.core.events_operations import ClusterEvent

NodeTest = Callable[[Node, Node], bool]
PodTest = Callable[[Pod, Pod], bool]


def _uncordoned(old: Node, new: Node) -> bool:
    return old.unschedulable and not new.unschedulable


def _condition_statuses(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.conditions}


def _conditions_changed(old: Node, new: Node) -> bool:
    return _condition_statuses(old) != _condition_statuses(new)


def _allocatable_changed(old: Node, new: Node) -> bool:
    return dict(old.allocatable) != dict(new.allocatable)


def _node_labels_changed(old: Node, new: Node) -> bool:
    return dict(old.labels) != dict(new.labels)


def _taints_changed(old: Node, new: Node) -> bool:
    return old.taints != new.taints


def _annotations_changed(old: Node, new: Node) -> bool:
    return dict(old.annotations) != dict(new.annotations)


_NODE_CHANGES: tuple[tuple[NodeTest, ClusterEvent], ...] = (
    (_uncordoned, ClusterEvent.NODE_TAINT_CHANGE),
    (_allocatable_changed, ClusterEvent.NODE_ALLOCATABLE_CHANGE),
    (_node_labels_changed, ClusterEvent.NODE_LABEL_CHANGE),
    (_taints_changed, ClusterEvent.NODE_TAINT_CHANGE),
    (_conditions_changed, ClusterEvent.NODE_CONDITION_CHANGE),
    (_annotations_changed, ClusterEvent.NODE_ANNOTATION_CHANGE),
)

_FIRST_NODE_CHANGE: tuple[tuple[NodeTest, ClusterEvent], ...] = (
    (_uncordoned, ClusterEvent.NODE_SPEC_UNSCHEDULABLE_CHANGE),
    (_allocatable_changed, ClusterEvent.NODE_ALLOCATABLE_CHANGE),
    (_node_labels_changed, ClusterEvent.NODE_LABEL_CHANGE),
    (_taints_changed, ClusterEvent.NODE_TAINT_CHANGE),
    (_conditions_changed, ClusterEvent.NODE_CONDITION_CHANGE),
)


def node_changes(old: Node, new: Node) -> Sequence[ClusterEvent]:
    """Return every change of a node that may matter, in upstream's order (v1.34).

    Uncordoning counts as a change of taints, so that event may come twice.
    """
    return [event for changed, event in _NODE_CHANGES if changed(old, new)]


def first_node_change(old: Node, new: Node) -> ClusterEvent | None:
    """Return the first change of a node that may matter; None without any (v1.20)."""
    changes = (event for changed, event in _FIRST_NODE_CHANGE if changed(old, new))
    return next(changes, None)


def _pod_labels_changed(old: Pod, new: Pod) -> bool:
    return old.labels is not new.labels and dict(old.labels) != dict(new.labels)


def _asks_for_less(old: Pod, new: Pod) -> bool:
    return scaled_down(old.spec, new.spec)


def _gates_eliminated(old: Pod, new: Pod) -> bool:
    return bool(old.spec.scheduling_gates) and not new.spec.scheduling_gates


def _tolerations_changed(old: Pod, new: Pod) -> bool:
    return len(old.spec.tolerations) != len(new.spec.tolerations)


_ASSIGNED_POD_CHANGES: tuple[tuple[PodTest, ClusterEvent], ...] = (
    (_pod_labels_changed, ClusterEvent.ASSIGNED_POD_LABEL_CHANGE),
    (_asks_for_less, ClusterEvent.ASSIGNED_POD_SCALE_DOWN),
    (_gates_eliminated, ClusterEvent.ASSIGNED_POD_GATES_ELIMINATED),
    (_tolerations_changed, ClusterEvent.ASSIGNED_POD_TOLERATION_CHANGE),
)

_PENDING_POD_CHANGES: tuple[tuple[PodTest, ClusterEvent], ...] = (
    (_pod_labels_changed, ClusterEvent.PENDING_POD_LABEL_CHANGE),
    (_asks_for_less, ClusterEvent.PENDING_POD_SCALE_DOWN),
    (_gates_eliminated, ClusterEvent.PENDING_POD_GATES_ELIMINATED),
    (_tolerations_changed, ClusterEvent.PENDING_POD_TOLERATION_CHANGE),
)


def pod_changes(old: Pod, new: Pod) -> Sequence[ClusterEvent]:
    """Return every change of a pod that may matter, in upstream's order (v1.34).

    A change that is none of these is a general update. Device claims are not read, nor are
    requests in a pod's status.
    """
    pending = not new.node_name
    general = ClusterEvent.PENDING_POD_UPDATE if pending else ClusterEvent.ASSIGNED_POD_UPDATE
    if old.spec is new.spec and old.labels is new.labels:
        return [general]
    tests = _PENDING_POD_CHANGES if pending else _ASSIGNED_POD_CHANGES
    return [event for changed, event in tests if changed(old, new)] or [general]
