"""Which of the best nodes is taken.

v1.34 breaks ties at random; here a keyed hash does (services.scheduler.core.hashing) or, where it
is asked for, the order of the nodes' names. The preset v1.16 takes the best nodes in turn, along
upstream's zone-interleaved node list.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import NamedTuple, Protocol

import numpy as np

from services.scheduler.core import kernels
from services.scheduler.core.columns import Int64s
from services.scheduler.core.hashing import attempt_hash
from services.scheduler.core.kernels import Int8s
from services.scheduler.core.snapshot import Snapshot


class Choice(NamedTuple):
    """The row taken (-1 where none is feasible).

    `feasible` rows fitted, and `tied` of them had the best `total`. `looked_at` counts the rows
    that were asked where that was not all of them, 0 else.
    """

    row: int
    feasible: int
    total: int
    tied: int
    looked_at: int = 0


_NOTHING = Choice(-1, 0, 0, 0)


class Scored(Protocol):
    """What nodes are worth; a shape is that."""

    def normalized_totals(self, refuser: Int8s) -> Int64s:
        """Return the totals, int64[nodes], of the rows that `refuser` spares."""


class HostChoice(ABC):
    """How a node is chosen; `refuser` is int8[nodes], 0 where the pod fits."""

    __slots__ = ()

    @abstractmethod
    def choose(
        self,
        shape: Scored,
        refuser: Int8s,
        snapshot: Snapshot,
        uid: str,
        attempt: int,
        tried: Collection[int] = (),
    ) -> Choice:
        """Return the choice for a pod's scheduling attempt.

        Rows in `tried` were evaluated before, whether they are looked at now or not.
        """

    def mark(self) -> int:
        """Return what `reset` needs to come back to this moment; most choices leave nothing."""
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
        shape: Scored,
        refuser: Int8s,
        snapshot: Snapshot,
        uid: str,
        attempt: int,
        tried: Collection[int] = (),  # noqa: ARG002 - all nodes are looked at
    ) -> Choice:
        """Return the choice for a pod's scheduling attempt."""
        if np.count_nonzero(refuser) == len(refuser):
            return _NOTHING
        columns = snapshot.columns
        used = len(columns.rows)
        totals = shape.normalized_totals(refuser)
        key = np.uint64(attempt_hash(self._seed, uid, attempt))
        row, feasible, total, ties = kernels.choose(used, refuser, totals, columns.name_hash, key)
        return Choice(row, feasible, total, ties)


class NamedChoice(HostChoice):
    """The best total; the least node name among equals, by the order of its bytes.

    Source: hkust-adsl/kubernetes-scheduler-simulator, vendored generic_scheduler.go, selectHost.
    """

    __slots__ = ("_places", "_snapshot", "_up_to")

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._up_to = -1
        self._places: Int64s = np.zeros(0, dtype=np.int64)

    def choose(
        self,
        shape: Scored,
        refuser: Int8s,
        snapshot: Snapshot,
        uid: str,  # noqa: ARG002 - not keyed
        attempt: int,  # noqa: ARG002 - not keyed
        tried: Collection[int] = (),  # noqa: ARG002 - all nodes are looked at
    ) -> Choice:
        """Return the choice for a pod's scheduling attempt."""
        if np.count_nonzero(refuser) == len(refuser):
            return _NOTHING
        used = len(snapshot.columns.rows)
        totals = shape.normalized_totals(refuser)
        return Choice(*kernels.choose_first(used, refuser, totals, self._by_name(snapshot)))

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

    The index advances with each choice among two feasible nodes or more; whoever undoes a choice
    sets it back.
    Source: kubernetes v1.16 pkg/scheduler/core/generic_scheduler.go, selectHost, with the
    lastNodeIndex that the documents describe.
    """

    __slots__ = ("last_node_index",)

    def __init__(self) -> None:
        self.last_node_index = 0

    def choose(
        self,
        shape: Scored,
        refuser: Int8s,
        snapshot: Snapshot,
        uid: str,  # noqa: ARG002 - not keyed
        attempt: int,  # noqa: ARG002 - not keyed
        tried: Collection[int] = (),  # noqa: ARG002 - all nodes are looked at
    ) -> Choice:
        """Return the choice for a pod's scheduling attempt."""
        rows = [row for row in snapshot.listed_rows() if refuser[row] == 0]
        if not rows:
            return Choice(-1, 0, 0, 0)
        totals = shape.normalized_totals(refuser)[rows].tolist()
        highest = max(totals)
        if len(rows) == 1:
            return Choice(rows[0], 1, highest, 1)
        best = [row for row, total in zip(rows, totals, strict=True) if total == highest]
        row = best[self.last_node_index % len(best)]
        self.last_node_index += 1
        return Choice(row, len(rows), highest, len(best))

    def mark(self) -> int:
        """Return the index as it stands."""
        return self.last_node_index

    def reset(self, mark: int) -> None:
        """Set the index back."""
        self.last_node_index = mark
