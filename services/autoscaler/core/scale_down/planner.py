"""Finds unneeded nodes by simulating their removal one after the other.

A removal that succeeds is kept: the next one sees the pods where they were moved, the node gone,
and the budgets used. So all nodes that are found unneeded in a scan could go together. Only as many
are looked for as can be deleted before they are looked for again.

While a removal is simulated, its node stays, empty and tainted: topology spreading counts its
domain, as it will while the real node is drained. (It is emptied when a pod comes to which that may
matter.)

Source: kubernetes/autoscaler 1.36 core/scaledown/planner/planner.go; simulator/cluster.go,
SimulateNodeRemoval; processors/nodes/scale_down_set_processor.go. Pods that were evicted lately are
not put into the snapshot again: upstream keeps them for no time at all.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field, replace

from services.autoscaler.core.groups import Cloud
from services.autoscaler.core.now import Now
from services.autoscaler.core.objects import ClusterNode, ClusterPod
from services.autoscaler.core.options import Options
from services.autoscaler.core.scale_down.actuation import TO_BE_DELETED
from services.autoscaler.core.scale_down.candidates import Emptiness
from services.autoscaler.core.scale_down.disruptions import RemainingBudgets
from services.autoscaler.core.scale_down.drainability import (
    Controllers,
    Draining,
    PodsToMove,
    pods_to_move,
)
from services.autoscaler.core.scale_down.eligibility import eligible
from services.autoscaler.core.scale_down.kept_removals import KeptRemovals, Removal
from services.autoscaler.core.scale_down.parallelism import number_registered
from services.autoscaler.core.scale_down.per_node import PerNode
from services.autoscaler.core.scale_down.reasons import Reason, Unremovable
from services.autoscaler.core.scale_down.resource_minimum import ResourceMinimum
from services.autoscaler.core.scale_down.unneeded import MayGo, RemovableNode, UnneededNodes
from services.autoscaler.core.scale_down.unremovable import UnremovableNodes
from services.autoscaler.core.scale_down.utilization import Utilization
from services.autoscaler.core.simulator.hinting import HintingSimulator
from services.autoscaler.core.simulator.snapshot import ClusterSnapshot
from services.kube.taints import Taint, TaintEffect
from services.kube.time import SECOND_NS


@dataclass(slots=True, kw_only=True)
class Planner:
    """Keeps the unneeded and the unremovable nodes between scans; see the module.

    `emptiness`, `measured`, `moved` and `kept` only save work: without them, all is judged anew.
    """

    cloud: Cloud
    options: Options
    unneeded: UnneededNodes = field(default_factory=UnneededNodes)
    unremovable: UnremovableNodes = field(default_factory=UnremovableNodes)
    utilizations: dict[str, Utilization] = field(default_factory=dict)
    hints: HintingSimulator = field(default_factory=HintingSimulator)
    emptiness: PerNode[Emptiness] = field(default_factory=PerNode)
    measured: PerNode[Utilization | None] = field(default_factory=PerNode)
    moved: PerNode[PodsToMove] = field(default_factory=PerNode)
    kept: KeptRemovals = field(default_factory=KeptRemovals)
    last_update_ns: int | None = None
    interval_ns_min: int | None = None

    def update(
        self,
        snapshot: ClusterSnapshot,
        nodes: Iterable[ClusterNode],
        candidates: Iterable[ClusterNode],
        *,
        deleting: Container[str],
        budgets: RemainingBudgets,
        controllers: Controllers,
        now: Now,
    ) -> None:
        """Find the unneeded nodes among candidates; pods may move to `nodes`.

        Source: UpdateClusterState, categorizeNodes.
        """
        self._measure_interval(now.ns)
        snapshot.fork()
        destinations = {node.name for node in nodes if node.name not in deleting}
        self.unremovable.begin_scan(snapshot, now)
        judged = eligible(
            (node for node in candidates if node.name not in deleting),
            snapshot,
            self.cloud,
            options=self.options,
            unremovable=self.unremovable,
            measured=self.measured,
            now=now,
        )
        for name, reason in judged.ineligible.items():
            self.unremovable.add(name, Unremovable(reason=reason))
        self.utilizations = judged.utilizations
        draining = Draining(now=now, options=self.options, budgets=budgets, controllers=controllers)
        self.kept.begin(
            (
                snapshot.version,
                frozenset(destinations),
                budgets.budgets,
                tuple(budgets.remaining),
                controllers.changes,
            )
        )
        removable: list[RemovableNode] = []
        alone = 0
        for node in judged.nodes:
            if alone >= self._limit():
                break
            asked = Now(now.ns)
            result = self.kept.repeated(node.name, self.hints, asked) or self._simulate(
                snapshot, node.name, destinations, replace(draining, now=asked)
            )
            now.hold_until(asked.until_ns)
            if isinstance(result, Unremovable):
                until_ns = now.ns + self.options.unremovable_node_recheck_ns
                self.unremovable.add(node.name, result, until_ns=until_ns)
                continue
            removable.append(replace(result, is_risky=not budgets.allow_all(result.pods)))
            budgets.take(result.pods)
            destinations.discard(node.name)
            alone += not self._goes_as_one(node)
        self.unneeded.update(removable, self.cloud, now.ns)
        self.hints.forget_old()
        self.moved.forget_old()
        snapshot.revert()

    def nodes_to_delete(
        self,
        snapshot: ClusterSnapshot,
        deletions: dict[str, int],
        registered: list[ClusterNode],
        now: Now,
    ) -> tuple[list[ClusterNode], list[ClusterNode]]:
        """Return the unneeded nodes to delete now: empty ones, and those to be drained.

        `deletions` are the running ones by group, `registered` the nodes of the cluster. Comes
        after the scan's update. Source: NodesToDelete.
        """
        minimum = ResourceMinimum.of(snapshot.nodes(), self.cloud, self.options)
        may_go = MayGo(cloud=self.cloud, deletions=deletions, take_resources=minimum.take)
        empty, to_drain, reasons = may_go.divide(self.unneeded, now)
        for name, reason in reasons.items():
            self.unremovable.add(name, Unremovable(reason=reason))
        to_drain.sort(key=lambda removable: removable.is_risky)
        empty_nodes: list[ClusterNode] = []
        drain_nodes: list[ClusterNode] = []
        for removable in self._whole_groups([*empty, *to_drain], registered):
            node = removable.node
            if removable.on_completion:
                reason = Reason.BLOCKED_BY_ON_COMPLETION_POD
                self.unremovable.add(node.name, Unremovable(reason=reason))
            else:
                (drain_nodes if removable.pods else empty_nodes).append(node)
        return empty_nodes, drain_nodes

    def _simulate(
        self, snapshot: ClusterSnapshot, name: str, destinations: set[str], draining: Draining
    ) -> RemovableNode | Unremovable:
        """Try to find a place for each of a node's pods, and leave them there if there is one."""
        self.kept.show(snapshot)
        if name not in snapshot:
            return Unremovable(reason=Reason.NO_NODE_INFO)
        node = snapshot.node(name)
        moved = self._pods_to_move(snapshot, name, draining)
        if moved.blocking is not None:
            pod, why = moved.blocking
            return Unremovable(reason=Reason.BLOCKED_BY_POD, pod=pod.key, why=why)
        now = draining.now
        snapshot.fork()
        placed = self.hints.place(
            snapshot,
            _in_turn(snapshot, node, moved.unassigned(), now),
            is_acceptable=lambda other: other != name and other in destinations,
            stop_at_failure=True,
        )
        if len(placed) < len(moved.pods):
            snapshot.revert()
            return Unremovable(reason=Reason.NO_PLACE_TO_MOVE_PODS)
        snapshot.remove(name)
        snapshot.commit()
        removable = RemovableNode(
            node=node, pods=tuple(moved.pods), on_completion=tuple(moved.on_completion)
        )
        self.kept.add(Removal(removable=removable, placed=tuple(placed), until_ns=now.until_ns))
        return removable

    def _pods_to_move(self, snapshot: ClusterSnapshot, name: str, draining: Draining) -> PodsToMove:
        budgets, controllers = draining.budgets, draining.controllers
        key = (
            snapshot.stamp(name),
            None if controllers is None else controllers.changes,
            budgets.budgets,
            tuple(budgets.remaining),
        )

        def judge(now: Now) -> PodsToMove:
            return pods_to_move(snapshot.pods_on(name), replace(draining, now=now))

        return self.moved.get(name, key, draining.now, judge)

    def _whole_groups(
        self, removable: Iterable[RemovableNode], registered: list[ClusterNode]
    ) -> list[RemovableNode]:
        """Return the nodes without those of atomic groups of which not all nodes may be removed.

        Source: AtomicResizeFilteringProcessor.
        """
        chosen: list[RemovableNode] = []
        as_one: dict[str, list[RemovableNode]] = {}
        for node in removable:
            group = self.cloud.group_of(node.node.provider_id)
            if group is not None and group.options.zero_or_max_node_scaling:
                as_one.setdefault(group.name, []).append(node)
            else:
                chosen.append(node)
        for name, nodes in sorted(as_one.items()):
            group = self.cloud.by_name[name]
            if len(nodes) in {group.target, number_registered(group, registered)}:
                chosen += nodes
            else:
                reason = Unremovable(reason=Reason.ATOMIC_SCALE_DOWN_FAILED)
                for node in nodes:
                    self.unremovable.add(node.node.name, reason)
        return chosen

    def _goes_as_one(self, node: ClusterNode) -> bool:
        group = self.cloud.group_of(node.provider_id)
        return group is not None and group.options.zero_or_max_node_scaling

    def _measure_interval(self, now_ns: int) -> None:
        """Note the shortest time between scans; the unneeded time is the longest that counts."""
        if self.interval_ns_min is None:
            self.interval_ns_min = max(self.options.group_defaults.scale_down_unneeded_ns, 1)
        if self.last_update_ns is not None:
            self.interval_ns_min = min(self.interval_ns_min, now_ns - self.last_update_ns)
        self.last_update_ns = now_ns

    def _limit(self) -> int:
        """Return how many unneeded nodes are enough. Source: unneededNodesLimit."""
        assert self.interval_ns_min is not None, "the interval is measured before"
        parallelism = self.options.max_scale_down_parallelism
        unneeded_ns = max(self.options.group_defaults.scale_down_unneeded_ns, self.interval_ns_min)
        loops = unneeded_ns // max(self.interval_ns_min, 1)
        return min(len(self.unneeded.by_name) + 2 * parallelism, parallelism * loops + parallelism)


def _in_turn(
    snapshot: ClusterSnapshot, node: ClusterNode, pods: Iterable[ClusterPod], now: Now
) -> Iterator[ClusterPod]:
    """Yield a node's pods to place elsewhere; the node is emptied and tainted before it matters.

    That is before the first pod whose verdicts may follow from more than each node by itself.
    Emptying a node and filling others are independent, and most nodes cannot be emptied at all.
    """
    is_emptied = False
    for pod in pods:
        if not is_emptied and not snapshot.is_judged_by_node(pod):
            snapshot.replace(_tainted(node, now.read()))
            is_emptied = True
        yield pod


def _tainted(node: ClusterNode, now_ns: int) -> ClusterNode:
    """Return a node as it will be while it is drained."""
    value = str(now_ns // SECOND_NS)
    taint = Taint(key=TO_BE_DELETED, value=value, effect=TaintEffect.NO_SCHEDULE)
    return replace(node, node=replace(node.node, taints=(*node.node.taints, taint)))
