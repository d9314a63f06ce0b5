"""The usage of pods and nodes over time, and the observations that a kubelet makes of it.

Profiles come from the trace, rules from the user and annotations from manifests: a rule takes
precedence over an annotation, and an annotation over a profile. Usage counts from a pod's start, a
node's own from its creation; it is sampled at each step of the node's eviction manager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from replay.world.api.pod_record import PodRecord
from replay.world.kubelet.annotations import MEMORY as MEMORY_RESOURCE
from replay.world.kubelet.annotations import (
    STORAGE,
    Growth,
    GrowthCurve,
    UsageRule,
    annotated_usage,
)
from replay.world.kubelet.usage_curves import NodeUsage, SegmentCurve, UsageLimits, int64s
from reprieve.eviction.v1beta1 import eviction_pb2
from reprieve.kube.v1beta1 import node_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube import quantity

MEMORY = "memory.available"
_NOTHING = trace_pb2.UsageSegment()


class UsageProfile:
    """A recorded profile: its segments by offset, and a curve for each resource."""

    __slots__ = ("_offsets", "_segments", "memory", "storage")

    def __init__(self, profile: trace_pb2.UsageProfile) -> None:
        self._segments = list(profile.segments)
        self._offsets = int64s([each.offset_ns for each in self._segments])
        self.memory = SegmentCurve(self._offsets, [each.memory_bytes for each in self._segments])
        self.storage = SegmentCurve(self._offsets, [each.storage_bytes for each in self._segments])

    def at(self, offset_ns: int) -> trace_pb2.UsageSegment:
        """Return the segment at an offset from the start; an empty one before the first."""
        index = int(self._offsets.searchsorted(offset_ns, side="right"))
        return self._segments[index - 1] if index else _NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class _GrowingPod:
    """A pod whose usage grows by rules or annotations, by resource, since `since_ns`.

    `running_ns` is when its containers began to run. `replaces`: its owner made it after another
    growing pod of the owner's was evicted.
    """

    growths: Mapping[str, Growth]
    since_ns: int
    running_ns: int
    replaces: bool


class UsageProfiles:
    """The profiles of a trace, and `rules`; the last rule that matches a pod applies."""

    def __init__(self, rules: Sequence[UsageRule] = ()) -> None:
        self._rules = rules
        self._profiles: dict[int, UsageProfile] = {}
        self._by_template: dict[int, int] = {}
        self._by_node: dict[str, UsageProfile] = {}
        self._growing: dict[str, _GrowingPod] = {}
        self._owners_of_evicted: set[str] = set()
        self._has_memory = False
        self._has_storage = False

    def add(self, profile: trace_pb2.UsageProfile) -> None:
        """Add a profile of the trace."""
        self._has_memory |= any(each.HasField("memory_bytes") for each in profile.segments)
        self._has_storage |= any(each.HasField("storage_bytes") for each in profile.segments)
        self._profiles[profile.id] = UsageProfile(profile)
        if profile.template_id:
            self._by_template[profile.template_id] = profile.id
        if profile.node_name:
            self._by_node[profile.node_name] = self._profiles[profile.id]

    def started(self, now_ns: int, pod: PodRecord) -> None:
        """Begin the growth of a pod if its containers run; a pod that grows already goes on."""
        growing = self._growing.get(pod.uid)
        if pod.running_ns is None or (growing and growing.running_ns == pod.running_ns):
            return
        annotations = pod.message.metadata.annotations
        if not (annotations or self._rules):
            return
        growths = dict(annotated_usage(annotations))
        growths |= {each.resource: each.growth for each in self._rules if each.matches(pod.message)}
        if not growths:
            return
        self._has_memory |= MEMORY_RESOURCE in growths
        self._has_storage |= STORAGE in growths
        self._growing[pod.uid] = _GrowingPod(
            growths=growths,
            since_ns=now_ns,
            running_ns=pod.running_ns,
            replaces=pod.owner_uid in self._owners_of_evicted,
        )

    def evicted(self, pod: PodRecord) -> None:
        """Note that a pod is evicted: the pods that its owner makes from now on replace it."""
        if pod.uid in self._growing and pod.owner_uid:
            self._owners_of_evicted.add(pod.owner_uid)

    def forget(self, pod: PodRecord) -> None:
        """Drop the growth of a pod that has ended."""
        self._growing.pop(pod.uid, None)

    @property
    def has_replacements(self) -> bool:
        """Return whether any growing pod replaces an evicted one."""
        return any(each.replaces for each in self._growing.values())

    def replaces(self, pod: PodRecord) -> bool:
        """Return whether a growing pod replaces an evicted one."""
        growing = self._growing.get(pod.uid)
        return growing is not None and growing.replaces

    @property
    def has_memory_or_storage(self) -> bool:
        """Return whether any profile, rule or annotation states use of memory or storage."""
        return self._has_memory or self._has_storage

    @property
    def has_any(self) -> bool:
        """Return whether there is a profile, of any resource, or a growing pod."""
        return bool(self._profiles or self._growing)

    def may_have_usage(self, pod: PodRecord) -> bool:
        """Return whether the usage of this pod or of any other one may be stated."""
        has_usage = self.has_memory_or_storage or self.has_any or bool(self._rules)
        return has_usage or bool(annotated_usage(pod.message.metadata.annotations))

    def of_template(self, template_id: int) -> int:
        """Return the number of a template's profile, 0 for none."""
        return self._by_template.get(template_id, 0)

    def has_usage(self, pod: PodRecord) -> bool:
        """Return whether the pod has a profile or grows."""
        return pod.life.usage_id in self._profiles or pod.uid in self._growing

    def has_overhead(self, node_name: str) -> bool:
        """Return whether the trace states what a node uses besides its pods."""
        return node_name in self._by_node

    def node_usage(
        self, node: node_pb2.Node, since_ns: int, pods: Iterable[PodRecord]
    ) -> NodeUsage:
        """Return the curves of a node that exists since `since_ns`, and of its active pods."""
        found = NodeUsage()
        capacity = _capacity(node)
        for pod in pods:
            if pod.running_ns is None:
                continue
            profile, growing = self._profiles.get(pod.life.usage_id), self._growing.get(pod.uid)
            growths = growing.growths if growing is not None else {}
            for resource, curves in ((MEMORY_RESOURCE, found.memory), (STORAGE, found.storage)):
                growth = growths.get(resource)
                if profile is not None and (growth is None or growth.start_bytes is None):
                    is_memory = resource == MEMORY_RESOURCE
                    curve = profile.memory if is_memory else profile.storage
                    curves.append((pod.running_ns, curve))
                if growing is not None and growth is not None:
                    growth_curve = GrowthCurve(growth=growth, most_bytes=capacity.get(resource, 0))
                    curves.append((growing.since_ns, growth_curve))
        own = self._by_node.get(node.metadata.name)
        if own is not None:
            found.memory.append((since_ns, own.memory))
            found.storage.append((since_ns, own.storage))
        return found

    def limits(self, node: node_pb2.Node, least: Mapping[str, int]) -> UsageLimits:
        """Return how much a node may use while `least`, by signal, stays available.

        A signal that is absent, or that the node does not observe, sets no limit.
        """
        capacity = _capacity(node)
        most = {
            resource: capacity[resource] - least[signal]
            for signal, resource, is_observed in (
                (MEMORY, MEMORY_RESOURCE, self._has_memory),
                ("nodefs.available", STORAGE, self._has_storage),
            )
            # What is available is never negative: at least 0 is always met.
            if is_observed and resource in capacity and least.get(signal, 0) > 0
        }
        return UsageLimits(memory=most.get(MEMORY_RESOURCE), storage=most.get(STORAGE))

    def observe(
        self, node: node_pb2.Node, since_ns: int, pods: Iterable[PodRecord], now_ns: int
    ) -> eviction_pb2.Observations:
        """Return what the kubelet of a node that exists since `since_ns` observes at `now_ns`.

        Memory and disk are observed where any pod or node has usage of them; the use of a pod
        without any counts as 0 then.
        """
        observations = eviction_pb2.Observations()
        segments = []
        capacity = _capacity(node)
        for pod in pods:
            if pod.running_ns is not None and self.has_usage(pod):
                segment = self._segment(pod, pod.running_ns, now_ns, capacity)
                segments.append(segment)
                _pod_stats(observations.pods.add(), pod, segment)
        own = self._by_node.get(node.metadata.name)
        if own is not None:
            segments.append(own.at(now_ns - since_ns))
        if self._has_memory and MEMORY_RESOURCE in capacity:
            used = sum(each.memory_bytes for each in segments)
            _memory_stats(observations.memory, capacity[MEMORY_RESOURCE], used, now_ns)
        if self._has_storage and STORAGE in capacity:
            used = sum(each.storage_bytes for each in segments)
            _fs_stats(observations.node_fs, capacity[STORAGE], used, now_ns)
        return observations

    def _segment(
        self, pod: PodRecord, running_ns: int, now_ns: int, capacity: Mapping[str, int]
    ) -> trace_pb2.UsageSegment:
        """Return what a running pod uses at `now_ns` on a node of that capacity, bytes."""
        profile = self._profiles.get(pod.life.usage_id)
        segment = profile.at(now_ns - running_ns) if profile is not None else _NOTHING
        growing = self._growing.get(pod.uid)
        if growing is None:
            return segment
        result = trace_pb2.UsageSegment()
        result.CopyFrom(segment)
        for resource, growth in growing.growths.items():
            curve = GrowthCurve(growth=growth, most_bytes=capacity.get(resource, 0))
            used = curve.used(now_ns - growing.since_ns)
            is_added = growth.start_bytes is None
            if resource == MEMORY_RESOURCE:
                more = segment.memory_bytes if is_added else 0
                result.memory_bytes = quantity.saturated(used + more)
            else:
                more = segment.storage_bytes if is_added else 0
                result.storage_bytes = quantity.saturated(used + more)
        return result


def _capacity(node: node_pb2.Node) -> dict[str, int]:
    """Return the node's memory and ephemeral storage, bytes, where it has them."""
    amounts = node.status.capacity or node.status.allocatable
    return {
        resource: quantity.value(amounts[resource])
        for resource in (MEMORY_RESOURCE, STORAGE)
        if resource in amounts
    }


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
