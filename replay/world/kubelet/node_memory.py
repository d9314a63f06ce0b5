"""OOM kills on a node: where its pods exceed the limit of kubepods, or all that it has is used up.

The time is exact where usage grows as a line. Recorded usage is known at its samples only: how fast
it rose between two of them is not. There the kubelet's eviction manager looks first, as it would
after a slow rise, and the kernel kills what a look that evicts no pod leaves above the limit; the
run has a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from replay.world.api.pod_record import PodRecord
from replay.world.kubelet import memory_limits, usage_curves
from replay.world.kubelet.memory_kills import UNBOUNDED, MemoryKills, ReachedLimit
from replay.world.kubelet.memory_limits import KubeletMemory
from replay.world.kubelet.pod_lifecycle import PodLifecycle
from replay.world.kubelet.usage import UsageProfiles
from replay.world.kubelet.usage_curves import NodeUsage, SegmentCurve, StartedCurve, UsageLimits
from replay.world.state import WorldPart, WorldState
from replay.world.timeline import ActionKind
from reprieve.kube.v1beta1 import node_pb2
from services.kube.time import SECOND_NS

SAMPLE_NS = 10 * SECOND_NS
"""The longest time by which a sampled growth lags behind the actual line."""
LOOKS_FIRST = (
    "at a sample of recorded usage the pods of a node exceed its memory; how fast they came to is "
    "not known: its kubelet looks first and evicts, where a fast rise would be an OOM kill"
)


class NodeMemory(WorldPart):
    """Plans and carries out OOM kills: those in pods, and those on nodes.

    `active` returns the pods that a node's kubelet runs, `since_ns` since when a node exists. Where
    node pressure is switched off, only the limits in pods are enforced.
    """

    _due: dict[str, None]
    _looked_at_first: dict[str, None]

    def __init__(
        self,
        state: WorldState,
        lifecycle: PodLifecycle,
        profiles: UsageProfiles,
        active: Callable[[str], Sequence[PodRecord]],
        since_ns: Callable[[int, str], int],
        kubelet: KubeletMemory,
    ) -> None:
        super().__init__(state)
        self._kills = MemoryKills(state, lifecycle, profiles, kubelet)
        self._profiles = profiles
        self._active = active
        self._since_ns = since_ns
        self._kubelet = kubelet
        self._has_pressure = state.models.eviction
        self._due = {}
        self._looked_at_first = {}

    @property
    def is_on(self) -> bool:
        """Return whether limits are enforced."""
        return self._kills.is_on

    @property
    def repeats(self) -> bool:
        """Return whether containers are killed, restarted, and will be killed again."""
        return self._kills.repeats

    @property
    def has_due(self) -> bool:
        """Return whether a limit is exceeded already, and must be checked at this instant."""
        return bool(self._due) or self._kills.has_due

    def take_due(self, now_ns: int) -> None:
        """Check the limits that are exceeded at this instant."""
        self._kills.take_due(now_ns)
        due, self._due = self._due, {}
        for node_name in due:
            self.check(now_ns, node_name)

    def usage_changed(self, now_ns: int, pod: PodRecord) -> None:
        """Plan the next checks of a pod whose usage has begun, changed or ended, and its node."""
        self._kills.changed(now_ns, pod)
        self.changed(now_ns, pod.node_name)

    def changed(self, now_ns: int, node_name: str) -> None:
        """Plan the next check of a node whose pods, capacity or own usage have changed."""
        node = self._cluster.nodes.get(node_name)
        if not (self._kills.is_on and self._has_pressure) or node is None:
            return
        pods = self._active(node_name)
        at_ns = self._over_ns(now_ns, node, pods)
        lasting = [pod for pod in pods if not self._kills.is_repeated(pod)]
        is_idle = len(lasting) < len(pods) and self._over_ns(now_ns, node, lasting) is None
        if at_ns != now_ns:
            self._looked_at_first.pop(node_name, None)
        elif node_name not in self._looked_at_first and self._reached(now_ns, node) is not None:
            self._due[node_name] = None
        if at_ns is None or at_ns == now_ns:
            self._timeline.cancel(ActionKind.NODE_MEMORY, node_name)
        else:
            self._timeline.plan(at_ns, ActionKind.NODE_MEMORY, node_name, idle=is_idle)

    def check(self, now_ns: int, node_name: str) -> None:
        """Kill containers of a node until its pods are within its limits; plan the next check."""
        node = self._cluster.nodes.get(node_name)
        if node is None:
            return
        if self._is_at_sample(now_ns, node):
            self._looked_at_first[node_name] = None
            self._journal.note("usage", LOOKS_FIRST)
        else:
            self._kill_all(now_ns, node)
        self.changed(now_ns, node_name)

    def stepped(self, now_ns: int, node_name: str) -> None:
        """Note that a node's eviction manager has looked and evicts no pod."""
        if node_name in self._looked_at_first:
            self._kill_all(now_ns, self._cluster.nodes[node_name])
            self.changed(now_ns, node_name)

    def forget(self, node_name: str) -> None:
        """Drop a node that was deleted."""
        self._timeline.cancel(ActionKind.NODE_MEMORY, node_name)
        self._due.pop(node_name, None)
        self._looked_at_first.pop(node_name, None)

    def _kill_all(self, now_ns: int, node: node_pb2.Node) -> None:
        while (reached := self._reached(now_ns, node)) is not None:
            self._kills.kill(now_ns, *reached)

    def _over_ns(self, now_ns: int, node: node_pb2.Node, pods: Sequence[PodRecord]) -> int | None:
        """Return when the pods of a node may exceed a limit of it next, None for never."""
        times_ns = [
            _may_exceed_ns(curves, now_ns, limit)
            for _, limit, curves in self._limits(now_ns, node, pods)
        ]
        return min((at_ns for at_ns in times_ns if at_ns is not None), default=None)

    def _limits(
        self, now_ns: int, node: node_pb2.Node, pods: Sequence[PodRecord]
    ) -> Iterator[tuple[str, int, list[StartedCurve]]]:
        """Yield the limits of a node with the curves of what counts towards each."""
        curves = [
            (part.start_ns, part.curve)
            for pod in pods
            for part in self._profiles.memory_parts(pod, UNBOUNDED)
        ]
        if not curves:
            return
        limit = memory_limits.kubepods_limit(node, self._kubelet)
        if limit is not None:
            yield "kubepods", limit, curves
        if capacity := memory_limits.memory_capacity(node):
            node_curve = self._profiles.node_memory(node.metadata.name)
            whole = (
                []
                if node_curve is None
                else [(self._since_ns(now_ns, node.metadata.name), node_curve)]
            )
            yield "node", capacity, [*curves, *whole]

    def _is_at_sample(self, now_ns: int, node: node_pb2.Node) -> bool:
        """Return whether a limit is exceeded that would not be without a sample taken now."""
        limits = list(self._limits(now_ns, node, self._active(node.metadata.name)))
        return any(
            usage_curves.exact_bytes(curves, now_ns) > limit for _, limit, curves in limits
        ) and all(_before_samples(curves, now_ns) <= limit for _, limit, curves in limits)

    def _reached(self, now_ns: int, node: node_pb2.Node) -> tuple[PodRecord, ReachedLimit] | None:
        """Return the victim of a limit of a node that is exceeded now, None if none."""
        pods = self._active(node.metadata.name)
        for limit_of, limit, curves in self._limits(now_ns, node, pods):
            if usage_curves.exact_bytes(curves, now_ns) <= limit:
                continue
            users = [user for pod in pods for user in self._kills.users(now_ns, pod)]
            victim = memory_limits.victim(users, limit)
            if victim is not None:
                reached = ReachedLimit.of_victim(limit_of, limit, victim)
                return self._cluster.pods[victim.key[0]], reached
        return None


def _before_samples(curves: Sequence[StartedCurve], now_ns: int) -> int:
    """Return what curves would use now, bytes, if none had a sample at this time."""
    # As if each recorded curve had begun 1 ns later.
    before = [(start_ns + isinstance(curve, SegmentCurve), curve) for start_ns, curve in curves]
    return usage_curves.exact_bytes(before, now_ns)


def _may_exceed_ns(curves: Sequence[StartedCurve], now_ns: int, limit: int) -> int | None:
    """Return when curves exceed a limit or must be checked again, None for never.

    The sampled curves show about when (usage_curves.py), and the lines that they sample when.
    """
    if usage_curves.never_over(curves, now_ns, limit):
        return None
    if usage_curves.exact_bytes(curves, now_ns) > limit:
        return now_ns
    sampled = NodeUsage(memory=list(curves))
    about_ns = usage_curves.look_again_ns(sampled, now_ns, UsageLimits(memory=limit))
    if about_ns is None:
        return None
    from_ns = max(now_ns, about_ns - SAMPLE_NS)
    exact_ns = usage_curves.first_over_ns(curves, from_ns, limit, until_ns=about_ns)
    return about_ns if exact_ns is None else exact_ns
