"""What changed between two versions of an object, as cluster events.

Source: kubernetes v1.34 pkg/scheduler/framework/events.go, NodeSchedulingPropertiesChange and
PodSchedulingPropertiesChange; v1.20 pkg/scheduler/eventhandlers.go,
nodeSchedulingPropertiesChange.

What the queue is told of the objects beside pods, nodes and budgets, by the queue's mode.

Source: kubernetes v1.34 pkg/scheduler/eventhandlers.go, addAllEventHandlers, for the events that
in-tree plugins register (EventsToRegister); v1.20 pkg/scheduler/eventhandlers.go, onPvAdd to
onServiceDelete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from services.kube.node import Node
from services.kube.pod import Pod
from services.kube.requests import scaled_down
from services.kube.storage import BindingMode, StorageClass
from services.scheduler.core.queueing.steps import ClusterEvent, Move
from services.scheduler.core.snapshot.catalog import Kept

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


def on_object(old: Kept | None, new: Kept | None, events: ObjectEvents) -> tuple[Move, ...]:
    """Return the move that a change causes; `old` is None for what came, `new` for what went."""
    value = new if new is not None else old
    action = "update" if old is not None and new is not None else "add" if new else "delete"
    event = events.get((_type(value), action))
    return () if event is None else (Move(event=event, old=old, new=new),)


def _type(value: Kept | None) -> str:
    if isinstance(value, StorageClass) and value.binding_mode is BindingMode.IMMEDIATE:
        return _IMMEDIATE
    return type(value).__name__
