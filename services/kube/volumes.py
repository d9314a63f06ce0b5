"""Volumes of pods and of persistent volumes: the sources that scheduling reads.

Sources that no plugin looks at (emptyDir, config maps, host paths and so on) have no value here.

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
    """A claim made for this pod, named after pod and volume; `storage_class_name` as in a claim."""

    storage_class_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CsiSource:
    """A CSI driver's volume; a volume inline in a pod has no handle."""

    driver: str
    volume_handle: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GcePersistentDisk:
    """A Google persistent disk; readers may share it."""

    pd_name: str
    read_only: bool = False
    partition: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsElasticBlockStore:
    """An AWS disk, which even readers do not share."""

    volume_id: str
    read_only: bool = False
    partition: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IscsiDisk:
    """An iSCSI disk; two are one where the `iqn` is the same."""

    target_portal: str
    iqn: str
    lun: int = 0
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RbdImage:
    """A Ceph block device; two are one where they share a monitor, the pool and the image.

    `pool` is as it was written; an API server makes "rbd" of none.
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
"""What a volume of a pod and a persistent volume may both be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """One of a pod's volumes."""

    name: str
    source: ClaimSource | EphemeralSource | DiskSource


def claim_names(pod_name: str, volumes: Iterable[Volume]) -> Iterator[tuple[str, bool]]:
    """Yield the name of each claim of a pod, and whether it is made for an ephemeral volume.

    Source: kubernetes v1.34 component-helpers/storage/ephemeral/ephemeral.go, VolumeClaimName.
    """
    for volume in volumes:
        if isinstance(volume.source, ClaimSource):
            yield volume.source.claim_name, False
        elif isinstance(volume.source, EphemeralSource):
            yield f"{pod_name}-{volume.name}", True


def conflict(disk: object, other: object) -> bool:
    """Return whether two pods on a node cannot both have these; only readers share, and not EBS.

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
