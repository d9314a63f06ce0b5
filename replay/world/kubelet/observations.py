"""Builds the messages of what a kubelet observes of a node's memory, its disk and its pods.

Where a pod's usage is not known by container, its containers share it by their memory requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from replay.world.api.pod_record import PodRecord
from replay.world.kubelet.memory_limits import is_sidecar
from reprieve.eviction.v1beta1 import eviction_pb2
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube import quantity


def memory_stats(
    stats: eviction_pb2.MemoryStats, capacity_bytes: int, used_bytes: int, now_ns: int
) -> None:
    """Write what is available and used of memory; never less than 0, nor more than there is."""
    stats.available_bytes = max(0, capacity_bytes - used_bytes)
    stats.working_set_bytes = min(capacity_bytes, used_bytes)
    stats.time_ns = now_ns


def fs_stats(
    stats: eviction_pb2.FsStats, capacity_bytes: int, used_bytes: int, now_ns: int
) -> None:
    """Write what is available of a disk, at least 0."""
    stats.available_bytes = max(0, capacity_bytes - used_bytes)
    stats.capacity_bytes = capacity_bytes
    stats.time_ns = now_ns


def pod_stats(
    stats: eviction_pb2.PodStats,
    pod: PodRecord,
    segment: trace_pb2.UsageSegment,
    by_container: Mapping[str, int],
) -> None:
    """Write a pod's usage; its memory is known `by_container`, "" for no container's."""
    stats.pod.CopyFrom(pod.session_ref())
    if segment.HasField("memory_bytes"):
        stats.memory_working_set_bytes = segment.memory_bytes
    if segment.HasField("storage_bytes"):
        stats.ephemeral_used_bytes = segment.storage_bytes
    if segment.HasField("processes"):
        stats.processes = segment.processes
    _container_stats(stats, pod, segment, by_container)


def _container_stats(
    stats: eviction_pb2.PodStats,
    pod: PodRecord,
    segment: trace_pb2.UsageSegment,
    by_container: Mapping[str, int],
) -> None:
    """Share what is not known by container in proportion to the memory requests.

    A sidecar has an entry where its memory is known.
    """
    shared_bytes = by_container.get("", 0)
    for container, share in request_shares(pod.message.spec.containers):
        shown = stats.containers.add(name=container.name)
        if segment.HasField("memory_bytes"):
            known = by_container.get(container.name, 0)
            shown.memory_working_set_bytes = quantity.saturated(known + share(shared_bytes))
        if segment.HasField("storage_bytes"):
            shown.used_bytes = share(segment.storage_bytes)
        if segment.HasField("inodes"):
            shown.inodes_used = share(segment.inodes)
    for sidecar in filter(is_sidecar, pod.message.spec.init_containers):
        if sidecar.name in by_container:
            shown = stats.containers.add(name=sidecar.name)
            shown.memory_working_set_bytes = quantity.saturated(by_container[sidecar.name])


def request_shares(
    containers: Sequence[pod_pb2.Container],
) -> Iterator[tuple[pod_pb2.Container, Callable[[int], int]]]:
    """Yield containers with their share of an amount, by their memory requests, or equal shares."""
    weights = [
        quantity.value(container.resources.requests["memory"])
        if "memory" in container.resources.requests
        else 0
        for container in containers
    ]
    if not any(weights):
        weights = [1] * len(weights)
    whole = sum(weights)
    for container, weight in zip(containers, weights, strict=True):
        yield container, partial(_share, weight, whole)


def _share(weight: int, whole: int, amount: int) -> int:
    return amount * weight // whole
