"""Decodes operations on nodes, with their pods and statistics.

A figure that a summary does not report is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from reprieve.eviction.v1beta1 import eviction_pb2, eviction_service_pb2
from reprieve.kube.v1beta1 import pod_pb2, volume_pb2
from services.eviction.codec.configs import config_from_message
from services.eviction.core.observations import (
    ContainerUsage,
    FsStats,
    FsUsage,
    MemoryStats,
    NodeSummary,
    PodUsage,
    RlimitStats,
    VolumeUsage,
)
from services.eviction.core.pod import EvictionContainer, EvictionPod, EvictionVolume, Resources
from services.eviction.fleet import (
    AdmitPod,
    ConfigureNode,
    NodeStatistics,
    Operation,
    RemoveNode,
    ResumeNode,
    StepNode,
)
from services.rpc.errors import FieldError
from services.rpc.kube import fields
from services.rpc.kube.fields import optional
from services.rpc.required import PROBLEM, missing
from services.rpc.session import check_time_ns

WallClock = Callable[[], int]


def step_from_message(
    message: eviction_service_pb2.Step, *, field: str, clock: WallClock | None = None
) -> StepNode:
    """Return the step; `field` is its path. Raises FieldError.

    `clock` is a live session's; it sets the time of a step that has none.
    """
    pods = tuple(
        pod_from_message(pod, field=f"{field}.pods[{index}]")
        for index, pod in enumerate(message.pods)
    )
    if clock is None and not message.HasField("time_ns"):
        raise FieldError(f"{field}.time_ns", "is required: only a live session has a clock")
    if message.time_ns < 0:
        raise FieldError(f"{field}.time_ns", f"{message.time_ns} ns lies before the Unix epoch")
    check_time_ns(f"{field}.time_ns", message.time_ns)
    if not message.summary_failed and not message.HasField("observations"):
        raise FieldError(f"{field}.observations", "is required without summary_failed")
    return StepNode(
        field=field,
        node_name=message.node_name,
        now_ns=message.time_ns if message.HasField("time_ns") or clock is None else clock(),
        statistics=None if message.summary_failed else _statistics(message.observations, field),
        pods=pods,
        active_uids=tuple(message.active_uids),
        disk_info_failed=message.disk_info_failed,
        kill_fails=message.kill_fails,
    )


def resume_from_message(message: eviction_service_pb2.Resume, *, field: str) -> ResumeNode:
    """Return the operation that ends a waiting step; `field` is its path. Raises FieldError."""
    statistics = (
        _statistics(message.observations, field) if message.HasField("observations") else None
    )
    return ResumeNode(field=field, node_name=message.node_name, statistics=statistics)


def operation_from_message(
    message: eviction_service_pb2.Operation, *, field: str, clock: WallClock | None
) -> Operation:
    """Return one operation of a batch; `field` is its path. Raises FieldError."""
    match message.WhichOneof("operation"):
        case "step":
            return step_from_message(message.step, field=f"{field}.step", clock=clock)
        case "resume":
            return resume_from_message(message.resume, field=f"{field}.resume")
        case "remove_node":
            if not message.remove_node:
                raise FieldError(f"{field}.remove_node", "is required: the node's name")
            return RemoveNode(node_name=message.remove_node)
        case "configure":
            path = f"{field}.configure"
            read = config_from_message(message.configure.config, field=f"{path}.config")
            return ConfigureNode(node_name=message.configure.node_name, read=read)
        case "admit":
            path = f"{field}.admit"
            pod = pod_from_message(message.admit.pod, field=f"{path}.pod")
            return AdmitPod(field=path, node_name=message.admit.node_name, pod=pod)
        case _:
            problem = "is required: set step, resume, remove_node, configure or admit"
            raise FieldError(f"{field}.operation", problem)


def _statistics(message: eviction_pb2.Observations, field: str) -> NodeStatistics:
    path = f"{field}.observations"
    summary: NodeSummary = node_summary(message, field=path)
    return NodeStatistics(summary=summary, usage=partial(pod_usage, message))


def node_summary(message: eviction_pb2.Observations, *, field: str) -> NodeSummary:
    """Return the node's statistics without those of its pods.

    Few steps need the pods' statistics; `pod_usage` reads them. Raises FieldError, below the path
    `field`, for a pod's statistics without a UID.
    """
    for index, pod in enumerate(message.pods):
        if not pod.pod.uid:
            raise FieldError(f"{field}.pods[{index}].{missing(pod) or 'pod.uid'}", PROBLEM)
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
    """Return the usage of each pod, by UID."""
    return {stats.pod.uid: _pod(stats) for stats in message.pods}


def _memory(message: eviction_pb2.MemoryStats) -> MemoryStats:
    return MemoryStats(
        available_bytes=optional(message, "available_bytes"),
        working_set_bytes=optional(message, "working_set_bytes"),
        time_ns=optional(message, "time_ns"),
    )


def _fs(message: eviction_pb2.FsStats) -> FsStats:
    return FsStats(
        available_bytes=optional(message, "available_bytes"),
        capacity_bytes=optional(message, "capacity_bytes"),
        inodes_free=optional(message, "inodes_free"),
        inodes=optional(message, "inodes"),
        time_ns=optional(message, "time_ns"),
    )


def _processes(message: eviction_pb2.ProcessStats) -> RlimitStats:
    return RlimitStats(
        max_pid=optional(message, "max_pid"),
        running_processes=optional(message, "running"),
        time_ns=optional(message, "time_ns"),
    )


def _pod(message: eviction_pb2.PodStats) -> PodUsage:
    return PodUsage(
        memory_working_set_bytes=optional(message, "memory_working_set_bytes"),
        containers=tuple(_container(container) for container in message.containers),
        volumes=tuple(
            VolumeUsage(name=volume.name, usage=_fs_usage(volume, "used_bytes", "inodes_used"))
            for volume in message.volumes
        ),
        ephemeral_storage_bytes=optional(message, "ephemeral_used_bytes"),
        processes=optional(message, "processes"),
    )


def _container(message: eviction_pb2.UsageStats) -> ContainerUsage:
    return ContainerUsage(
        name=message.name,
        memory_working_set_bytes=optional(message, "memory_working_set_bytes"),
        rootfs=_fs_usage(message, "used_bytes", "inodes_used"),
        logs=_fs_usage(message, "logs_used_bytes", "logs_inodes_used"),
    )


def _fs_usage(message: eviction_pb2.UsageStats, used: str, inodes: str) -> FsUsage:
    return FsUsage(used_bytes=optional(message, used), inodes_used=optional(message, inodes))


def pod_from_message(message: pod_pb2.Pod, *, field: str) -> EvictionPod:
    """Return the pod; `field` is the message's path. Raises FieldError, also without a UID."""
    meta, spec = message.metadata, message.spec
    if not meta.uid:
        raise FieldError(f"{field}.metadata.uid", "is required: the pod's UID")
    path = f"{field}.spec"
    return EvictionPod(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        priority=spec.priority,
        containers=_containers(spec.containers, f"{path}.containers"),
        init_containers=_containers(spec.init_containers, f"{path}.initContainers"),
        overhead=_resources(spec.overhead, f"{path}.overhead"),
        volumes=tuple(
            _volume(volume, f"{path}.volumes[{index}]") for index, volume in enumerate(spec.volumes)
        ),
        annotations=fields.strings(meta.annotations),
        termination_grace_s=fields.optional(spec, "termination_grace_period_seconds"),
        qos_class=message.status.qos_class,
        tolerations=fields.tolerations(spec.tolerations, f"{path}.tolerations"),
    )


def _containers(messages: Sequence[pod_pb2.Container], field: str) -> tuple[EvictionContainer, ...]:
    return tuple(
        EvictionContainer(
            name=message.name,
            requests=_resources(message.resources.requests, f"{field}[{index}].resources.requests"),
            limits=_resources(message.resources.limits, f"{field}[{index}].resources.limits"),
            restart_policy=message.restart_policy,
        )
        for index, message in enumerate(messages)
    )


def _resources(quantities: Mapping[str, str], field: str) -> Resources:
    if not quantities:
        return {}
    return {name: fields.quantity(text, f"{field}[{name}]") for name, text in quantities.items()}


def _volume(message: volume_pb2.Volume, field: str) -> EvictionVolume:
    sources = [part for part, _ in message.ListFields() if part.message_type is not None]
    empty_dir = message.empty_dir
    return EvictionVolume(
        name=message.name,
        kind=sources[0].json_name if sources else "",
        medium=empty_dir.medium,
        size_limit=(
            fields.quantity(empty_dir.size_limit, f"{field}.emptyDir.sizeLimit")
            if empty_dir.HasField("size_limit")
            else None
        ),
    )
