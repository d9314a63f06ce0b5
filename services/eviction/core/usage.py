"""Usage: what the statistics say that a pod consumes.

None stands for a figure that is not reported; where a sum needs it, it counts as 0.

Source: kubernetes v1.32 staging/src/k8s.io/kubelet/pkg/apis/stats/v1alpha1/types.go, and
pkg/kubelet/eviction/helpers.go (podDiskUsage, containerUsage, podLocalVolumeUsage).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Flag, auto

from services.eviction.core.pod import EvictionPod


@dataclass(frozen=True, slots=True, kw_only=True)
class FsUsage:
    """Bytes and inodes used on a file system."""

    used_bytes: int | None = None
    inodes_used: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerUsage:
    """A container's memory (working set), writable layer and logs."""

    name: str
    memory_working_set_bytes: int | None = None
    rootfs: FsUsage | None = None
    logs: FsUsage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeUsage:
    """A volume's use, by the name that the pod's spec gives it."""

    name: str
    usage: FsUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUsage:
    """A pod's statistics; `ephemeral_storage_bytes` is the kubelet's own sum over the pod."""

    memory_working_set_bytes: int | None = None
    containers: tuple[ContainerUsage, ...] = ()
    volumes: tuple[VolumeUsage, ...] = ()
    ephemeral_storage_bytes: int | None = None
    processes: int | None = None


class FsMeasure(Flag):
    """Which parts of a pod count towards its use of a file system."""

    NOTHING = 0
    ROOTFS = auto()
    LOGS = auto()
    LOCAL_VOLUMES = auto()


def used_bytes(usage: FsUsage | None) -> int:
    """Return the bytes used, 0 where unreported."""
    return 0 if usage is None else usage.used_bytes or 0


def disk_bytes(pod: EvictionPod, usage: PodUsage, measure: FsMeasure) -> int:
    """Return the bytes that `measure` counts for the pod."""
    return sum(used_bytes(each) for each in _measured(pod, usage, measure))


def disk_inodes(pod: EvictionPod, usage: PodUsage, measure: FsMeasure) -> int:
    """Return the inodes that `measure` counts for the pod."""
    return sum(each.inodes_used or 0 for each in _measured(pod, usage, measure))


def _measured(pod: EvictionPod, usage: PodUsage, measure: FsMeasure) -> Iterator[FsUsage]:
    for container in usage.containers:
        if FsMeasure.ROOTFS in measure and container.rootfs is not None:
            yield container.rootfs
        if FsMeasure.LOGS in measure and container.logs is not None:
            yield container.logs
    if FsMeasure.LOCAL_VOLUMES not in measure:
        return
    reported: dict[str, FsUsage] = {}
    for volume in usage.volumes:
        reported.setdefault(volume.name, volume.usage)
    for declared in pod.volumes:
        if declared.is_local and declared.name in reported:
            yield reported[declared.name]
