"""Computes the maximum number of nodes that an estimate may add.

The least of the limits that are set: nodes of one scale-up, what the group and the groups like it
may still grow by, and what the cluster may. Upstream also ends an estimate after ten seconds; that
would make the result depend on the machine, so that it is left out.

Source: kubernetes/autoscaler 1.36 estimator/threshold_based_limiter.go; static_threshold.go;
sng_capacity_threshold.go; cluster_capacity_threshold.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from services.autoscaler.core.groups import NodeGroup

NO_LIMIT = 0
NOTHING = -1


def node_limit(
    group: NodeGroup,
    similar: Iterable[NodeGroup],
    *,
    nodes_now: int,
    max_nodes_total: int,
    max_nodes_per_scaleup: int,
) -> int:
    """Return how many nodes may be added, NO_LIMIT for any number, NOTHING for none."""
    room = sum(max(other.max_size - other.target, 0) for other in (group, *similar))
    limits = [max_nodes_per_scaleup, room if room > 0 else NOTHING]
    if max_nodes_total:
        remaining = max_nodes_total - nodes_now
        limits.append(remaining if remaining > 0 else NOTHING)
    if min(limits) < 0:
        return NOTHING
    return min((limit for limit in limits if limit), default=NO_LIMIT)


@dataclass(slots=True)
class NodeLimiter:
    """Permits nodes one by one, up to `limit`."""

    limit: int
    permitted: int = 0

    def permits_another(self) -> bool:
        """Return whether one more node may be added, and count it."""
        if self.limit < 0 or (self.limit and self.permitted >= self.limit):
            return False
        self.permitted += 1
        return True
