"""The usage of pods and nodes over time, and a kubelet's observations of it.

Profiles come from the trace, rules from the user and annotations from manifests: a rule takes
precedence over an annotation, and an annotation over a profile. Usage counts from a pod's start, a
node's own from its creation; it is sampled at each step of the node's eviction manager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from replay.world.api.pod_record import PodRecord
from replay.world.kubelet.annotations import MEMORY as MEMORY_RESOURCE
from replay.world.kubelet.annotations import (
    STORAGE,
    Growth,
    GrowthCurve,
    UsageRule,
    annotated_usage,
)
from replay.world.kubelet.memory_limits import (
    DEFAULT_KUBELET,
    KubeletMemory,
    kubepods_limit,
    memory_capacity,
)
from replay.world.kubelet.observations import fs_stats, memory_stats, pod_stats
from replay.world.kubelet.pod_usage import GrowingPod, MemoryPart, UsageProfile, memory_parts
from replay.world.kubelet.usage_curves import NodeUsage, UsageCurve, UsageLimits
from replay.world.part import Part
from reprieve.eviction.v1beta1 import eviction_pb2
from reprieve.kube.v1beta1 import node_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube import quantity

MEMORY = "memory.available"
ALLOCATABLE_MEMORY = "allocatableMemory.available"


class UsageProfiles(Part):
    """The profiles of a trace, and `rules`; the last rule that matches a pod applies.

    `has_limits`: memory limits end the growth of containers.
    """

    _profiles: dict[int, UsageProfile]
    _by_node: dict[str, UsageProfile]
    _growing: dict[str, GrowingPod]
    _owners_of_evicted: set[str]
    _has_memory: bool
    _has_storage: bool

    def __init__(
        self,
        rules: Sequence[UsageRule] = (),
        kubelet: KubeletMemory = DEFAULT_KUBELET,
        *,
        has_limits: bool = True,
    ) -> None:
        super().__init__()
        self._rules = rules
        self._kubelet = kubelet
        self._has_limits = has_limits

    def add(self, profile: trace_pb2.UsageProfile) -> None:
        """Add a profile of the trace."""
        self._profiles[profile.id] = UsageProfile(profile)
        self._has_memory |= self._profiles[profile.id].has_memory
        self._has_storage |= any(segment.HasField("storage_bytes") for segment in profile.segments)
        if profile.node_name:
            self._by_node[profile.node_name] = self._profiles[profile.id]

    def started(self, now_ns: int, pod: PodRecord) -> None:
        """Begin the growth of a pod if its containers run and it does not grow already."""
        growing = self._growing.get(pod.uid)
        if pod.running_ns is None or (growing and growing.running_ns == pod.running_ns):
            return
        annotations = pod.message.metadata.annotations
        if not (annotations or self._rules):
            return
        growths = self._growths(pod)
        if not growths:
            return
        memory = {
            container: growth
            for (resource, container), growth in growths.items()
            if resource == MEMORY_RESOURCE
        }
        storage = growths.get((STORAGE, ""))
        self._has_memory |= bool(memory)
        self._has_storage |= storage is not None
        self._growing[pod.uid] = GrowingPod(
            memory=memory,
            storage=storage,
            since_ns=now_ns,
            running_ns=pod.running_ns,
            replaces=pod.owner_uid in self._owners_of_evicted,
        )

    def _growths(self, pod: PodRecord) -> dict[tuple[str, str], Growth]:
        """Return a pod's growths by resource and container."""
        growths = dict(annotated_usage(pod.message.metadata.annotations))
        growths |= {
            (rule.resource, rule.container): rule.growth
            for rule in self._rules
            if rule.matches(pod.message)
        }
        return growths

    def first_memory(self, pod: PodRecord, container: str) -> int:
        """Return what an init container uses when it starts, bytes."""
        growth = self._growths(pod).get((MEMORY_RESOURCE, container))
        profile = self._profiles.get(pod.life.usage_id)
        recorded = profile.containers.get(container) if profile is not None else None
        if growth is not None and growth.start_bytes is not None:
            return growth.start_bytes
        return recorded.used(0) if recorded is not None else 0

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
        return any(growing.replaces for growing in self._growing.values())

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

    def has_usage(self, pod: PodRecord) -> bool:
        """Return whether the pod has a profile or grows."""
        return pod.life.usage_id in self._profiles or pod.uid in self._growing

    def node_memory(self, node_name: str) -> UsageCurve | None:
        """Return the curve of a node's own memory, None if the trace has none."""
        profile = self._by_node.get(node_name)
        return None if profile is None else profile.memory

    def has_overhead(self, node_name: str) -> bool:
        """Return whether the trace states what a node uses besides its pods."""
        return node_name in self._by_node

    def node_usage(
        self, node: node_pb2.Node, since_ns: int, pods: Iterable[PodRecord]
    ) -> NodeUsage:
        """Return the curves of a node that exists since `since_ns`, and of its active pods."""
        usage = NodeUsage()
        capacity = _amounts_of(node)
        for pod in pods:
            if pod.running_ns is None:
                continue
            usage.memory.extend(
                (part.start_ns, part.curve)
                for part in self.memory_parts(pod, capacity.get(MEMORY_RESOURCE, 0))
            )
            profile, growing = self._profiles.get(pod.life.usage_id), self._growing.get(pod.uid)
            growth = growing.storage if growing is not None else None
            if profile is not None and (growth is None or growth.start_bytes is None):
                usage.storage.append((pod.running_ns, profile.storage))
            if growing is not None and growth is not None:
                grown = GrowthCurve(growth=growth, most_bytes=capacity.get(STORAGE, 0))
                usage.storage.append((growing.since_ns, grown))
        node_profile = self._by_node.get(node.metadata.name)
        if node_profile is not None:
            usage.own_memory.append((since_ns, node_profile.memory))
            usage.storage.append((since_ns, node_profile.storage))
        return usage

    def memory_parts(
        self, pod: PodRecord, most_bytes: int, *, limits: bool = True
    ) -> list[MemoryPart]:
        """Return the parts of a pod's memory; none while its containers do not run.

        A growth ends at `most_bytes`, and with `limits` at its container's limit.
        """
        profile, growing = self._profiles.get(pod.life.usage_id), self._growing.get(pod.uid)
        has_limits = limits and self._has_limits
        return memory_parts(pod, profile, growing, most_bytes, has_limits=has_limits)

    def limits(self, node: node_pb2.Node, least: Mapping[str, int]) -> UsageLimits:
        """Return how much a node may use while `least`, by signal, stays available.

        A signal that is absent, or that the node does not observe, sets no limit.
        """
        capacity = _amounts_of(node)
        most = {
            resource: capacity[resource] - least[signal]
            for signal, resource, is_observed in (
                (MEMORY, MEMORY_RESOURCE, self._has_memory),
                ("nodefs.available", STORAGE, self._has_storage),
            )
            # What is available is never negative: at least 0 is always met.
            if is_observed and resource in capacity and least.get(signal, 0) > 0
        }
        of_pods = self._pods_limit(node)
        if of_pods is not None and least.get(ALLOCATABLE_MEMORY, 0) > 0:
            of_pods -= least[ALLOCATABLE_MEMORY]
        else:
            of_pods = None
        return UsageLimits(
            memory=most.get(MEMORY_RESOURCE), pods_memory=of_pods, storage=most.get(STORAGE)
        )

    def _pods_limit(self, node: node_pb2.Node) -> int | None:
        """Return the limit of all pods' memory, bytes; None if it is not below the capacity."""
        limit = kubepods_limit(node, self._kubelet) if self._has_memory else None
        return limit if limit is not None and limit < memory_capacity(node) else None

    def observe(
        self, node: node_pb2.Node, since_ns: int, pods: Iterable[PodRecord], now_ns: int
    ) -> eviction_pb2.Observations:
        """Return what the kubelet of a node that exists since `since_ns` observes at `now_ns`.

        Memory and disk are observed where any pod or node has usage of them; the use of a pod
        without any counts as 0 then.
        """
        observations = eviction_pb2.Observations()
        capacity = _amounts_of(node)
        memory_bytes = storage_bytes = 0
        for pod in pods:
            if pod.running_ns is not None and self.has_usage(pod):
                segment, by_container = self._used(pod, pod.running_ns, now_ns, capacity)
                memory_bytes += segment.memory_bytes
                storage_bytes += segment.storage_bytes
                pod_stats(observations.pods.add(), pod, segment, by_container)
        of_pods = self._pods_limit(node)
        if of_pods is not None:
            memory_stats(observations.allocatable_memory, of_pods, memory_bytes, now_ns)
        node_profile = self._by_node.get(node.metadata.name)
        if node_profile is not None:
            memory_bytes += node_profile.memory.used(now_ns - since_ns)
            storage_bytes += node_profile.storage.used(now_ns - since_ns)
        if self._has_memory and MEMORY_RESOURCE in capacity:
            memory_stats(observations.memory, capacity[MEMORY_RESOURCE], memory_bytes, now_ns)
        if self._has_storage and STORAGE in capacity:
            fs_stats(observations.node_fs, capacity[STORAGE], storage_bytes, now_ns)
        return observations

    def _used(
        self, pod: PodRecord, running_ns: int, now_ns: int, capacity: Mapping[str, int]
    ) -> tuple[trace_pb2.UsageSegment, dict[str, int]]:
        """Return what a running pod uses at `now_ns`, and its memory by container as it is known.

        The memory of no container in particular is under "".
        """
        profile, growing = self._profiles.get(pod.life.usage_id), self._growing.get(pod.uid)
        result = trace_pb2.UsageSegment()
        if profile is not None:
            result.CopyFrom(profile.at(now_ns - running_ns))
            del result.containers[:]
        by_container: dict[str, int] = {}
        for part in self.memory_parts(pod, capacity.get(MEMORY_RESOURCE, 0)):
            used = part.curve.used(now_ns - part.start_ns)
            by_container[part.container] = by_container.get(part.container, 0) + used
        has_memory = growing is not None and bool(growing.memory)
        if has_memory or (profile is not None and profile.reports_memory(now_ns - running_ns)):
            result.memory_bytes = quantity.saturated(sum(by_container.values()))
        growth = growing.storage if growing is not None else None
        if growing is not None and growth is not None:
            curve = GrowthCurve(growth=growth, most_bytes=capacity.get(STORAGE, 0))
            more = result.storage_bytes if growth.start_bytes is None else 0
            used = curve.used(now_ns - growing.since_ns)
            result.storage_bytes = quantity.saturated(used + more)
        return result, by_container


def _amounts_of(node: node_pb2.Node) -> dict[str, int]:
    """Return the node's memory and ephemeral storage, bytes, where it has them."""
    amounts = node.status.capacity or node.status.allocatable
    return {
        resource: quantity.value(amounts[resource])
        for resource in (MEMORY_RESOURCE, STORAGE)
        if resource in amounts
    }
