"""The eviction look-ahead: when a node must be looked at again, and when a notification is due.

A node is looked at whenever its usage changes. One that the service calls calm is looked at only
when less may be available than `calm` requires; its steps are skipped until then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from replay.world.api.pod_record import PodRecord
from replay.world.kubelet import usage_curves
from replay.world.kubelet.usage import MEMORY, UsageProfiles
from replay.world.state import WorldPart, WorldState
from replay.world.timeline import ActionKind
from reprieve.eviction.v1beta1 import eviction_pb2


@dataclass(slots=True, kw_only=True)
class _Node:
    """One node, which exists since `since_ns`.

    `least` is what must be available, by signal, for a step to change nothing; None if a step
    may change something. `notify_at` are the amounts of available memory at which the kernel sends
    a notification, `crossed` the number of them that were not exceeded at the last look.
    """

    since_ns: int
    least: Mapping[str, int] | None = None
    notify_at: tuple[int, ...] = ()
    crossed: int = 0


class EvictionLookAhead(WorldPart):
    """Plans the checks of nodes; `active` returns the pods that a node's kubelet runs."""

    _nodes: dict[str, _Node]

    def __init__(
        self,
        state: WorldState,
        profiles: UsageProfiles,
        active: Callable[[str], Sequence[PodRecord]],
    ) -> None:
        super().__init__(state)
        self._profiles = profiles
        self._active = active

    def since_ns(self, now_ns: int, node_name: str) -> int:
        """Return since when a node exists; a new one exists since `now_ns`."""
        return self._node(now_ns, node_name).since_ns

    def changed(self, now_ns: int, node_name: str) -> None:
        """Note that usage has begun or ended on a node, so that a step may change something."""
        self._node(now_ns, node_name).least = None

    def stepped(self, now_ns: int, node_name: str, result: eviction_pb2.StepResult) -> None:
        """Keep what a step's result says about later steps, and plan the next check."""
        node = self._node(now_ns, node_name)
        amounts = tuple(
            crossing.amount for crossing in result.notify_at if crossing.signal == MEMORY
        )
        node.notify_at = amounts
        node.crossed = self._crossed(now_ns, node_name)
        node.least = None
        if result.HasField("calm") and not node.crossed:
            node.least = {least.signal: least.amount for least in result.calm.min_available}
            if amounts:
                node.least[MEMORY] = max(node.least.get(MEMORY, 0), max(amounts) + 1)
        self.plan(now_ns, node_name)

    def plan(self, now_ns: int, node_name: str) -> None:
        """Plan the next check: when usage next changes or, on a calm node, when that may matter."""
        least = self._node(now_ns, node_name).least
        usage = self._usage(now_ns, node_name)
        if least is None:
            at_ns = usage_curves.next_change_ns(usage, now_ns)
        else:
            limits = self._profiles.limits(self._cluster.nodes[node_name], least)
            at_ns = usage_curves.look_again_ns(usage, now_ns, limits)
        if at_ns is None:
            self._timeline.cancel(ActionKind.USAGE, node_name)
        else:
            is_idle = not self._goes_on(now_ns, node_name)
            self._timeline.plan(at_ns, ActionKind.USAGE, node_name, idle=is_idle)

    def matters(self, now_ns: int, node_name: str) -> bool:
        """Return whether a step may change something now."""
        least = self._node(now_ns, node_name).least
        return least is None or self._is_short(now_ns, node_name, least)

    def has_notifications(self, node_name: str) -> bool:
        """Return whether the kernel sends notifications of memory on a node."""
        node = self._nodes.get(node_name)
        return node is not None and bool(node.notify_at)

    def has_crossed(self, now_ns: int, node_name: str) -> bool:
        """Return whether memory has crossed an amount since the last look, which this is."""
        crossed = self._crossed(now_ns, node_name)
        node = self._node(now_ns, node_name)
        before, node.crossed = node.crossed, crossed
        return crossed != before

    def forget(self, node_name: str) -> None:
        """Drop a node that was deleted."""
        self._timeline.cancel(ActionKind.USAGE, node_name)
        self._nodes.pop(node_name, None)

    def _node(self, now_ns: int, node_name: str) -> _Node:
        node = self._nodes.get(node_name)
        if node is None:
            node = self._nodes[node_name] = _Node(since_ns=now_ns)
        return node

    def _goes_on(self, now_ns: int, node_name: str) -> bool:
        """Return whether usage changes that keep a run going.

        Usage of replacements, and of pods whose containers are OOM-killed, does not count.
        """
        pods = self._active(node_name)
        lasting = [pod for pod in pods if not (pod.containers or self._profiles.replaces(pod))]
        if len(lasting) == len(pods):
            return True
        usage = self._usage(now_ns, node_name, lasting)
        return usage_curves.next_change_ns(usage, now_ns) is not None

    def _usage(
        self, now_ns: int, node_name: str, pods: Sequence[PodRecord] | None = None
    ) -> usage_curves.NodeUsage:
        pods = self._active(node_name) if pods is None else pods
        since_ns = self._node(now_ns, node_name).since_ns
        return self._profiles.node_usage(self._cluster.nodes[node_name], since_ns, pods)

    def _is_short(self, now_ns: int, node_name: str, least: Mapping[str, int]) -> bool:
        """Return whether less than `least` of some signal is available now."""
        limits = self._profiles.limits(self._cluster.nodes[node_name], least)
        return limits.exceeded(self._usage(now_ns, node_name), now_ns)

    def _crossed(self, now_ns: int, node_name: str) -> int:
        """Return the number of notification amounts that available memory does not exceed."""
        return sum(
            self._is_short(now_ns, node_name, {MEMORY: amount + 1})
            for amount in self._node(now_ns, node_name).notify_at
        )
