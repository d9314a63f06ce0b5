"""NodeResourcesBalancedAllocation: a node whose resources are used evenly is better.

From v1.36 on, a node whose balance the pod betters.

Source: kubernetes v1.34 plugins/noderesources/balanced_allocation.go.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from services.kube.pod import Pod
from services.scheduler.core import kernels
from services.scheduler.core.columns import Int64s
from services.scheduler.core.plugin import Scope, ScorePlugin
from services.scheduler.core.plugin_args import NodeResourcesBalancedAllocationArgs
from services.scheduler.core.plugins.scored_resources import ScoredResources, ScoredShares
from services.scheduler.core.snapshot import Snapshot

_HALF = 50
"""Half of the largest score: scores lie between it and the largest one."""
_DEFAULTS = NodeResourcesBalancedAllocationArgs()


class NodeResourcesBalancedAllocation(ScorePlugin[ScoredShares]):
    """Scores by the deviation of the used fractions of CPU and memory, or of what is named."""

    name = "NodeResourcesBalancedAllocation"
    scope = Scope.PODS

    def __init__(self, args: NodeResourcesBalancedAllocationArgs = _DEFAULTS) -> None:
        self._scored = ScoredResources(args.resources)

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return the scored requests, None for a pod that asks for none of them."""
        key = self._scored.key(snapshot.load(pod.spec).requests.amounts)
        return key if any(key) else None

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> ScoredShares:
        """Return the pod's real requests."""
        return self._scored.shares(snapshot, snapshot.load(pod.spec).requests.amounts)

    def score(self, data: ScoredShares, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:
        """Write the BalancedAllocation score of each row."""
        held = snapshot.columns
        kernels.balanced_allocation(
            rows, data.columns, data.amounts, held.allocatable, held.requested, scores
        )


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
