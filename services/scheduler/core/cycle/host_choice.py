"""Chooses one of the best nodes, and samples nodes by percentageOfNodesToScore.

v1.34 breaks ties at random; here a keyed hash does (columns/hashing.py) or, where requested, the
order of the nodes' names. The preset v1.16 takes the best nodes in turn, along upstream's
zone-interleaved node list.

With percentageOfNodesToScore only some of the nodes that fit are found and scored. Upstream visits
nodes in the order of its list, from where the pod before stopped, until it has found enough; which
ones, when several are visited in parallel, is chance. Here it is the first ones.

Source: kubernetes v1.34 pkg/scheduler/schedule_one.go, numFeasibleNodesToFind,
findNodesThatFitPod, findNodesThatPassFilters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from services.framework.columns import kernels
from services.framework.columns.columns import Int64s
from services.framework.columns.hashing import attempt_hash
from services.framework.columns.kernels import Int8s
from services.framework.runtime.merged_columns import NO_NODE
from services.framework.snapshot.snapshot import Snapshot


class ChosenNode(NamedTuple):
    """The chosen row, one of the `tied` rows that had the best `total`."""

    row: int
    total: int
    tied: int


class NormalizedTotals(Protocol):
    """The total scores of nodes, such as those of an equivalence class."""

    def normalized_totals(self, refuser: Int8s) -> Int64s:
        """Return the totals, int64[nodes], of the rows that `refuser` spares."""


class HostChoice(ABC):
    """Chooses a node; `refuser` is int8[nodes], 0 where the pod fits."""

    __slots__ = ()

    @abstractmethod
    def choose(
        self,
        totals: NormalizedTotals,
        refuser: Int8s,
        snapshot: Snapshot,
        uid: str,
        attempt_number: int,
    ) -> ChosenNode:
        """Return the choice for a pod's scheduling attempt, for which two rows at least fit."""

    def sample(
        self,
        refuser: Int8s,
        snapshot: Snapshot,  # noqa: ARG002 - all nodes are looked at
        tried: Collection[int],  # noqa: ARG002 - all nodes are looked at
    ) -> tuple[Int8s, int]:
        """Return `refuser` with NO_NODE in rows that are left out, and how many are evaluated.

        That is 0 where none is left out. Rows in `tried` were evaluated before, whether they are
        evaluated now or not.
        """
        return refuser, 0

    def mark(self) -> int:
        """Return the state for `reset`; most choices have none."""
        return 0

    def reset(self, mark: int) -> None:  # noqa: B027 - most choices leave nothing
        """Undo the choices since `mark` was taken."""


class KeyedChoice(HostChoice):
    """The best total; the smallest hash of (seed, pod UID, attempt, node name) among equals."""

    __slots__ = ("_seed",)

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def choose(
        self,
        totals: NormalizedTotals,
        refuser: Int8s,
        snapshot: Snapshot,
        uid: str,
        attempt_number: int,
    ) -> ChosenNode:
        """Return the choice for a pod's scheduling attempt."""
        columns = snapshot.columns
        used = len(columns.rows)
        normalized = totals.normalized_totals(refuser)
        key = np.uint64(attempt_hash(self._seed, uid, attempt_number))
        return ChosenNode(*kernels.choose(used, refuser, normalized, columns.name_hash, key))


class NamedChoice(HostChoice):
    """The best total; the lowest node name among equals, by the order of its bytes.

    Source: hkust-adsl/kubernetes-scheduler-simulator, vendored generic_scheduler.go, selectHost.
    """

    __slots__ = ("_places", "_snapshot", "_up_to")

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._up_to = -1
        self._places: Int64s = np.zeros(0, dtype=np.int64)

    def choose(
        self,
        totals: NormalizedTotals,
        refuser: Int8s,
        snapshot: Snapshot,
        uid: str,  # noqa: ARG002 - not keyed
        attempt_number: int,  # noqa: ARG002 - not keyed
    ) -> ChosenNode:
        """Return the choice for a pod's scheduling attempt."""
        used, places = len(snapshot.columns.rows), self._by_name(snapshot)
        normalized = totals.normalized_totals(refuser)
        return ChosenNode(*kernels.choose_first(used, refuser, normalized, places))

    def _by_name(self, snapshot: Snapshot) -> Int64s:
        """Return the place of each row's node among all names, int64[nodes]."""
        if self._snapshot is not snapshot or self._up_to != snapshot.node_log.end:
            self._snapshot, self._up_to = snapshot, snapshot.node_log.end
            self._places = np.zeros(snapshot.columns.capacity, dtype=np.int64)
            rows = sorted(snapshot.listed_rows(), key=snapshot.name)
            self._places[rows] = np.arange(len(rows))
        return self._places


class RoundRobinChoice(HostChoice):
    """The best total; among equals in the node list, number `last_node_index` modulo how many.

    The index advances with each choice; the caller that undoes a choice sets it back. A single
    feasible node is taken without one. Source: kubernetes v1.16
    pkg/scheduler/core/generic_scheduler.go, selectHost, with the lastNodeIndex that the documents
    describe.
    """

    __slots__ = ("last_node_index",)

    def __init__(self) -> None:
        self.last_node_index = 0

    def choose(
        self,
        totals: NormalizedTotals,
        refuser: Int8s,
        snapshot: Snapshot,
        uid: str,  # noqa: ARG002 - not keyed
        attempt_number: int,  # noqa: ARG002 - not keyed
    ) -> ChosenNode:
        """Return the choice for a pod's scheduling attempt."""
        rows = [row for row in snapshot.listed_rows() if refuser[row] == 0]
        row_totals = totals.normalized_totals(refuser)[rows].tolist()
        highest = max(row_totals)
        best = [row for row, total in zip(rows, row_totals, strict=True) if total == highest]
        row = best[self.last_node_index % len(best)]
        self.last_node_index += 1
        return ChosenNode(row, highest, len(best))

    def mark(self) -> int:
        """Return the current index."""
        return self.last_node_index

    def reset(self, mark: int) -> None:
        """Set the index back."""
        self.last_node_index = mark


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
        totals: NormalizedTotals,
        refuser: Int8s,
        snapshot: Snapshot,
        uid: str,
        attempt_number: int,
    ) -> ChosenNode:
        """Return the choice for a pod's scheduling attempt, among the nodes of its sample."""
        return self.inner.choose(totals, refuser, snapshot, uid, attempt_number)

    def sample(
        self, refuser: Int8s, snapshot: Snapshot, tried: Collection[int]
    ) -> tuple[Int8s, int]:
        """Return the first rows that are enough; the next search begins after the visited nodes.

        Rows in `tried` count among the others in any case.
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
        """Return the state for `reset`."""
        return self.inner.mark() << _INDEX_BITS | self.start.index

    def reset(self, mark: int) -> None:
        """Undo the choices since `mark` was taken."""
        self.inner.reset(mark >> _INDEX_BITS)
        self.start.index = mark & ((1 << _INDEX_BITS) - 1)
