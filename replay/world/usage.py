"""What pods and nodes use over time: profiles from the trace, and the observations they make.

Usage counts from a pod's start, a node's own from its coming; it is sampled afresh at each step of
a node's eviction manager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replay.world.models import SECOND_NS
from replay.world.pod_record import PodRecord
from reprieve.eviction.v1alpha1 import eviction_pb2
from reprieve.kube.v1alpha1 import node_pb2
from reprieve.trace.v1alpha1 import trace_pb2
from services.kube import quantity

Int64s = NDArray[np.int64]
HORIZON_NS = 3600 * SECOND_NS
"""How far a calm node's usage is looked ahead at once."""
_NOTHING = trace_pb2.UsageSegment()


class _Profile:
    """A profile whose segments are found by their offset."""

    __slots__ = ("_segments", "memory", "offsets", "storage")

    def __init__(self, profile: trace_pb2.UsageProfile) -> None:
        self._segments = list(profile.segments)
        self.offsets = np.array([each.offset_ns for each in self._segments], dtype=np.int64)
        self.memory = np.array([each.memory_bytes for each in self._segments], dtype=np.int64)
        self.storage = np.array([each.storage_bytes for each in self._segments], dtype=np.int64)

    def at(self, offset_ns: int) -> trace_pb2.UsageSegment:
        """Return what is used so long after the start; nothing before the first segment."""
        index = int(self.offsets.searchsorted(offset_ns, side="right"))
        return self._segments[index - 1] if index else _NOTHING


class UsageProfiles:
    """The profiles of a trace."""

    def __init__(self) -> None:
        self._profiles: dict[int, _Profile] = {}
        self._by_template: dict[int, int] = {}
        self._by_node: dict[str, _Profile] = {}
        self._tells_memory = False
        self._tells_storage = False

    def add(self, profile: trace_pb2.UsageProfile) -> None:
        """Take a profile from the trace."""
        self._tells_memory |= any(each.HasField("memory_bytes") for each in profile.segments)
        self._tells_storage |= any(each.HasField("storage_bytes") for each in profile.segments)
        self._profiles[profile.id] = _Profile(profile)
        if profile.template_id:
            self._by_template[profile.template_id] = profile.id
        if profile.node_name:
            self._by_node[profile.node_name] = self._profiles[profile.id]

    def of_template(self, template_id: int) -> int:
        """Return the number of a template's profile, 0 for none."""
        return self._by_template.get(template_id, 0)

    def is_known(self, pod: PodRecord) -> bool:
        """Tell whether the trace says what the pod uses."""
        return pod.life.usage_id in self._profiles

    def has_overhead(self, node_name: str) -> bool:
        """Tell whether the trace says what a node uses beside its pods."""
        return node_name in self._by_node

    def matters_ns(
        self,
        node: node_pb2.Node,
        since_ns: int,
        pods: Iterable[PodRecord],
        now_ns: int,
        least: Mapping[str, int] | None,
    ) -> int | None:
        """Return when a node must be looked at again, for what it and its active pods use.

        That is when less than `least` of a signal is available, by its name, or with None when
        anything changes. At most HORIZON_NS are looked ahead, and the end of that is returned where
        more comes after it. None where nothing comes.
        """
        sources = [(pod.running_ns, self._profiles.get(pod.life.usage_id)) for pod in pods]
        sources.append((since_ns, self._by_node.get(node.metadata.name)))
        ahead = _Ahead.of(
            [(start, each) for start, each in sources if each is not None and start is not None],
            now_ns,
        )
        if ahead is None:
            return None
        if least is None:
            return int(ahead.times[0]) if len(ahead.times) else ahead.end_ns
        capacity = node.status.capacity or node.status.allocatable
        short = np.zeros(len(ahead.times), dtype=bool)
        for signal, resource, used, is_told in (
            ("memory.available", "memory", ahead.memory, self._tells_memory),
            ("nodefs.available", "ephemeral-storage", ahead.storage, self._tells_storage),
        ):
            if is_told and signal in least and resource in capacity:
                available = np.maximum(quantity.value(capacity[resource]) - used, 0)
                short |= available < least[signal]
        return int(ahead.times[short.argmax()]) if short.any() else ahead.end_ns

    def observe(
        self, node: node_pb2.Node, since_ns: int, pods: Iterable[PodRecord], now_ns: int
    ) -> eviction_pb2.Observations:
        """Return what the kubelet of a node that is there since `since_ns` sees at `now_ns`.

        Memory and disk are seen where the trace tells of them at all: what it does not tell of
        counts as nothing then.
        """
        observations = eviction_pb2.Observations()
        segments = []
        for pod in pods:
            profile = self._profiles.get(pod.life.usage_id)
            if profile is not None and pod.running_ns is not None:
                segment = profile.at(now_ns - pod.running_ns)
                segments.append(segment)
                _pod_stats(observations.pods.add(), pod, segment)
        own = self._by_node.get(node.metadata.name)
        if own is not None:
            segments.append(own.at(now_ns - since_ns))
        capacity = node.status.capacity or node.status.allocatable
        if self._tells_memory and "memory" in capacity:
            used = sum(each.memory_bytes for each in segments)
            _memory_stats(observations.memory, quantity.value(capacity["memory"]), used, now_ns)
        if self._tells_storage and "ephemeral-storage" in capacity:
            whole, used = (
                capacity["ephemeral-storage"],
                sum(each.storage_bytes for each in segments),
            )
            _fs_stats(observations.node_fs, quantity.value(whole), used, now_ns)
        return observations


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ahead:
    """What several sources use together, from each moment at which one of them changes.

    `end_ns` is where the look ahead ends, None where nothing comes after it.
    """

    times: Int64s
    memory: Int64s
    storage: Int64s
    end_ns: int | None

    @classmethod
    def of(cls, sources: Sequence[tuple[int, _Profile]], now_ns: int) -> _Ahead | None:
        """Return the next HORIZON_NS of sources with their starts; None where nothing comes."""
        times, memory, storage = [], [], []
        used_memory = used_storage = 0
        comes = goes_on = False
        for start_ns, profile in sources:
            low = int(profile.offsets.searchsorted(now_ns - start_ns, side="right"))
            high = int(profile.offsets.searchsorted(now_ns - start_ns + HORIZON_NS, side="right"))
            comes |= low < len(profile.offsets)
            goes_on |= high < len(profile.offsets)
            times.append(profile.offsets[low:high] + start_ns)
            memory.append(_steps(profile.memory, low, high))
            storage.append(_steps(profile.storage, low, high))
            used_memory += int(profile.memory[low - 1]) if low else 0
            used_storage += int(profile.storage[low - 1]) if low else 0
        if not comes:
            return None
        at = np.concatenate(times)
        order = at.argsort(kind="stable")
        at = at[order]
        last = np.append(at[1:] != at[:-1], True) if len(at) else np.zeros(0, dtype=bool)
        return cls(
            times=at[last],
            memory=(used_memory + np.concatenate(memory)[order].cumsum())[last],
            storage=(used_storage + np.concatenate(storage)[order].cumsum())[last],
            end_ns=now_ns + HORIZON_NS if goes_on else None,
        )


def _steps(values: Int64s, low: int, high: int) -> Int64s:
    """Return by how much each of values[low:high] differs from the one before it, 0 at first."""
    if not low:
        return np.diff(values[:high], prepend=0)
    return np.diff(values[low - 1 : high])


def _memory_stats(
    stats: eviction_pb2.MemoryStats, capacity_bytes: int, used_bytes: int, now_ns: int
) -> None:
    stats.available_bytes = max(0, capacity_bytes - used_bytes)
    stats.working_set_bytes = min(capacity_bytes, used_bytes)
    stats.time_ns = now_ns


def _fs_stats(
    stats: eviction_pb2.FsStats, capacity_bytes: int, used_bytes: int, now_ns: int
) -> None:
    stats.available_bytes = max(0, capacity_bytes - used_bytes)
    stats.capacity_bytes = capacity_bytes
    stats.time_ns = now_ns


def _pod_stats(
    stats: eviction_pb2.PodStats, pod: PodRecord, segment: trace_pb2.UsageSegment
) -> None:
    stats.pod.CopyFrom(pod.session_ref())
    if segment.HasField("memory_bytes"):
        stats.memory_working_set_bytes = segment.memory_bytes
    if segment.HasField("storage_bytes"):
        stats.ephemeral_used_bytes = segment.storage_bytes
    if segment.HasField("processes"):
        stats.processes = segment.processes
    _container_stats(stats, pod, segment)


def _container_stats(
    stats: eviction_pb2.PodStats, pod: PodRecord, segment: trace_pb2.UsageSegment
) -> None:
    """Share a pod's usage among its containers in proportion to their memory requests."""
    containers = pod.message.spec.containers
    weights = [
        quantity.value(each.resources.requests["memory"])
        if "memory" in each.resources.requests
        else 0
        for each in containers
    ]
    if not any(weights):
        weights = [1] * len(weights)
    whole = sum(weights)
    for container, weight in zip(containers, weights, strict=True):
        shown = stats.containers.add(name=container.name)
        if segment.HasField("memory_bytes"):
            shown.memory_working_set_bytes = segment.memory_bytes * weight // whole
        if segment.HasField("storage_bytes"):
            shown.used_bytes = segment.storage_bytes * weight // whole
        if segment.HasField("inodes"):
            shown.inodes_used = segment.inodes * weight // whole
