"""Volumes of pods and of persistent volumes: the sources that scheduling reads.

Sources that no plugin reads (emptyDir, config maps, host paths and so on) have no class here.

Source: kubernetes v1.34 api/core/v1/types.go, VolumeSource and PersistentVolumeSource.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSource:
    """A claim in the pod's namespace."""

    claim_name: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EphemeralSource:
    """A claim created for a pod, named after pod and volume; storage_class_name as in a claim."""

    storage_class_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CsiSource:
    """A volume of a CSI driver; an inline volume of a pod has no handle."""

    driver: str
    volume_handle: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GcePersistentDisk:
    """A Google persistent disk; pods may share it if all of them only read."""

    pd_name: str
    read_only: bool = False
    partition: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsElasticBlockStore:
    """An AWS disk; pods cannot share it, even if they only read."""

    volume_id: str
    read_only: bool = False
    partition: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IscsiDisk:
    """An iSCSI disk; two are the same disk if the `iqn` is equal."""

    target_portal: str
    iqn: str
    lun: int = 0
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RbdImage:
    """A Ceph block device; two are the same if they share a monitor, the pool and the image.

    `pool` is not defaulted here; an API server sets "rbd" if it is absent.
    """

    monitors: tuple[str, ...]
    image: str
    pool: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureDisk:
    """An Azure disk."""

    disk_name: str
    disk_uri: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureFile:
    """An Azure file share."""

    secret_name: str
    share_name: str
    read_only: bool = False
    secret_namespace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CinderDisk:
    """An OpenStack disk."""

    volume_id: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VsphereDisk:
    """A vSphere disk."""

    volume_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PortworxVolume:
    """A Portworx volume."""

    volume_id: str
    read_only: bool = False


DiskSource = (
    CsiSource
    | GcePersistentDisk
    | AwsElasticBlockStore
    | IscsiDisk
    | RbdImage
    | AzureDisk
    | AzureFile
    | CinderDisk
    | VsphereDisk
    | PortworxVolume
)
"""Sources that both a pod's volume and a persistent volume may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """One of a pod's volumes."""

    name: str
    source: ClaimSource | EphemeralSource | DiskSource


def claim_names(pod_name: str, volumes: Iterable[Volume]) -> Iterator[tuple[str, bool]]:
    """Yield (name, whether it is created for an ephemeral volume) of each claim of a pod.

    Source: kubernetes v1.34 component-helpers/storage/ephemeral/ephemeral.go, VolumeClaimName.
    """
    for volume in volumes:
        if isinstance(volume.source, ClaimSource):
            yield volume.source.claim_name, False
        elif isinstance(volume.source, EphemeralSource):
            yield f"{pod_name}-{volume.name}", True


def conflict(disk: object, other: object) -> bool:
    """Return whether two pods on one node cannot both use these disks.

    Pods that only read can share a disk, except an AWS disk.

    Source: kubernetes v1.34 plugins/volumerestrictions/volume_restrictions.go, isVolumeConflict.
    """
    match disk, other:
        case GcePersistentDisk(), GcePersistentDisk():
            same = disk.pd_name == other.pd_name
        case AwsElasticBlockStore(), AwsElasticBlockStore():
            return disk.volume_id == other.volume_id
        case IscsiDisk(), IscsiDisk():
            same = disk.iqn == other.iqn
        case RbdImage(), RbdImage():
            same = (disk.pool, disk.image) == (other.pool, other.image) and not set(
                disk.monitors
            ).isdisjoint(other.monitors)
        case _:
            return False
    return same and not (disk.read_only and other.read_only)
