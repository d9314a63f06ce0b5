"""Observations: what a node's summary says, message to value; an absent figure is None."""

from __future__ import annotations

from google.protobuf.message import Message

from reprieve.eviction.v1alpha1 import eviction_pb2
from services.eviction.core.observations import FsStats, MemoryStats, NodeSummary, RlimitStats
from services.eviction.core.usage import ContainerUsage, FsUsage, PodUsage, VolumeUsage
from services.rpc.errors import FieldError


def node_summary(message: eviction_pb2.Observations, *, field: str) -> NodeSummary:
    """Return the node's own statistics; `pod_usage` reads the pods', which few steps need.

    Refuses (FieldError, below the path `field`) a pod's statistics without the pod's UID.
    """
    for index, each in enumerate(message.pods):
        if not each.pod.uid:
            raise FieldError(f"{field}.pods[{index}].pod.uid", "is required: it names the pod")
    return NodeSummary(
        memory=_memory(message.memory) if message.HasField("memory") else None,
        allocatable_memory=(
            _memory(message.allocatable_memory) if message.HasField("allocatable_memory") else None
        ),
        nodefs=_fs(message.node_fs) if message.HasField("node_fs") else None,
        imagefs=_fs(message.image_fs) if message.HasField("image_fs") else None,
        containerfs=_fs(message.container_fs) if message.HasField("container_fs") else None,
        rlimit=_processes(message.processes) if message.HasField("processes") else None,
    )


def pod_usage(message: eviction_pb2.Observations) -> dict[str, PodUsage]:
    """Return what each pod uses, by UID."""
    return {each.pod.uid: _pod(each) for each in message.pods}


def _given(message: Message, name: str) -> int | None:
    return getattr(message, name) if message.HasField(name) else None


def _memory(message: eviction_pb2.MemoryStats) -> MemoryStats:
    return MemoryStats(
        available_bytes=_given(message, "available_bytes"),
        working_set_bytes=_given(message, "working_set_bytes"),
        time_ns=_given(message, "time_ns"),
    )


def _fs(message: eviction_pb2.FsStats) -> FsStats:
    return FsStats(
        available_bytes=_given(message, "available_bytes"),
        capacity_bytes=_given(message, "capacity_bytes"),
        inodes_free=_given(message, "inodes_free"),
        inodes=_given(message, "inodes"),
        time_ns=_given(message, "time_ns"),
    )


def _processes(message: eviction_pb2.ProcessStats) -> RlimitStats:
    return RlimitStats(
        max_pid=_given(message, "max_pid"),
        running_processes=_given(message, "running"),
        time_ns=_given(message, "time_ns"),
    )


def _pod(message: eviction_pb2.PodStats) -> PodUsage:
    return PodUsage(
        memory_working_set_bytes=_given(message, "memory_working_set_bytes"),
        containers=tuple(_container(each) for each in message.containers),
        volumes=tuple(
            VolumeUsage(name=each.name, usage=_fs_usage(each, "used_bytes", "inodes_used"))
            for each in message.volumes
        ),
        ephemeral_storage_bytes=_given(message, "ephemeral_used_bytes"),
        processes=_given(message, "processes"),
    )


def _container(message: eviction_pb2.UsageStats) -> ContainerUsage:
    return ContainerUsage(
        name=message.name,
        memory_working_set_bytes=_given(message, "memory_working_set_bytes"),
        rootfs=_fs_usage(message, "used_bytes", "inodes_used"),
        logs=_fs_usage(message, "logs_used_bytes", "logs_inodes_used"),
    )


def _fs_usage(message: eviction_pb2.UsageStats, used: str, inodes: str) -> FsUsage:
    return FsUsage(used_bytes=_given(message, used), inodes_used=_given(message, inodes))
