"""What the queue is told of the objects beside pods, nodes and budgets, by the queue's mode.

Source: kubernetes v1.34 pkg/scheduler/eventhandlers.go, addAllEventHandlers, for the events that
in-tree plugins register (EventsToRegister); v1.20 pkg/scheduler/eventhandlers.go, onPvAdd to
onServiceDelete.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from services.kube.storage import BindingMode, StorageClass
from services.scheduler.core.catalog import Kept
from services.scheduler.core.queue_steps import ClusterEvent, Move

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
