"""NodeResourcesBalancedAllocation of v1.36: a node whose balance the pod betters is better.

Before v1.36 only the balance with the pod counted (node_resources_balanced_allocation.py).
"""

from __future__ import annotations

import numpy as np

from services.scheduler.core import kernels
from services.scheduler.core.columns import Int64s
from services.scheduler.core.plugins.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocation,
)
from services.scheduler.core.plugins.scored_resources import ScoredShares
from services.scheduler.core.snapshot import Snapshot

_HALF = 50
"""Half of the largest score: scores lie between it and the largest one."""


class NodeResourcesBalanceChange(NodeResourcesBalancedAllocation):
    """Scores by how much the deviation of the used fractions changes with the pod.

    75 where it does not change, down to 50 where it grows most, up to 100 where it shrinks most.
    Source: kubernetes v1.36 plugins/noderesources/balanced_allocation.go, balancedResourceScorer
    (kubernetes#135573).
    """

    def score(self, data: ScoredShares, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:
        """Write the score of each row; halves are truncated, as upstream's integers are."""
        super().score(data, snapshot, rows, scores)
        held = snapshot.columns
        before = np.zeros_like(scores)
        nothing = np.zeros_like(data.amounts)
        kernels.balanced_allocation(
            rows, data.columns, nothing, held.allocatable, held.requested, before
        )
        scores[rows] = _HALF + (_HALF + scores[rows] - before[rows]) // 2
