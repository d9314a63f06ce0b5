"""Which nodes may be removed at all, and in which order their removal is tried.

Nodes of no group, and of groups at or under their minimum, are not candidates, and no reason is
given. Empty nodes come first, then those that were unneeded in the last scan. With delays by group,
nodes of groups that were scaled lately are left out.

Source: kubernetes/autoscaler 1.36 processors/nodes/pre_filtering_processor.go; processors/
scaledowncandidates: scale_down_candidates_sorting_processor.go, emptycandidates,
previouscandidates, scale_down_candidates_delay_processor.go.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from services.autoscaler.core.groups import Cloud
from services.autoscaler.core.objects import ClusterNode
from services.autoscaler.core.options import Options
from services.autoscaler.core.scale_down.drainability import Draining, pods_to_move
from services.autoscaler.core.simulator.snapshot import ClusterSnapshot


def candidates(
    nodes: Iterable[ClusterNode],
    snapshot: ClusterSnapshot,
    cloud: Cloud,
    *,
    options: Options,
    unneeded: Container[str],
    now_ns: int,
) -> list[ClusterNode]:
    """Return the nodes that may be removed, in the order in which that is tried."""
    removable = [
        node
        for node in nodes
        if (group := cloud.group_of(node.provider_id)) is not None and group.target > group.min_size
    ]
    draining = Draining(now_ns=now_ns, options=options)

    def order(node: ClusterNode) -> tuple[bool, bool, bool]:
        is_empty, waits = _emptiness(node, snapshot, draining)
        return not is_empty, waits, node.name not in unneeded

    return sorted(removable, key=order)


def without_recent(
    nodes: Iterable[ClusterNode],
    cloud: Cloud,
    delays: Iterable[tuple[Mapping[str, int], int]],
    now_ns: int,
) -> list[ClusterNode]:
    """Return the nodes of groups for which each of the times is longer ago than its delay."""
    pairs = list(delays)
    return [
        node
        for node in nodes
        if (group := cloud.group_of(node.provider_id)) is not None
        and not any(
            group.name in times and times[group.name] + delay_ns > now_ns
            for times, delay_ns in pairs
        )
    ]


def _emptiness(
    node: ClusterNode, snapshot: ClusterSnapshot, draining: Draining
) -> tuple[bool, bool]:
    """Return whether nothing has to be moved off a node, and then whether a pod must complete.

    Neither controllers nor budgets are asked for here.
    """
    if node.name not in snapshot:
        return False, False
    moved = pods_to_move(snapshot.pods_on(node.name), draining)
    if moved.blocking is not None or moved.pods:
        return False, False
    return True, bool(moved.on_completion)
