"""Statistics of a node and its pods: the observation of each signal, and the file system layout.

A figure that is not reported is None; in a sum over a pod's usage it counts as 0. Sums saturate at
64 bits, while upstream's sums wrap around. The layout tells on which file systems images, writable
layers, logs and volumes are. It determines which parts of a pod count for a disk signal, and which
garbage is collected before a pod is evicted.

Source: kubernetes v1.32 pkg/kubelet/eviction/helpers.go, makeSignalObservations (for memory as on
Linux: available, and available plus working set as the capacity), podDiskUsage, containerUsage,
podLocalVolumeUsage, buildSignalToRankFunc and buildSignalToNodeReclaimFuncs (v1.27 has the first
two layouts only); staging/src/k8s.io/kubelet/pkg/apis/stats/v1alpha1/types.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Flag, auto
from types import MappingProxyType

from services.eviction.core.pod import EvictionPod
from services.eviction.core.signals import Signal
from services.kube.quantity import Format, Quantity, saturated

_INODE_OR_PID_SIGNALS = frozenset(
    {
        Signal.NODEFS_INODES_FREE,
        Signal.IMAGEFS_INODES_FREE,
        Signal.CONTAINERFS_INODES_FREE,
        Signal.PID_AVAILABLE,
    }
)


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
    """A volume's usage; `name` is the volume's in the pod's spec."""

    name: str
    usage: FsUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUsage:
    """A pod's statistics; `ephemeral_storage_bytes` is the sum as the kubelet reports it."""

    memory_working_set_bytes: int | None = None
    containers: tuple[ContainerUsage, ...] = ()
    volumes: tuple[VolumeUsage, ...] = ()
    ephemeral_storage_bytes: int | None = None
    processes: int | None = None


class FsMeasure(Flag):
    """The parts of a pod that count towards its usage of a file system."""

    NOTHING = 0
    ROOTFS = auto()
    LOGS = auto()
    LOCAL_VOLUMES = auto()


def used_bytes(usage: FsUsage | None) -> int:
    """Return the bytes used; 0 if they are not reported."""
    return 0 if usage is None else usage.used_bytes or 0


def disk_bytes(pod: EvictionPod, usage: PodUsage, measure: FsMeasure) -> int:
    """Return the bytes that `measure` counts for the pod."""
    return saturated(sum(used_bytes(part) for part in _measured(pod, usage, measure)))


def disk_inodes(pod: EvictionPod, usage: PodUsage, measure: FsMeasure) -> int:
    """Return the inodes that `measure` counts for the pod."""
    return saturated(sum(part.inodes_used or 0 for part in _measured(pod, usage, measure)))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The observed values of a signal: `available` of `capacity` (bytes, inodes or pids).

    `time_ns` is the time of the measurement, None if it is not reported; such a one counts as new.
    """

    available: int
    capacity: int
    time_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStats:
    """A memory cgroup in bytes; None if a figure is not reported."""

    available_bytes: int | None = None
    working_set_bytes: int | None = None
    time_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FsStats:
    """A file system in bytes and inodes; None if a figure is not reported."""

    available_bytes: int | None = None
    capacity_bytes: int | None = None
    inodes_free: int | None = None
    inodes: int | None = None
    time_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RlimitStats:
    """The machine's process ids; None if a figure is not reported."""

    max_pid: int | None = None
    running_processes: int | None = None
    time_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSummary:
    """A node's statistics at one moment; None for a value that is not reported.

    `allocatable_memory` is the memory of the cgroup that contains all pods. `pods` has the usage by
    pod UID; a pod that is not in `pods` has no statistics yet.
    """

    memory: MemoryStats | None = None
    allocatable_memory: MemoryStats | None = None
    nodefs: FsStats | None = None
    imagefs: FsStats | None = None
    containerfs: FsStats | None = None
    rlimit: RlimitStats | None = None
    pods: Mapping[str, PodUsage] = field(default_factory=dict)


def observe(summary: NodeSummary) -> dict[Signal, Observation]:
    """Return an observation for each signal that the summary fully reports."""
    observations = {
        Signal.MEMORY_AVAILABLE: _memory(summary.memory),
        Signal.ALLOCATABLE_MEMORY_AVAILABLE: _memory(summary.allocatable_memory),
        Signal.NODEFS_AVAILABLE: _bytes(summary.nodefs),
        Signal.NODEFS_INODES_FREE: _inodes(summary.nodefs),
        Signal.IMAGEFS_AVAILABLE: _bytes(summary.imagefs),
        Signal.IMAGEFS_INODES_FREE: _inodes(summary.imagefs),
        Signal.CONTAINERFS_AVAILABLE: _bytes(summary.containerfs),
        Signal.CONTAINERFS_INODES_FREE: _inodes(summary.containerfs),
        Signal.PID_AVAILABLE: _pids(summary.rlimit),
    }
    return {signal: observed for signal, observed in observations.items() if observed is not None}


def available_quantity(signal: Signal, observed: Observation) -> Quantity:
    """Return the available amount, in the format of messages."""
    counted = signal in _INODE_OR_PID_SIGNALS
    return Quantity.from_value(
        observed.available, Format.DECIMAL_SI if counted else Format.BINARY_SI
    )


def is_fresh(observed: Observation, last_time_ns: int | None) -> bool:
    """Return whether an observation is newer than the last observation of its signal.

    If either has no time, it counts as newer. Source: helpers.go, thresholdsUpdatedStats.
    """
    return observed.time_ns is None or last_time_ns is None or observed.time_ns > last_time_ns


def _memory(stats: MemoryStats | None) -> Observation | None:
    if stats is None or stats.available_bytes is None or stats.working_set_bytes is None:
        return None
    return Observation(
        available=stats.available_bytes,
        capacity=saturated(stats.available_bytes + stats.working_set_bytes),
        time_ns=stats.time_ns,
    )


def _bytes(stats: FsStats | None) -> Observation | None:
    if stats is None or stats.available_bytes is None or stats.capacity_bytes is None:
        return None
    return Observation(
        available=stats.available_bytes, capacity=stats.capacity_bytes, time_ns=stats.time_ns
    )


def _inodes(stats: FsStats | None) -> Observation | None:
    if stats is None or stats.inodes_free is None or stats.inodes is None:
        return None
    return Observation(available=stats.inodes_free, capacity=stats.inodes, time_ns=stats.time_ns)


def _pids(stats: RlimitStats | None) -> Observation | None:
    if stats is None or stats.max_pid is None or stats.running_processes is None:
        return None
    return Observation(
        available=saturated(stats.max_pid - stats.running_processes),
        capacity=stats.max_pid,
        time_ns=stats.time_ns,
    )


_EVERYTHING = FsMeasure.ROOTFS | FsMeasure.LOGS | FsMeasure.LOCAL_VOLUMES


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageCollection:
    """The garbage collection of a step: dead containers, then unused images, or neither."""

    containers: bool = False
    images: bool = False

    def __bool__(self) -> bool:
        """Return whether anything is collected."""
        return self.containers or self.images


NO_COLLECTION = GarbageCollection()


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRule:
    """The rule of a file system: its ranking measure, and the collection before evictions."""

    measure: FsMeasure
    collect: GarbageCollection


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystemLayout:
    """The rules for one layout of file systems.

    imagefs_is_dedicated: if set, writable layers do not count in a container's usage of local
    storage. containerfs_is: the file system whose thresholds apply to writable layers; None if it
    is undetermined (split, but without a dedicated imagefs).
    """

    nodefs: DiskRule
    imagefs: DiskRule
    containerfs: DiskRule
    imagefs_is_dedicated: bool
    containerfs_is: str | None

    def disk_rule(self, signal: Signal) -> DiskRule | None:
        """Return the rule for a disk signal; None for memory and process IDs."""
        match _FILE_SYSTEM.get(signal):
            case "nodefs":
                return self.nodefs
            case "imagefs":
                return self.imagefs
            case "containerfs":
                return self.containerfs
        return None


def choose_layout(*, dedicated_imagefs: bool, split_containerfs: bool) -> FileSystemLayout:
    """Return the layout of a node with these two properties."""
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


def _shared(*, containerfs_is: str | None) -> FileSystemLayout:
    everything = DiskRule(
        measure=_EVERYTHING, collect=GarbageCollection(containers=True, images=True)
    )
    return FileSystemLayout(
        nodefs=everything,
        imagefs=everything,
        containerfs=everything,
        imagefs_is_dedicated=False,
        containerfs_is=containerfs_is,
    )


_LAYERS = DiskRule(
    measure=FsMeasure.ROOTFS, collect=GarbageCollection(containers=True, images=True)
)
_DEDICATED = FileSystemLayout(
    nodefs=DiskRule(measure=FsMeasure.LOGS | FsMeasure.LOCAL_VOLUMES, collect=NO_COLLECTION),
    imagefs=_LAYERS,
    containerfs=_LAYERS,
    imagefs_is_dedicated=True,
    containerfs_is="imagefs",
)
_ALL_BUT_IMAGES = DiskRule(measure=_EVERYTHING, collect=GarbageCollection(containers=True))
_SPLIT = FileSystemLayout(
    nodefs=_ALL_BUT_IMAGES,
    imagefs=DiskRule(measure=FsMeasure.NOTHING, collect=GarbageCollection(images=True)),
    containerfs=_ALL_BUT_IMAGES,
    imagefs_is_dedicated=True,
    containerfs_is="nodefs",
)
