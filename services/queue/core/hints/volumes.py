"""Hints of the plugins that look at a pod's volumes: disks, claims, classes, CSI drivers.

Source: kubernetes v1.34 plugins/volumerestrictions/volume_restrictions.go, nodevolumelimits/csi.go,
volumebinding/volume_binding.go (and binder.go, volumeLimit) and volumezone/volume_zone.go, each
plugin's isSchedulableAfter functions; csi-translation-lib, IsInlineMigratable.
"""

from __future__ import annotations

from itertools import product

from services.kube.storage import (
    BindingMode,
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from services.kube.volumes import (
    AwsElasticBlockStore,
    AzureDisk,
    AzureFile,
    CinderDisk,
    ClaimSource,
    CsiSource,
    EphemeralSource,
    GcePersistentDisk,
    PortworxVolume,
    Volume,
    VsphereDisk,
    claim_names,
    conflict,
)
from services.queue.core.hints.objects import AnyPod, spec_of
from services.queue.core.queued_pod import QueuedPod

_MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
_DRIVERS: dict[type, str] = {
    GcePersistentDisk: "pd.csi.storage.gke.io",
    AwsElasticBlockStore: "ebs.csi.aws.com",
    AzureDisk: "disk.csi.azure.com",
    AzureFile: "file.csi.azure.com",
    CinderDisk: "cinder.csi.openstack.org",
    VsphereDisk: "csi.vsphere.vmware.com",
    PortworxVolume: "pxd.portworx.com",
}
"""The CSI driver of an inline volume of an in-tree kind."""


def claim_named(
    pod: QueuedPod, _old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
) -> bool:
    """Queue where a volume of the pod names the claim."""
    return new is not None and new.namespace == pod.namespace and new.name in _named(pod)


def claim_used(
    pod: QueuedPod, _old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
) -> bool:
    """Queue where a volume of the pod names the claim, or the claim is its ephemeral volume's."""
    if new is None or new.namespace != pod.namespace:
        return False
    return any(name == new.name for name, _ in claim_names(pod.name, spec_of(pod).volumes))


def _named(pod: AnyPod) -> frozenset[str]:
    names = claim_names(pod.name, spec_of(pod).volumes)
    return frozenset(name for name, is_made in names if not is_made)


def disk_freed(pod: QueuedPod, old: AnyPod | None, _new: AnyPod | None) -> bool:
    """Queue where the deleted pod had a conflicting disk, or a claim of this pod."""
    if old is None:
        return True
    if old.namespace != pod.namespace:
        return False
    pairs = product(spec_of(pod).volumes, spec_of(old).volumes)
    if any(conflict(one.source, other.source) for one, other in pairs):
        return True
    return bool(_named(pod) & _named(old))


def slot_freed(_pod: QueuedPod, old: AnyPod | None, _new: AnyPod | None) -> bool:
    """Queue where the deleted pod was assigned and had a volume that counts."""
    if old is None:
        return True
    return bool(old.node_name) and any(_counts(volume) for volume in spec_of(old).volumes)


def _counts(volume: Volume) -> bool:
    return isinstance(volume.source, (ClaimSource, EphemeralSource)) or (
        type(volume.source) in _DRIVERS
    )


def detached(pod: QueuedPod, old: VolumeAttachment | None, _new: VolumeAttachment | None) -> bool:
    """Queue where the pod has a claim, or a volume of the driver that has detached one."""
    if old is None:
        return True
    sources = [volume.source for volume in spec_of(pod).volumes]
    return any(
        isinstance(source, ClaimSource) or _DRIVERS.get(type(source)) == old.attacher
        for source in sources
    )


def class_widened(_pod: QueuedPod, old: StorageClass | None, new: StorageClass | None) -> bool:
    """Queue for a new class, and where the allowed topologies have changed."""
    return old is None or new is None or old.allowed_topologies != new.allowed_topologies


def class_waits(_pod: QueuedPod, _old: StorageClass | None, new: StorageClass | None) -> bool:
    """Queue for a class that waits for the first consumer."""
    return new is None or new.binding_mode is BindingMode.WAIT_FOR_FIRST_CONSUMER


def migration_changed(_pod: QueuedPod, old: CsiNode | None, new: CsiNode | None) -> bool:
    """Queue for a new CSINode, and where the migrated plugins have changed."""
    if old is None or new is None:
        return True
    return old.annotations.get(_MIGRATED, "") != new.annotations.get(_MIGRATED, "")


def capacity_ignored(pod: QueuedPod, old: CsiDriver | None, new: CsiDriver | None) -> bool:
    """Queue where an inline volume's driver no longer counts its capacity."""
    if old is None or new is None:
        return True
    if not old.storage_capacity or new.storage_capacity:
        return False
    sources = (volume.source for volume in spec_of(pod).volumes)
    return any(isinstance(each, CsiSource) and each.driver == new.name for each in sources)


def capacity_grown(
    _pod: QueuedPod, old: CsiStorageCapacity | None, new: CsiStorageCapacity | None
) -> bool:
    """Queue for a new capacity, and for a larger one."""
    if old is None or new is None:
        return True
    before, now = _limit(old), _limit(new)
    return now is not None and (before is None or now > before)


def _limit(capacity: CsiStorageCapacity) -> int | None:
    largest = capacity.maximum_volume_size_bytes
    return capacity.capacity_bytes if largest is None else largest


def volume_moved(
    _pod: QueuedPod, old: PersistentVolume | None, new: PersistentVolume | None
) -> bool:
    """Queue for a new volume, and where its zones have changed."""
    return old is None or new is None or old.zones != new.zones
