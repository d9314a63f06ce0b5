"""The usage of one pod: recorded profiles, growths, and the parts of which its memory is made.

Memory is known by container where a profile, a rule or an annotation states it so. What is stated
for the pod is what its other containers use together: that of a container if there is only one.
The usage of a container that is killed counts anew from its restart, and so does a sum over
containers from the last kill or restart of any of them. A growth ends at the container's limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from replay.world.api.pod_record import PodRecord
from replay.world.kubelet.annotations import Growth, GrowthCurve
from replay.world.kubelet.memory_limits import container_limit, long_running
from replay.world.kubelet.usage_curves import SegmentCurve, UsageCurve, int64s
from reprieve.trace.v1beta1 import trace_pb2

_NOTHING = trace_pb2.UsageSegment()


class UsageProfile:
    """A recorded profile: its segments by offset, and a curve for each resource."""

    __slots__ = (
        "_offsets",
        "_segments",
        "containers",
        "has_memory",
        "memory",
        "profile",
        "rest",
        "storage",
    )

    profile: trace_pb2.UsageProfile

    def __init__(self, profile: trace_pb2.UsageProfile) -> None:
        self.profile = profile
        self._segments = list(profile.segments)
        self._offsets = int64s([segment.offset_duration_ns for segment in self._segments])
        by_container = [
            {container.name: container.memory_bytes for container in segment.containers}
            for segment in self._segments
        ]
        sums = [sum(amounts.values()) for amounts in by_container]
        totals = [
            max(segment.memory_bytes, known)
            for segment, known in zip(self._segments, sums, strict=True)
        ]
        rests = [total - known for total, known in zip(totals, sums, strict=True)]
        self.memory = SegmentCurve(self._offsets, totals)
        self.has_memory = any(sums) or any(
            segment.HasField("memory_bytes") for segment in self._segments
        )
        self.containers = {
            name: SegmentCurve(self._offsets, [amounts.get(name, 0) for amounts in by_container])
            for name in dict.fromkeys(name for amounts in by_container for name in amounts)
        }
        self.rest = SegmentCurve(self._offsets, rests) if self.containers else self.memory
        self.storage = SegmentCurve(
            self._offsets, [segment.storage_bytes for segment in self._segments]
        )

    def reports_memory(self, offset_ns: int) -> bool:
        """Return whether memory is known at an offset, of the pod or of a container."""
        segment = self.at(offset_ns)
        return segment.HasField("memory_bytes") or bool(segment.containers)

    def at(self, offset_ns: int) -> trace_pb2.UsageSegment:
        """Return the segment at an offset from the start; an empty one before the first."""
        index = int(self._offsets.searchsorted(offset_ns, side="right"))
        return self._segments[index - 1] if index else _NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPart:
    """A part of a pod's memory: a curve and its start.

    `container` uses it; "" if it is a sum over containers (`is_shared`) or no container's.
    """

    start_ns: int
    curve: UsageCurve
    container: str = ""
    is_shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowingPod:
    """A pod whose usage grows by rules or annotations, since `since_ns`.

    `memory` is by container, "" for the pod; `storage` is the pod's. `running_ns` is when its
    containers began to run. `replaces`: its owner made it after another growing pod of the owner's
    was evicted.
    """

    memory: Mapping[str, Growth]
    storage: Growth | None
    since_ns: int
    running_ns: int
    replaces: bool


def memory_parts(
    pod: PodRecord,
    profile: UsageProfile | None,
    growing: GrowingPod | None,
    most_bytes: int,
    *,
    has_limits: bool,
) -> list[MemoryPart]:
    """Return the parts of a pod's memory; none while its containers do not run.

    A growth ends at `most_bytes`, and with `has_limits` at its container's limit.
    """
    if pod.running_ns is None:
        return []
    if profile is None and growing is None:
        return []
    if growing is None and profile is not None and not (profile.containers or pod.containers):
        return [_recorded_sum(pod, pod.running_ns, profile.rest)]
    containers = {container.name: container for container in long_running(pod.message.spec)}
    growths = growing.memory if growing is not None else {}
    parts = _Parts(pod)
    if profile is not None and not _replaces(growths.get("")):
        for name, curve in profile.containers.items():
            if name in containers and not _replaces(growths.get(name)):
                parts.add(pod.running_ns, curve, name)
        others = [name for name in containers if name not in profile.containers]
        if len(others) != 1 or not _replaces(growths.get(others[0])):
            parts.add_sum(pod.running_ns, profile.rest, others)
    for name, growth in growths.items():
        assert growing is not None  # noqa: S101 - it has the growths
        if name and name not in containers:
            continue
        users = (
            [name]
            if name
            else [container_name for container_name in containers if container_name not in growths]
        )
        end_bytes = most_bytes
        if has_limits and len(users) == 1:
            limit = container_limit(containers[users[0]])
            end_bytes = min(most_bytes, most_bytes if limit is None else limit)
        grown = GrowthCurve(growth=growth, most_bytes=end_bytes)
        parts.add_sum(growing.since_ns, grown, users)
    return parts.parts


def _recorded_sum(pod: PodRecord, running_ns: int, curve: UsageCurve) -> MemoryPart:
    """Return the one part of a pod whose sum alone is recorded, and no container was killed.

    Nearly every pod of a recording is one, and its parts are read at each step of its node.
    """
    containers = [container.name for container in long_running(pod.message.spec)]
    if len(containers) == 1:
        return MemoryPart(start_ns=running_ns, curve=curve, container=containers[0])
    return MemoryPart(start_ns=running_ns, curve=curve, is_shared=bool(containers))


class _Parts:
    """The parts of a pod's memory; those of containers that do not run are left out."""

    def __init__(self, pod: PodRecord) -> None:
        self._runs = pod.containers
        self.parts: list[MemoryPart] = []

    def add_sum(self, start_ns: int, curve: UsageCurve, containers: Sequence[str]) -> None:
        """Add what some containers use together; what none of them uses is the pod's."""
        if len(containers) == 1:
            self.add(start_ns, curve, containers[0])
            return
        killed = [run for name, run in self._runs.items() if name in containers]
        if killed and len(killed) == len(containers) and not any(run.runs for run in killed):
            return
        start_ns = max([start_ns, *(run.changed_ns for run in killed)])
        part = MemoryPart(start_ns=start_ns, curve=curve, is_shared=bool(containers))
        self.parts.append(part)

    def add(self, start_ns: int, curve: UsageCurve, container: str) -> None:
        """Add what one container uses."""
        run = self._runs.get(container)
        if run is None or run.runs:
            start_ns = start_ns if run is None else run.changed_ns
            self.parts.append(MemoryPart(start_ns=start_ns, curve=curve, container=container))


def _replaces(growth: Growth | None) -> bool:
    """Return whether a growth replaces the recorded usage."""
    return growth is not None and growth.start_bytes is not None
