"""VolumeBinding: a claim, class, driver or capacity changes in a way that may bind the pod's.

Source: kubernetes v1.34 plugins/volumebinding/volume_binding.go,
isSchedulableAfterCSINodeChange, isSchedulableAfterPersistentVolumeClaimChange,
isSchedulableAfterStorageClassChange, isSchedulableAfterCSIStorageCapacityChange,
isSchedulableAfterCSIDriverChange; binder.go, volumeLimit.
"""

from __future__ import annotations

from services.kube.storage import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolumeClaim,
    StorageClass,
)
from services.kube.volumes import CsiSource
from services.queue.core.happening import Happening
from services.queue.core.hints import claims
from services.queue.core.hints.objects import objects, spec_of
from services.queue.core.pod import QueuedPod

_MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"


def after_claim_change(pod: QueuedPod, happening: Happening) -> bool:
    """Queue where the claim is one of the pod's."""
    known = objects(happening, PersistentVolumeClaim)
    return known is None or claims.uses(pod, known[1])


def after_class_change(_pod: QueuedPod, happening: Happening) -> bool:
    """Queue for a new class, and for other allowed topologies."""
    known = objects(happening, StorageClass)
    if known is None or known[0] is None or known[1] is None:
        return True
    return known[0].allowed_topologies != known[1].allowed_topologies


def after_csi_node_change(_pod: QueuedPod, happening: Happening) -> bool:
    """Queue for a new node's drivers, and for other migrated plugins."""
    known = objects(happening, CsiNode)
    if known is None or known[0] is None or known[1] is None:
        return True
    return known[0].annotations.get(_MIGRATED, "") != known[1].annotations.get(_MIGRATED, "")


def after_driver_change(pod: QueuedPod, happening: Happening) -> bool:
    """Queue where an inline volume's driver no longer counts its capacity."""
    known = objects(happening, CsiDriver)
    if known is None or known[0] is None or known[1] is None:
        return True
    old, new = known[0], known[1]
    if not old.storage_capacity or new.storage_capacity:
        return False
    sources = (volume.source for volume in spec_of(pod).volumes)
    return any(isinstance(each, CsiSource) and each.driver == new.name for each in sources)


def after_capacity_change(_pod: QueuedPod, happening: Happening) -> bool:
    """Queue for a new capacity, and for a larger one."""
    known = objects(happening, CsiStorageCapacity)
    if known is None or known[0] is None or known[1] is None:
        return True
    before, now = _limit(known[0]), _limit(known[1])
    return now is not None and (before is None or now > before)


def _limit(capacity: CsiStorageCapacity) -> int | None:
    largest = capacity.maximum_volume_size_bytes
    return capacity.capacity_bytes if largest is None else largest
