"""Converts the difference between two versions of an object to cluster events.

`node_changes` and `pod_events` compare two versions. `on_object` returns the move for objects
beside pods, nodes and budgets, by the queue's version.

Source: kubernetes v1.34 pkg/scheduler/framework/events.go, NodeSchedulingPropertiesChange and
PodSchedulingPropertiesChange; pkg/scheduler/eventhandlers.go, addAllEventHandlers, for the events
that in-tree plugins register (EventsToRegister); v1.20 pkg/scheduler/eventhandlers.go,
nodeSchedulingPropertiesChange, onPvAdd to onServiceDelete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from services.framework.snapshot.catalog import CatalogObject
from services.kube.changes import PodChange, pod_changes
from services.kube.node import Node
from services.kube.pod import Pod
from services.kube.requests import is_resize_reported
from services.kube.storage import BindingMode, StorageClass
from services.scheduler.core.queueing.steps import EventLabel, Move

_Node = Callable[[Node, Node], bool]


def _statuses(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.conditions}


def _uncordoned(old: Node, new: Node) -> bool:
    return old.unschedulable and not new.unschedulable


_NODE_CHANGES: tuple[tuple[_Node, EventLabel], ...] = (
    (
        lambda old, new: dict(old.allocatable) != dict(new.allocatable),
        EventLabel.NODE_ALLOCATABLE_CHANGE,
    ),
    (lambda old, new: dict(old.labels) != dict(new.labels), EventLabel.NODE_LABEL_CHANGE),
    (lambda old, new: old.taints != new.taints, EventLabel.NODE_TAINT_CHANGE),
    (lambda old, new: _statuses(old) != _statuses(new), EventLabel.NODE_CONDITION_CHANGE),
)


def node_changes(old: Node, new: Node) -> Sequence[EventLabel]:
    """Return every change of a node that may matter, in upstream's order (v1.34).

    Uncordoning counts as a change of taints, so that event may come twice.
    """
    changes = [EventLabel.NODE_TAINT_CHANGE] if _uncordoned(old, new) else []
    changes += [event for changed, event in _NODE_CHANGES if changed(old, new)]
    if dict(old.annotations) != dict(new.annotations):
        changes.append(EventLabel.NODE_ANNOTATION_CHANGE)
    return changes


def first_node_change(old: Node, new: Node) -> EventLabel | None:
    """Return the first change of a node that may matter; None without any (v1.20)."""
    if _uncordoned(old, new):
        return EventLabel.NODE_SPEC_UNSCHEDULABLE_CHANGE
    return next((event for changed, event in _NODE_CHANGES if changed(old, new)), None)


_POD_EVENTS: Mapping[PodChange, tuple[EventLabel, EventLabel]] = MappingProxyType(
    {
        PodChange.LABEL: (
            EventLabel.ASSIGNED_POD_LABEL_CHANGE,
            EventLabel.PENDING_POD_LABEL_CHANGE,
        ),
        PodChange.SCALE_DOWN: (
            EventLabel.ASSIGNED_POD_SCALE_DOWN,
            EventLabel.PENDING_POD_SCALE_DOWN,
        ),
        PodChange.SCHEDULING_GATES_ELIMINATED: (
            EventLabel.ASSIGNED_POD_GATES_ELIMINATED,
            EventLabel.PENDING_POD_GATES_ELIMINATED,
        ),
        PodChange.TOLERATION: (
            EventLabel.ASSIGNED_POD_TOLERATION_CHANGE,
            EventLabel.PENDING_POD_TOLERATION_CHANGE,
        ),
        PodChange.GENERATED_RESOURCE_CLAIM: (
            EventLabel.ASSIGNED_POD_CLAIMS_GENERATED,
            EventLabel.PENDING_POD_CLAIMS_GENERATED,
        ),
    }
)
"""The events of each change: of an assigned pod, and of a pending one."""


def pod_events(old: Pod, new: Pod) -> Sequence[EventLabel]:
    """Return the events of a pod's changes, in upstream's order (v1.34).

    Any other change is a general update.
    """
    pending = not new.node_name
    if (
        old.spec is not new.spec
        or old.labels is not new.labels
        or old.claim_names != new.claim_names
        or is_resize_reported(old, new)
    ):
        changes = [_POD_EVENTS[change][pending] for change in pod_changes(old, new)]
        if changes:
            return changes
    return [EventLabel.PENDING_POD_UPDATE if pending else EventLabel.ASSIGNED_POD_UPDATE]


_IMMEDIATE = "immediate StorageClass"
"""A class whose claims are bound at once, which v1.20 lets no pod wait for."""

CatalogEvents = Mapping[tuple[str, str], EventLabel]
"""The event of each (value's type, "add", "update" or "delete") that moves pods."""

V1_34: CatalogEvents = MappingProxyType(
    {
        ("PersistentVolume", "add"): EventLabel.VOLUME_ADD,
        ("PersistentVolume", "update"): EventLabel.VOLUME_UPDATE,
        ("PersistentVolumeClaim", "add"): EventLabel.CLAIM_ADD,
        ("PersistentVolumeClaim", "update"): EventLabel.CLAIM_UPDATE,
        ("StorageClass", "add"): EventLabel.STORAGE_CLASS_ADD,
        ("StorageClass", "update"): EventLabel.STORAGE_CLASS_UPDATE,
        (_IMMEDIATE, "add"): EventLabel.STORAGE_CLASS_ADD,
        (_IMMEDIATE, "update"): EventLabel.STORAGE_CLASS_UPDATE,
        ("CsiNode", "add"): EventLabel.CSI_NODE_ADD,
        ("CsiNode", "update"): EventLabel.CSI_NODE_UPDATE,
        ("CsiDriver", "update"): EventLabel.CSI_DRIVER_UPDATE,
        ("CsiStorageCapacity", "add"): EventLabel.CSI_STORAGE_CAPACITY_ADD,
        ("CsiStorageCapacity", "update"): EventLabel.CSI_STORAGE_CAPACITY_UPDATE,
        ("VolumeAttachment", "delete"): EventLabel.VOLUME_ATTACHMENT_DELETE,
        ("ResourceClaim", "add"): EventLabel.RESOURCE_CLAIM_ADD,
        ("ResourceClaim", "update"): EventLabel.RESOURCE_CLAIM_UPDATE,
        ("DeviceClass", "add"): EventLabel.DEVICE_CLASS_ADD,
        ("DeviceClass", "update"): EventLabel.DEVICE_CLASS_UPDATE,
        ("ResourceSlice", "add"): EventLabel.RESOURCE_SLICE_ADD,
        ("ResourceSlice", "update"): EventLabel.RESOURCE_SLICE_UPDATE,
    }
)

V1_20: CatalogEvents = MappingProxyType(
    {
        ("PersistentVolume", "add"): EventLabel.PV_ADD,
        ("PersistentVolume", "update"): EventLabel.PV_UPDATE,
        ("PersistentVolumeClaim", "add"): EventLabel.PVC_ADD,
        ("PersistentVolumeClaim", "update"): EventLabel.PVC_UPDATE,
        ("StorageClass", "add"): EventLabel.STORAGE_CLASS_ADD,
        ("CsiNode", "add"): EventLabel.CSI_NODE_ADD,
        ("CsiNode", "update"): EventLabel.CSI_NODE_UPDATE,
        ("Service", "add"): EventLabel.SERVICE_ADD,
        ("Service", "update"): EventLabel.SERVICE_UPDATE,
        ("Service", "delete"): EventLabel.SERVICE_DELETE,
    }
)


def on_object(
    old: CatalogObject | None, new: CatalogObject | None, events: CatalogEvents
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
