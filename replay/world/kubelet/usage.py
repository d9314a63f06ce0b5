"""What pods and nodes use over time, and the observations that it makes.

Profiles come from the trace, rules from the user, and annotations from manifests.

Usage counts from a pod's start, a node's own from its coming; it is sampled afresh at each step of
a node's eviction manager. A rule counts before an annotation, and that before a profile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from replay.world.api.pod_record import PodRecord
from replay.world.kubelet.annotations import MEMORY as MEMORY_RESOURCE
from replay.world.kubelet.annotations import STORAGE, Growth, Rising, UsageRule, annotated_usage
from replay.world.kubelet.look_ahead import Amounts, Bounds, Sources, int64s
from reprieve.eviction.v1beta1 import eviction_pb2
from reprieve.kube.v1beta1 import node_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube import quantity

MEMORY = "memory.available"
_NOTHING = trace_pb2.UsageSegment()


class Profile:
    """A profile whose segments are found by their offset."""

    __slots__ = ("_offsets", "_segments", "memory", "storage")

    def __init__(self, profile: trace_pb2.UsageProfile) -> None:
        self._segments = list(profile.segments)
        self._offsets = int64s([each.offset_ns for each in self._segments])
        self.memory = Amounts(self._offsets, [each.memory_bytes for each in self._segments])
        self.storage = Amounts(self._offsets, [each.storage_bytes for each in self._segments])

    def at(self, offset_ns: int) -> trace_pb2.UsageSegment:
        """Return what is used so long after the start; nothing before the first segment."""
        index = int(self._offsets.searchsorted(offset_ns, side="right"))
        return self._segments[index - 1] if index else _NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grown:
    """What a pod uses by rules and annotations, by resource, since `since_ns`.

    `running_ns` is when its containers began to run. `replaces` tells that its owner made it where
    another pod that grew was evicted.
    """

    growths: Mapping[str, Growth]
    since_ns: int
    running_ns: int
    replaces: bool


class UsageProfiles:
    """The profiles of a trace, and `rules`, of which the last that matches a pod counts."""

    def __init__(self, rules: Sequence[UsageRule] = ()) -> None:
        self._rules = rules
        self._profiles: dict[int, Profile] = {}
        self._by_template: dict[int, int] = {}
        self._by_node: dict[str, Profile] = {}
        self._grown: dict[str, _Grown] = {}
        self._bereft: set[str] = set()
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

    def runs(self, now_ns: int, pod: PodRecord) -> None:
        """Take note of a pod whose containers run, or did before the replay knew of it."""
        known = self._grown.get(pod.uid)
        if pod.running_ns is None or (known is not None and known.running_ns == pod.running_ns):
            return
        annotations = pod.message.metadata.annotations
        if not (annotations or self._rules):
            return
        growths = dict(annotated_usage(annotations))
        growths |= {each.resource: each.growth for each in self._rules if each.matches(pod.message)}
        if not growths:
            return
        self._tells_memory |= MEMORY_RESOURCE in growths
        self._tells_storage |= STORAGE in growths
        self._grown[pod.uid] = _Grown(
            growths=growths,
            since_ns=now_ns,
            running_ns=pod.running_ns,
            replaces=pod.owner_uid in self._bereft,
        )

    def evicted(self, pod: PodRecord) -> None:
        """Take note that a pod was evicted: what its owner makes from now on replaces it."""
        if pod.uid in self._grown and pod.owner_uid:
            self._bereft.add(pod.owner_uid)

    def forget(self, pod: PodRecord) -> None:
        """Drop what was noted of a pod that has ended."""
        self._grown.pop(pod.uid, None)

    @property
    def has_replacements(self) -> bool:
        """Tell whether pods grow again in the place of evicted ones."""
        return any(each.replaces for each in self._grown.values())

    def replaces(self, pod: PodRecord) -> bool:
        """Tell whether a pod grows again in the place of an evicted one."""
        grown = self._grown.get(pod.uid)
        return grown is not None and grown.replaces

    @property
    def is_told(self) -> bool:
        """Tell whether anything is known of what any pod or node uses."""
        return self._tells_memory or self._tells_storage

    @property
    def has_any(self) -> bool:
        """Tell whether the usage of any pod or node is known, of whatever resource."""
        return bool(self._profiles or self._grown)

    def may_tell(self, pod: PodRecord) -> bool:
        """Tell whether anything is known of what a pod, or another one, uses."""
        known = self.is_told or self.has_any or bool(self._rules)
        return known or bool(annotated_usage(pod.message.metadata.annotations))

    def of_template(self, template_id: int) -> int:
        """Return the number of a template's profile, 0 for none."""
        return self._by_template.get(template_id, 0)

    def is_known(self, pod: PodRecord) -> bool:
        """Tell whether it is known what the pod uses."""
        return pod.life.usage_id in self._profiles or pod.uid in self._grown

    def has_overhead(self, node_name: str) -> bool:
        """Tell whether the trace says what a node uses beside its pods."""
        return node_name in self._by_node

    def sources(self, node: node_pb2.Node, since_ns: int, pods: Iterable[PodRecord]) -> Sources:
        """Return what a node itself and its active pods use, with their starts."""
        found = Sources()
        capacity = _capacity(node)
        for pod in pods:
            if pod.running_ns is None:
                continue
            profile, grown = self._profiles.get(pod.life.usage_id), self._grown.get(pod.uid)
            growths = grown.growths if grown is not None else {}
            for resource, told in ((MEMORY_RESOURCE, found.memory), (STORAGE, found.storage)):
                growth = growths.get(resource)
                if profile is not None and (growth is None or growth.start_bytes is None):
                    is_memory = resource == MEMORY_RESOURCE
                    told.append((pod.running_ns, profile.memory if is_memory else profile.storage))
                if grown is not None and growth is not None:
                    rising = Rising(growth=growth, most_bytes=capacity.get(resource, 0))
                    told.append((grown.since_ns, rising))
        own = self._by_node.get(node.metadata.name)
        if own is not None:
            found.memory.append((since_ns, own.memory))
            found.storage.append((since_ns, own.storage))
        return found

    def bounds(self, node: node_pb2.Node, least: Mapping[str, int]) -> Bounds:
        """Return how much a node may use for `least`, by signal, to stay available.

        A signal that is not named, or that the node does not observe, bounds nothing.
        """
        capacity = _capacity(node)
        most = {
            resource: capacity[resource] - least[signal]
            for signal, resource, is_told in (
                (MEMORY, MEMORY_RESOURCE, self._tells_memory),
                ("nodefs.available", STORAGE, self._tells_storage),
            )
            # What is available is never less than nothing.
            if is_told and resource in capacity and least.get(signal, 0) > 0
        }
        return Bounds(memory=most.get(MEMORY_RESOURCE), storage=most.get(STORAGE))

    def observe(
        self, node: node_pb2.Node, since_ns: int, pods: Iterable[PodRecord], now_ns: int
    ) -> eviction_pb2.Observations:
        """Return what the kubelet of a node that is there since `since_ns` sees at `now_ns`.

        Memory and disk are seen where anything tells of them at all: what nothing tells of counts
        as nothing then.
        """
        observations = eviction_pb2.Observations()
        segments = []
        capacity = _capacity(node)
        for pod in pods:
            if pod.running_ns is not None and self.is_known(pod):
                segment = self._segment(pod, pod.running_ns, now_ns, capacity)
                segments.append(segment)
                _pod_stats(observations.pods.add(), pod, segment)
        own = self._by_node.get(node.metadata.name)
        if own is not None:
            segments.append(own.at(now_ns - since_ns))
        if self._tells_memory and MEMORY_RESOURCE in capacity:
            used = sum(each.memory_bytes for each in segments)
            _memory_stats(observations.memory, capacity[MEMORY_RESOURCE], used, now_ns)
        if self._tells_storage and STORAGE in capacity:
            used = sum(each.storage_bytes for each in segments)
            _fs_stats(observations.node_fs, capacity[STORAGE], used, now_ns)
        return observations

    def _segment(
        self, pod: PodRecord, running_ns: int, now_ns: int, capacity: Mapping[str, int]
    ) -> trace_pb2.UsageSegment:
        """Return what a running pod uses at `now_ns` on a node of that capacity."""
        profile = self._profiles.get(pod.life.usage_id)
        segment = profile.at(now_ns - running_ns) if profile is not None else _NOTHING
        grown = self._grown.get(pod.uid)
        if grown is None:
            return segment
        result = trace_pb2.UsageSegment()
        result.CopyFrom(segment)
        for resource, growth in grown.growths.items():
            rising = Rising(growth=growth, most_bytes=capacity.get(resource, 0))
            used = rising.used(now_ns - grown.since_ns)
            is_added = growth.start_bytes is None
            if resource == MEMORY_RESOURCE:
                result.memory_bytes = used + (segment.memory_bytes if is_added else 0)
            else:
                result.storage_bytes = used + (segment.storage_bytes if is_added else 0)
        return result


def _capacity(node: node_pb2.Node) -> dict[str, int]:
    """Return the node's memory and ephemeral storage, bytes, where it has them."""
    told = node.status.capacity or node.status.allocatable
    return {
        resource: quantity.value(told[resource])
        for resource in (MEMORY_RESOURCE, STORAGE)
        if resource in told
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
