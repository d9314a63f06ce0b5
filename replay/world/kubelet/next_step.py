"""When a node is to be looked at again, and when the kernel tells its kubelet of a crossing.

A node is looked at whenever its usage changes. One that the service calls calm is looked at only
when less may be available than that asks for, and its steps are left out until then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from replay.world.api.cluster import Cluster
from replay.world.api.pod_record import PodRecord
from replay.world.kubelet import look_ahead
from replay.world.kubelet.usage import MEMORY, UsageProfiles
from replay.world.timeline import Kind, Timeline
from reprieve.eviction.v1beta1 import eviction_pb2


@dataclass(slots=True, kw_only=True)
class _Outlook:
    """What is kept of one node, which is there since `since_ns`.

    `least` is what must be available by signal for steps to change nothing, None where a step may
    change something. `notify_at` are the amounts of memory at which the kernel tells, `crossed` how
    many of them were not exceeded by what was available when that was last looked at.
    """

    since_ns: int
    least: Mapping[str, int] | None = None
    notify_at: tuple[int, ...] = ()
    crossed: int = 0


class Foresight:
    """Plans looks at nodes; `active` returns the pods that a node's kubelet runs."""

    def __init__(
        self,
        cluster: Cluster,
        timeline: Timeline,
        profiles: UsageProfiles,
        active: Callable[[str], Sequence[PodRecord]],
    ) -> None:
        self._cluster = cluster
        self._timeline = timeline
        self._profiles = profiles
        self._active = active
        self._outlooks: dict[str, _Outlook] = {}

    def since_ns(self, now_ns: int, node_name: str) -> int:
        """Return since when a node is there: since `now_ns` where it was not known."""
        return self._outlook(now_ns, node_name).since_ns

    def changed(self, now_ns: int, node_name: str) -> None:
        """Note that something has begun or ended on a node, so that a step may change something."""
        self._outlook(now_ns, node_name).least = None

    def learn(self, now_ns: int, node_name: str, result: eviction_pb2.StepResult) -> None:
        """Keep what a step says of those to come, and plan the next look."""
        outlook = self._outlook(now_ns, node_name)
        told = tuple(each.amount for each in result.notify_at if each.signal == MEMORY)
        outlook.notify_at = told
        outlook.crossed = self._crossed(now_ns, node_name)
        outlook.least = None
        if result.HasField("calm") and not outlook.crossed:
            outlook.least = {each.signal: each.amount for each in result.calm.least}
            if told:
                outlook.least[MEMORY] = max(outlook.least.get(MEMORY, 0), max(told) + 1)
        self.plan(now_ns, node_name)

    def plan(self, now_ns: int, node_name: str) -> None:
        """Plan to look again when usage next changes or, on a calm node, when that may matter."""
        outlook = self._outlook(now_ns, node_name)
        sources = self._sources(now_ns, node_name)
        if outlook.least is None:
            at_ns = look_ahead.next_change_ns(sources, now_ns)
        else:
            bounds = self._profiles.bounds(self._cluster.nodes[node_name], outlook.least)
            at_ns = look_ahead.look_again_ns(sources, now_ns, bounds)
        if at_ns is None:
            self._timeline.cancel(Kind.USAGE, node_name)
        else:
            is_idle = not self._goes_on(now_ns, node_name)
            self._timeline.plan(at_ns, Kind.USAGE, node_name, idle=is_idle)

    def matters(self, now_ns: int, node_name: str) -> bool:
        """Tell whether a step may change something now."""
        least = self._outlook(now_ns, node_name).least
        return least is None or self._is_short(now_ns, node_name, least)

    def is_told(self, node_name: str) -> bool:
        """Tell whether the kernel was asked to tell of crossings on a node."""
        outlook = self._outlooks.get(node_name)
        return outlook is not None and bool(outlook.notify_at)

    def has_crossed(self, now_ns: int, node_name: str) -> bool:
        """Tell whether memory has crossed an amount since that was last looked at, and note it."""
        crossed = self._crossed(now_ns, node_name)
        outlook = self._outlook(now_ns, node_name)
        before, outlook.crossed = outlook.crossed, crossed
        return crossed != before

    def forget(self, node_name: str) -> None:
        """Drop what is known of a node that has gone."""
        self._timeline.cancel(Kind.USAGE, node_name)
        self._outlooks.pop(node_name, None)

    def _outlook(self, now_ns: int, node_name: str) -> _Outlook:
        outlook = self._outlooks.get(node_name)
        if outlook is None:
            outlook = self._outlooks[node_name] = _Outlook(since_ns=now_ns)
        return outlook

    def _goes_on(self, now_ns: int, node_name: str) -> bool:
        """Tell whether anything changes that a run goes on for: not what only replaces others."""
        pods = self._active(node_name)
        lasting = [pod for pod in pods if not self._profiles.replaces(pod)]
        if len(lasting) == len(pods):
            return True
        node, since_ns = self._cluster.nodes[node_name], self.since_ns(now_ns, node_name)
        sources = self._profiles.sources(node, since_ns, lasting)
        return look_ahead.next_change_ns(sources, now_ns) is not None

    def _sources(self, now_ns: int, node_name: str) -> look_ahead.Sources:
        since_ns = self._outlook(now_ns, node_name).since_ns
        node = self._cluster.nodes[node_name]
        return self._profiles.sources(node, since_ns, self._active(node_name))

    def _is_short(self, now_ns: int, node_name: str, least: Mapping[str, int]) -> bool:
        """Tell whether less than `least` of some signal is available now."""
        bounds = self._profiles.bounds(self._cluster.nodes[node_name], least)
        return bounds.exceeded(*look_ahead.used_bytes(self._sources(now_ns, node_name), now_ns))

    def _crossed(self, now_ns: int, node_name: str) -> int:
        """Return of how many amounts that the kernel tells no more than that is left."""
        return sum(
            self._is_short(now_ns, node_name, {MEMORY: amount + 1})
            for amount in self._outlook(now_ns, node_name).notify_at
        )
