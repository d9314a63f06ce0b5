"""NodeResourcesBalancedAllocation: a node whose resources are used evenly is better.

Source: kubernetes v1.34 plugins/noderesources/balanced_allocation.go.
"""

from __future__ import annotations

from collections.abc import Hashable

from services.kube.pod import Pod
from services.scheduler.core import kernels
from services.scheduler.core.columns import Int64s
from services.scheduler.core.plugin import Scope, ScorePlugin
from services.scheduler.core.plugin_args import NodeResourcesBalancedAllocationArgs
from services.scheduler.core.plugins.scored_resources import ScoredResources, ScoredShares
from services.scheduler.core.snapshot import Snapshot

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
