"""percentageOfNodesToScore: only some of the nodes that fit are looked for and scored.

Upstream looks at nodes in its list's order, from where the pod before left off, until it has
found enough; which ones, when several are looked at at once, is chance. Here it is the first ones.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, numFeasibleNodesToFind,
findNodesThatFitPod, findNodesThatPassFilters.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from services.scheduler.core.host_choice import Choice, HostChoice, Scored
from services.scheduler.core.kernels import Int8s
from services.scheduler.core.shape import NO_NODE
from services.scheduler.core.snapshot import Snapshot

_NODES_LEAST = 100
_PERCENTAGE_LEAST = 5
_PERCENTAGE_MOST = 50
_NODES_A_PERCENT = 125
_INDEX_BITS = 32


def nodes_to_find(nodes: int, percentage: int) -> int:
    """Return how many feasible nodes are enough; a percentage of 0 adapts to their number."""
    if nodes < _NODES_LEAST:
        return nodes
    share = percentage or max(_PERCENTAGE_MOST - nodes // _NODES_A_PERCENT, _PERCENTAGE_LEAST)
    return max(nodes * share // 100, _NODES_LEAST)


@dataclass(slots=True)
class StartIndex:
    """The place in the node list at which the next pod's search begins."""

    index: int = 0


@dataclass(frozen=True, slots=True)
class SampledChoice(HostChoice):
    """A host choice among the first feasible nodes alone; all profiles share `start`.

    `percentage` is 0 to 100; without `scores`, one feasible node is enough.
    """

    inner: HostChoice
    start: StartIndex
    percentage: int = 0
    scores: bool = True

    def choose(
        self,
        shape: Scored,
        refuser: Int8s,
        snapshot: Snapshot,
        uid: str,
        attempt: int,
        tried: Collection[int] = (),
    ) -> Choice:
        """Return the choice for a pod's scheduling attempt."""
        sample, looked_at = self.sample(refuser, snapshot, tried)
        chosen = self.inner.choose(shape, sample, snapshot, uid, attempt)
        return chosen._replace(looked_at=looked_at)

    def sample(
        self, refuser: Int8s, snapshot: Snapshot, tried: Collection[int] = ()
    ) -> tuple[Int8s, int]:
        """Return `refuser` with NO_NODE in rows that are not looked at, and how many others are.

        Rows in `tried`, which were evaluated before, count among the others in any case. The next
        search begins as many nodes further on.
        """
        listed = snapshot.rows_in_order()
        rows = listed[refuser[listed] >= 0]
        if not len(rows):
            self.start.index = (self.start.index + len(tried)) % len(listed)
            return refuser, 0
        ordered = np.roll(rows, -(self.start.index % len(rows)))
        feasible = np.flatnonzero(refuser[ordered] == 0)
        enough = nodes_to_find(len(rows), self.percentage) if self.scores else 1
        looked_at = int(feasible[enough]) if len(feasible) > enough else len(rows)
        sample = np.full(len(refuser), NO_NODE, dtype=np.int8)
        sample[ordered[:looked_at]] = refuser[ordered[:looked_at]]
        looked_at += sum(int(sample[row] < 0) for row in tried)
        self.start.index = (self.start.index + looked_at) % len(listed)
        return sample, looked_at

    def mark(self) -> int:
        """Return what `reset` needs to come back to this moment."""
        return self.inner.mark() << _INDEX_BITS | self.start.index

    def reset(self, mark: int) -> None:
        """Undo the choices since `mark` was taken."""
        self.inner.reset(mark >> _INDEX_BITS)
        self.start.index = mark & ((1 << _INDEX_BITS) - 1)
