"""VolumeBinding's events and queueing hints.

Source: kubernetes v1.34 plugins/volumebinding/volume_binding.go, EventsToRegister and the
isSchedulableAfter functions; binder.go, volumeLimit.
"""

from __future__ import annotations

from services.framework.cluster_event import PendingPod
from services.framework.hints import events_of, on, spec_of
from services.framework.volumes.claim_hints import claim_used
from services.framework.volumes.migration import MIGRATED_ANNOTATION
from services.kube.storage import CsiDriver, CsiNode, CsiStorageCapacity, StorageClass
from services.kube.volumes import CsiSource


def class_widened(_pod: PendingPod, old: StorageClass | None, new: StorageClass | None) -> bool:
    """Return Queue (true) if the class is new or its allowed topologies have changed."""
    return old is None or new is None or old.allowed_topologies != new.allowed_topologies


def migration_changed(_pod: PendingPod, old: CsiNode | None, new: CsiNode | None) -> bool:
    """Return Queue (true) if the CSINode is new or its migrated plugins have changed."""
    if old is None or new is None:
        return True
    return old.annotations.get(MIGRATED_ANNOTATION, "") != new.annotations.get(
        MIGRATED_ANNOTATION, ""
    )


def capacity_ignored(pod: PendingPod, old: CsiDriver | None, new: CsiDriver | None) -> bool:
    """Return Queue (true) if the driver of an inline volume no longer checks capacity."""
    if old is None or new is None:
        return True
    if not old.storage_capacity or new.storage_capacity:
        return False
    sources = (volume.source for volume in spec_of(pod).volumes)
    return any(isinstance(source, CsiSource) and source.driver == new.name for source in sources)


def capacity_grown(
    _pod: PendingPod, old: CsiStorageCapacity | None, new: CsiStorageCapacity | None
) -> bool:
    """Return Queue (true) if the capacity is new or has grown."""
    if old is None or new is None:
        return True
    before, now = _limit(old), _limit(new)
    return now is not None and (before is None or now > before)


def _limit(capacity: CsiStorageCapacity) -> int | None:
    largest = capacity.maximum_volume_size_bytes
    return capacity.capacity_bytes if largest is None else largest


EVENTS = events_of(
    "VolumeBinding",
    on("StorageClassAdd", class_widened),
    on("StorageClassUpdate", class_widened),
    on("PersistentVolumeClaimAdd", claim_used),
    on("PersistentVolumeClaimUpdate", claim_used),
    on("PersistentVolumeAdd"),
    on("PersistentVolumeUpdate"),
    on("NodeAdd"),
    on("NodeLabelChange"),
    on("CSINodeAdd", migration_changed),
    on("CSINodeUpdate", migration_changed),
    on("CSIDriverUpdate", capacity_ignored),
    on("CSIStorageCapacityAdd", capacity_grown),
    on("CSIStorageCapacityUpdate", capacity_grown),
)
