"""Selects the nodes that may be scaled down, in the order in which their removal is tried.

Nodes of no group, and of groups at or under their minimum, are not candidates, and no reason is
given. Empty nodes come first, then those that were unneeded in the last scan. With delays by group,
nodes of groups that were scaled lately are left out.

Source: kubernetes/autoscaler 1.36 processors/nodes/pre_filtering_processor.go; processors/
scaledowncandidates: scale_down_candidates_sorting_processor.go, emptycandidates,
previouscandidates, scale_down_candidates_delay_processor.go.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from services.autoscaler.core.groups import Cloud
from services.autoscaler.core.now import Now
from services.autoscaler.core.objects import ClusterNode, ClusterPod
from services.autoscaler.core.options import Options
from services.autoscaler.core.scale_down.drainability import Draining, pods_to_move
from services.autoscaler.core.scale_down.per_node import PerNode
from services.autoscaler.core.simulator.snapshot import ClusterSnapshot


class Emptiness(NamedTuple):
    """Whether a node has no pods to move, and if so, whether a pod on it must complete first."""

    is_empty: bool
    waits: bool


def candidates(
    nodes: Iterable[ClusterNode],
    snapshot: ClusterSnapshot,
    cloud: Cloud,
    *,
    options: Options,
    unneeded: Container[str],
    emptiness: PerNode[Emptiness],
    now: Now,
) -> list[ClusterNode]:
    """Return the nodes that may be removed, in the order in which that is tried.

    `emptiness` is kept from scan to scan, with the same options.
    """
    removable = [
        node
        for node in nodes
        if (group := cloud.group_of(node.provider_id)) is not None and group.target > group.min_size
    ]

    def order(node: ClusterNode) -> tuple[bool, bool, bool]:
        name = node.name
        if name not in snapshot:
            return True, False, name not in unneeded
        is_empty, waits = emptiness.get(
            name,
            snapshot.stamp(name),
            now,
            lambda now: _emptiness(snapshot.pods_on(name), Draining(now=now, options=options)),
        )
        return not is_empty, waits, name not in unneeded

    chosen = sorted(removable, key=order)
    emptiness.forget_old()
    return chosen


def without_recent(
    nodes: Iterable[ClusterNode],
    cloud: Cloud,
    delays: Iterable[tuple[Mapping[str, int], int]],
    now: Now,
) -> list[ClusterNode]:
    """Return the nodes of groups for which each of the times is longer ago than its delay."""
    pairs = list(delays)
    return [
        node
        for node in nodes
        if (group := cloud.group_of(node.provider_id)) is not None
        and not any(
            group.name in times and now.is_before(times[group.name] + delay_ns)
            for times, delay_ns in pairs
        )
    ]


def _emptiness(pods: Sequence[ClusterPod], draining: Draining) -> Emptiness:
    """Classify a node by its pods; controllers and budgets are not checked here."""
    moved = pods_to_move(pods, draining)
    if moved.blocking is not None or moved.pods:
        return Emptiness(False, False)
    return Emptiness(True, bool(moved.on_completion))
