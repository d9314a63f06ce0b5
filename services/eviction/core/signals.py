"""Eviction signals, with the starved resource and the node condition of each.

Pods are ranked by their usage of the starved resource, and messages name it. The node reports the
condition.

Source: kubernetes v1.32 pkg/kubelet/eviction/api/types.go and helpers.go, init.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class Signal(Enum):
    """An eviction signal, by the name that the kubelet's configuration uses."""

    MEMORY_AVAILABLE = "memory.available"
    ALLOCATABLE_MEMORY_AVAILABLE = "allocatableMemory.available"
    NODEFS_AVAILABLE = "nodefs.available"
    NODEFS_INODES_FREE = "nodefs.inodesFree"
    IMAGEFS_AVAILABLE = "imagefs.available"
    IMAGEFS_INODES_FREE = "imagefs.inodesFree"
    CONTAINERFS_AVAILABLE = "containerfs.available"
    CONTAINERFS_INODES_FREE = "containerfs.inodesFree"
    PID_AVAILABLE = "pid.available"

    @property
    def resource(self) -> StarvedResource:
        """The resource that is starved if a threshold on the signal is met."""
        return _RESOURCE[self]

    @property
    def condition(self) -> ConditionType:
        """The node condition that is true while a threshold on the signal is met."""
        return _CONDITION[self.resource]

    @property
    def is_memory(self) -> bool:
        """Whether the starved resource is memory, which is reclaimed before other resources."""
        return self.resource is StarvedResource.MEMORY


class StarvedResource(Enum):
    """The resource whose usage ranks pods, by the name that messages and events use."""

    MEMORY = "memory"
    EPHEMERAL_STORAGE = "ephemeral-storage"
    INODES = "inodes"
    PIDS = "pids"


class ConditionType(Enum):
    """A pressure condition of a node, in the order of the kubelet's status."""

    MEMORY_PRESSURE = "MemoryPressure"
    DISK_PRESSURE = "DiskPressure"
    PID_PRESSURE = "PIDPressure"


CONTAINERFS_SIGNALS = frozenset({Signal.CONTAINERFS_AVAILABLE, Signal.CONTAINERFS_INODES_FREE})

_RESOURCE: Mapping[Signal, StarvedResource] = MappingProxyType(
    {
        Signal.MEMORY_AVAILABLE: StarvedResource.MEMORY,
        Signal.ALLOCATABLE_MEMORY_AVAILABLE: StarvedResource.MEMORY,
        Signal.NODEFS_AVAILABLE: StarvedResource.EPHEMERAL_STORAGE,
        Signal.NODEFS_INODES_FREE: StarvedResource.INODES,
        Signal.IMAGEFS_AVAILABLE: StarvedResource.EPHEMERAL_STORAGE,
        Signal.IMAGEFS_INODES_FREE: StarvedResource.INODES,
        Signal.CONTAINERFS_AVAILABLE: StarvedResource.EPHEMERAL_STORAGE,
        Signal.CONTAINERFS_INODES_FREE: StarvedResource.INODES,
        Signal.PID_AVAILABLE: StarvedResource.PIDS,
    }
)
_CONDITION: Mapping[StarvedResource, ConditionType] = MappingProxyType(
    {
        StarvedResource.MEMORY: ConditionType.MEMORY_PRESSURE,
        StarvedResource.EPHEMERAL_STORAGE: ConditionType.DISK_PRESSURE,
        StarvedResource.INODES: ConditionType.DISK_PRESSURE,
        StarvedResource.PIDS: ConditionType.PID_PRESSURE,
    }
)
