"""File systems of a node, and what each layout means for ranking and reclaim.

Where images, writable layers, logs and volumes lie decides which parts of a pod count under a
disk signal, and what garbage collection may free before a pod is evicted.

Source: kubernetes v1.32 pkg/kubelet/eviction/helpers.go, buildSignalToRankFunc and
buildSignalToNodeReclaimFuncs; v1.27 has the first two layouts alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from services.eviction.core.observations import FsMeasure
from services.eviction.core.signals import Signal

_EVERYTHING = FsMeasure.ROOTFS | FsMeasure.LOGS | FsMeasure.LOCAL_VOLUMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """What to collect, containers first: dead containers, unused images, or neither."""

    containers: bool = False
    images: bool = False

    def __bool__(self) -> bool:
        """Tell whether there is anything to collect."""
        return self.containers or self.images


NO_COLLECTION = Collection()


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRule:
    """For one file system: what a pod is ranked by, and what is collected first."""

    measure: FsMeasure
    collect: Collection


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The rules of one arrangement of file systems.

    `imagefs_is_dedicated` leaves writable layers out of a container's use of local storage.
    `containerfs_is` is the file system that writable layers share: their thresholds are its.
    None where that is undetermined (split, but without a dedicated imagefs).
    """

    nodefs: DiskRule
    imagefs: DiskRule
    containerfs: DiskRule
    imagefs_is_dedicated: bool
    containerfs_is: str | None

    def disk_rule(self, signal: Signal) -> DiskRule | None:
        """Return the rule for a disk signal, None for memory and pids."""
        match _FILE_SYSTEM.get(signal):
            case "nodefs":
                return self.nodefs
            case "imagefs":
                return self.imagefs
            case "containerfs":
                return self.containerfs
        return None


def choose_layout(*, dedicated_imagefs: bool, split_containerfs: bool) -> Layout:
    """Return the layout that the node's two properties stand for."""
    if not dedicated_imagefs:
        return _shared(containerfs_is=None if split_containerfs else "nodefs")
    return _SPLIT if split_containerfs else _DEDICATED


_FILE_SYSTEM: Mapping[Signal, str] = MappingProxyType(
    {
        Signal.NODEFS_AVAILABLE: "nodefs",
        Signal.NODEFS_INODES_FREE: "nodefs",
        Signal.IMAGEFS_AVAILABLE: "imagefs",
        Signal.IMAGEFS_INODES_FREE: "imagefs",
        Signal.CONTAINERFS_AVAILABLE: "containerfs",
        Signal.CONTAINERFS_INODES_FREE: "containerfs",
    }
)


def _shared(*, containerfs_is: str | None) -> Layout:
    everything = DiskRule(measure=_EVERYTHING, collect=Collection(containers=True, images=True))
    return Layout(
        nodefs=everything,
        imagefs=everything,
        containerfs=everything,
        imagefs_is_dedicated=False,
        containerfs_is=containerfs_is,
    )


_LAYERS = DiskRule(measure=FsMeasure.ROOTFS, collect=Collection(containers=True, images=True))
_DEDICATED = Layout(
    nodefs=DiskRule(measure=FsMeasure.LOGS | FsMeasure.LOCAL_VOLUMES, collect=NO_COLLECTION),
    imagefs=_LAYERS,
    containerfs=_LAYERS,
    imagefs_is_dedicated=True,
    containerfs_is="imagefs",
)
_ALL_BUT_IMAGES = DiskRule(measure=_EVERYTHING, collect=Collection(containers=True))
_SPLIT = Layout(
    nodefs=_ALL_BUT_IMAGES,
    imagefs=DiskRule(measure=FsMeasure.NOTHING, collect=Collection(images=True)),
    containerfs=_ALL_BUT_IMAGES,
    imagefs_is_dedicated=True,
    containerfs_is="nodefs",
)
