"""What pods and nodes use over time: profiles from the trace, and the observations they make.

Usage counts from a pod's start; it is sampled afresh at each step of a node's eviction manager.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from replay.world.pod_record import PodRecord
from reprieve.eviction.v1alpha1 import eviction_pb2
from reprieve.kube.v1alpha1 import node_pb2
from reprieve.trace.v1alpha1 import trace_pb2
from services.kube import quantity

_NOTHING = trace_pb2.UsageSegment()


@dataclass(frozen=True, slots=True)
class _Total:
    """What is used on a node; None where no pod's profile tells."""

    memory_bytes: int | None
    storage_bytes: int | None
    inodes: int | None
    processes: int | None


class UsageProfiles:
    """The profiles of a trace."""

    def __init__(self) -> None:
        self._profiles: dict[int, trace_pb2.UsageProfile] = {}
        self._by_template: dict[int, int] = {}
        self._by_node: dict[str, trace_pb2.UsageProfile] = {}

    def add(self, profile: trace_pb2.UsageProfile) -> None:
        """Take a profile from the trace."""
        self._profiles[profile.id] = profile
        if profile.template_id:
            self._by_template[profile.template_id] = profile.id
        if profile.node_name:
            self._by_node[profile.node_name] = profile

    def of_template(self, template_id: int) -> int:
        """Return the number of a template's profile, 0 for none."""
        return self._by_template.get(template_id, 0)

    def is_known(self, pod: PodRecord) -> bool:
        """Tell whether the trace says what the pod uses."""
        return pod.life.usage_id in self._profiles

    def overhead(self, node_name: str) -> bool:
        """Tell whether the trace says what a node uses beside its pods."""
        return node_name in self._by_node

    def now(self, pod: PodRecord, now_ns: int) -> trace_pb2.UsageSegment:
        """Return what a pod uses; nothing before it runs."""
        profile = self._profiles.get(pod.life.usage_id)
        if profile is None or pod.running_ns is None:
            return _NOTHING
        return _segment(profile, now_ns - pod.running_ns)

    def next_change_ns(self, pod: PodRecord, now_ns: int) -> int | None:
        """Return when what a running pod uses changes next; None for never."""
        profile = self._profiles.get(pod.life.usage_id)
        if profile is None or pod.running_ns is None:
            return None
        coming = (pod.running_ns + each.offset_ns for each in profile.segments)
        return next((at_ns for at_ns in coming if at_ns > now_ns), None)

    def observe(
        self, node: node_pb2.Node, pods: Iterable[PodRecord], now_ns: int
    ) -> eviction_pb2.Observations:
        """Return what a node's kubelet sees at `now_ns`."""
        observations = eviction_pb2.Observations()
        segments = []
        for pod in pods:
            segment = self.now(pod, now_ns)
            segments.append(segment)
            if self.is_known(pod) and pod.running_ns is not None:
                _pod_stats(observations.pods.add(), pod, segment)
        own = self._by_node.get(node.metadata.name)
        if own is not None:
            segments.append(_segment(own, now_ns))
        _node_stats(observations, node, _total(segments), now_ns)
        return observations


def _segment(profile: trace_pb2.UsageProfile, offset_ns: int) -> trace_pb2.UsageSegment:
    current = _NOTHING
    for segment in profile.segments:
        if segment.offset_ns > offset_ns:
            break
        current = segment
    return current


def _total(segments: list[trace_pb2.UsageSegment]) -> _Total:
    def add(name: str) -> int | None:
        known = [getattr(each, name) for each in segments if each.HasField(name)]  # type: ignore[arg-type] # a field of the list below
        return sum(known) if known else None

    return _Total(add("memory_bytes"), add("storage_bytes"), add("inodes"), add("processes"))


def _node_stats(
    observations: eviction_pb2.Observations, node: node_pb2.Node, total: _Total, now_ns: int
) -> None:
    """Fill in memory, file system and processes, as far as usage and capacity are known."""
    capacity = node.status.capacity or node.status.allocatable
    if total.memory_bytes is not None and "memory" in capacity:
        whole = quantity.value(capacity["memory"])
        observations.memory.available_bytes = max(0, whole - total.memory_bytes)
        observations.memory.working_set_bytes = min(whole, total.memory_bytes)
        observations.memory.time_ns = now_ns
    if total.storage_bytes is not None and "ephemeral-storage" in capacity:
        whole = quantity.value(capacity["ephemeral-storage"])
        observations.node_fs.available_bytes = max(0, whole - total.storage_bytes)
        observations.node_fs.capacity_bytes = whole
        observations.node_fs.time_ns = now_ns


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
