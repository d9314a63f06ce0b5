"""What pods and nodes use over time: profiles from the trace, and the observations they make.

Usage counts from a pod's start, a node's own from its coming; it is sampled afresh at each step of
a node's eviction manager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from replay.world.lookahead import Amounts, Bounds, Source, int64s
from replay.world.pod_record import PodRecord
from reprieve.eviction.v1alpha1 import eviction_pb2
from reprieve.kube.v1alpha1 import node_pb2
from reprieve.trace.v1alpha1 import trace_pb2
from services.kube import quantity

MEMORY = "memory.available"
_NOTHING = trace_pb2.UsageSegment()


class Profile:
    """A profile whose segments are found by their offset."""

    __slots__ = ("_segments", "memory", "offsets", "storage")

    def __init__(self, profile: trace_pb2.UsageProfile) -> None:
        self._segments = list(profile.segments)
        self.offsets = int64s([each.offset_ns for each in self._segments])
        self.memory = Amounts.of([each.memory_bytes for each in self._segments])
        self.storage = Amounts.of([each.storage_bytes for each in self._segments])

    def at(self, offset_ns: int) -> trace_pb2.UsageSegment:
        """Return what is used so long after the start; nothing before the first segment."""
        index = int(self.offsets.searchsorted(offset_ns, side="right"))
        return self._segments[index - 1] if index else _NOTHING


class UsageProfiles:
    """The profiles of a trace."""

    def __init__(self) -> None:
        self._profiles: dict[int, Profile] = {}
        self._by_template: dict[int, int] = {}
        self._by_node: dict[str, Profile] = {}
        self._tells_memory = False
        self._tells_storage = False

    def add(self, profile: trace_pb2.UsageProfile) -> None:
        """Take a profile from the trace."""
        self._tells_memory |= any(each.HasField("memory_bytes") for each in profile.segments)
        self._tells_storage |= any(each.HasField("storage_bytes") for each in profile.segments)
        self._profiles[profile.id] = Profile(profile)
        if profile.template_id:
            self._by_template[profile.template_id] = profile.id
        if profile.node_name:
            self._by_node[profile.node_name] = self._profiles[profile.id]

    def __len__(self) -> int:
        return len(self._profiles)

    def of_template(self, template_id: int) -> int:
        """Return the number of a template's profile, 0 for none."""
        return self._by_template.get(template_id, 0)

    def is_known(self, pod: PodRecord) -> bool:
        """Tell whether the trace says what the pod uses."""
        return pod.life.usage_id in self._profiles

    def has_overhead(self, node_name: str) -> bool:
        """Tell whether the trace says what a node uses beside its pods."""
        return node_name in self._by_node

    def sources(
        self, node: node_pb2.Node, since_ns: int, pods: Iterable[PodRecord]
    ) -> list[Source]:
        """Return the profiles of a node's own usage and its active pods', with their starts."""
        found = [(pod.running_ns, self._profiles.get(pod.life.usage_id)) for pod in pods]
        found.append((since_ns, self._by_node.get(node.metadata.name)))
        return [(start, each) for start, each in found if each is not None and start is not None]

    def bounds(self, node: node_pb2.Node, least: Mapping[str, int]) -> Bounds:
        """Return how much a node may use for `least`, by signal, to stay available.

        A signal that is not named, or that the node does not observe, bounds nothing.
        """
        capacity = node.status.capacity or node.status.allocatable
        most = {
            resource: quantity.value(capacity[resource]) - least[signal]
            for signal, resource, is_told in (
                (MEMORY, "memory", self._tells_memory),
                ("nodefs.available", "ephemeral-storage", self._tells_storage),
            )
            # What is available is never less than nothing.
            if is_told and resource in capacity and least.get(signal, 0) > 0
        }
        return Bounds(memory=most.get("memory"), storage=most.get("ephemeral-storage"))

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
