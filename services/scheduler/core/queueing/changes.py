"""What changed between two versions of an object, as cluster events.

`node_changes` and `pod_events` compare two versions. `on_object` returns the move for objects
beside pods, nodes and budgets, by the queue's mode.

Source: kubernetes v1.34 pkg/scheduler/framework/events.go, NodeSchedulingPropertiesChange and
PodSchedulingPropertiesChange; pkg/scheduler/eventhandlers.go, addAllEventHandlers, for the events
that in-tree plugins register (EventsToRegister); v1.20 pkg/scheduler/eventhandlers.go,
nodeSchedulingPropertiesChange, onPvAdd to onServiceDelete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from services.kube.changes import PodChange, pod_changes
from services.kube.node import Node
from services.kube.pod import Pod
from services.kube.storage import BindingMode, StorageClass
from services.scheduler.core.queueing.steps import ClusterEvent, Move
from services.scheduler.core.snapshot.catalog import CatalogObject

_Node = Callable[[Node, Node], bool]


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


_POD_EVENTS: Mapping[PodChange, tuple[ClusterEvent, ClusterEvent]] = MappingProxyType(
    {
        PodChange.LABEL: (
            ClusterEvent.ASSIGNED_POD_LABEL_CHANGE,
            ClusterEvent.PENDING_POD_LABEL_CHANGE,
        ),
        PodChange.SCALE_DOWN: (
            ClusterEvent.ASSIGNED_POD_SCALE_DOWN,
            ClusterEvent.PENDING_POD_SCALE_DOWN,
        ),
        PodChange.SCHEDULING_GATES_ELIMINATED: (
            ClusterEvent.ASSIGNED_POD_GATES_ELIMINATED,
            ClusterEvent.PENDING_POD_GATES_ELIMINATED,
        ),
        PodChange.TOLERATION: (
            ClusterEvent.ASSIGNED_POD_TOLERATION_CHANGE,
            ClusterEvent.PENDING_POD_TOLERATION_CHANGE,
        ),
    }
)
"""The events of each change: of an assigned pod, and of a pending one."""


def pod_events(old: Pod, new: Pod) -> Sequence[ClusterEvent]:
    """Return the events of a pod's changes, in upstream's order (v1.34).

    Any other change is a general update.
    """
    pending = not new.node_name
    if old.spec is not new.spec or old.labels is not new.labels:
        changes = [_POD_EVENTS[each][pending] for each in pod_changes(old, new)]
        if changes:
            return changes
    return [ClusterEvent.PENDING_POD_UPDATE if pending else ClusterEvent.ASSIGNED_POD_UPDATE]


_IMMEDIATE = "immediate StorageClass"
"""A class whose claims are bound at once, which v1.20 lets no pod wait for."""

ObjectEvents = Mapping[tuple[str, str], ClusterEvent]
"""The event of each (value's type, "add", "update" or "delete") that moves pods."""

V1_34: ObjectEvents = MappingProxyType(
    {
        ("PersistentVolume", "add"): ClusterEvent.VOLUME_ADD,
        ("PersistentVolume", "update"): ClusterEvent.VOLUME_UPDATE,
        ("PersistentVolumeClaim", "add"): ClusterEvent.CLAIM_ADD,
        ("PersistentVolumeClaim", "update"): ClusterEvent.CLAIM_UPDATE,
        ("StorageClass", "add"): ClusterEvent.STORAGE_CLASS_ADD,
        ("StorageClass", "update"): ClusterEvent.STORAGE_CLASS_UPDATE,
        (_IMMEDIATE, "add"): ClusterEvent.STORAGE_CLASS_ADD,
        (_IMMEDIATE, "update"): ClusterEvent.STORAGE_CLASS_UPDATE,
        ("CsiNode", "add"): ClusterEvent.CSI_NODE_ADD,
        ("CsiNode", "update"): ClusterEvent.CSI_NODE_UPDATE,
        ("CsiDriver", "update"): ClusterEvent.CSI_DRIVER_UPDATE,
        ("CsiStorageCapacity", "add"): ClusterEvent.CSI_STORAGE_CAPACITY_ADD,
        ("CsiStorageCapacity", "update"): ClusterEvent.CSI_STORAGE_CAPACITY_UPDATE,
        ("VolumeAttachment", "delete"): ClusterEvent.VOLUME_ATTACHMENT_DELETE,
    }
)

V1_20: ObjectEvents = MappingProxyType(
    {
        ("PersistentVolume", "add"): ClusterEvent.PV_ADD,
        ("PersistentVolume", "update"): ClusterEvent.PV_UPDATE,
        ("PersistentVolumeClaim", "add"): ClusterEvent.PVC_ADD,
        ("PersistentVolumeClaim", "update"): ClusterEvent.PVC_UPDATE,
        ("StorageClass", "add"): ClusterEvent.STORAGE_CLASS_ADD,
        ("CsiNode", "add"): ClusterEvent.CSI_NODE_ADD,
        ("CsiNode", "update"): ClusterEvent.CSI_NODE_UPDATE,
        ("Service", "add"): ClusterEvent.SERVICE_ADD,
        ("Service", "update"): ClusterEvent.SERVICE_UPDATE,
        ("Service", "delete"): ClusterEvent.SERVICE_DELETE,
    }
)


def on_object(
    old: CatalogObject | None, new: CatalogObject | None, events: ObjectEvents
) -> tuple[Move, ...]:
    """Return the move for a change; `old` is None for a new object, `new` for a deleted one."""
    value = new if new is not None else old
    action = "update" if old is not None and new is not None else "add" if new else "delete"
    event = events.get((_type(value), action))
    return () if event is None else (Move(event=event, old=old, new=new),)


def _type(value: CatalogObject | None) -> str:
    if isinstance(value, StorageClass) and value.binding_mode is BindingMode.IMMEDIATE:
        return _IMMEDIATE
    return type(value).__name__
