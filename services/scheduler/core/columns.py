"""The snapshot's numbers: one row a node, int64 throughout.

Rows of nodes that went are used again; resources are columns that come as they appear.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from services.kube.requests import CPU, EPHEMERAL_STORAGE, MEMORY

_T = TypeVar("_T", bound=np.generic)

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

CPU_COLUMN = 0
MEMORY_COLUMN = 1
_FIRST_ROWS = 16


class Columns:
    """The arrays; all have `capacity` rows and are replaced when that grows.

    allocatable, requested: int64[nodes, resources]; cpu in thousandths of a core, else whole units.
    non_zero_requested: int64[nodes, 2]; CPU and memory with a default for what is left out.
    pod_count, pods_max: int64[nodes]. name_hash: uint64[nodes].
    alive: bool[nodes], whether the row is a node. unschedulable: bool[nodes].
    rows: int64[used], the index of every row that was ever taken; those beyond hold nothing.
    taint_class: int64[nodes], equal for nodes with equal taints (`TaintClasses`).
    """

    __slots__ = (
        "_owned",
        "alive",
        "allocatable",
        "capacity",
        "name_hash",
        "non_zero_requested",
        "pod_count",
        "pods_max",
        "requested",
        "resources",
        "rows",
        "taint_class",
        "unschedulable",
    )

    def __init__(self) -> None:
        self.rows = np.arange(0, dtype=np.int64)
        self.capacity = _FIRST_ROWS
        self.resources = {CPU: CPU_COLUMN, MEMORY: MEMORY_COLUMN, EPHEMERAL_STORAGE: 2}
        self.allocatable = np.zeros((_FIRST_ROWS, 3), dtype=np.int64)
        self.requested = np.zeros((_FIRST_ROWS, 3), dtype=np.int64)
        self.non_zero_requested = np.zeros((_FIRST_ROWS, 2), dtype=np.int64)
        self.pod_count = np.zeros(_FIRST_ROWS, dtype=np.int64)
        self.pods_max = np.zeros(_FIRST_ROWS, dtype=np.int64)
        self.name_hash = np.zeros(_FIRST_ROWS, dtype=np.uint64)
        self.alive = np.zeros(_FIRST_ROWS, dtype=np.bool_)
        self.unschedulable = np.zeros(_FIRST_ROWS, dtype=np.bool_)
        self.taint_class = np.zeros(_FIRST_ROWS, dtype=np.int64)
        self._owned: dict[str, Int64s] = {}

    def owned(self, name: str) -> Int64s:
        """Return a column that belongs to a plugin, int64[nodes], zeros at first."""
        if name not in self._owned:
            self._owned[name] = np.zeros(self.capacity, dtype=np.int64)
        return self._owned[name]

    def owned_names(self) -> Sequence[str]:
        """Return the names of the columns that belong to plugins."""
        return tuple(self._owned)

    def resource(self, name: str) -> int:
        """Return the index of a resource's column, which comes into being where it is new."""
        index = self.resources.get(name)
        if index is None:
            index = self.resources[name] = len(self.resources)
            blank = np.zeros((self.capacity, 1), dtype=np.int64)
            self.allocatable = np.ascontiguousarray(np.hstack([self.allocatable, blank]))
            self.requested = np.ascontiguousarray(np.hstack([self.requested, blank]))
        return index

    def grow(self) -> None:
        """Double the rows."""
        for name in (
            "allocatable",
            "requested",
            "non_zero_requested",
            "pod_count",
            "pods_max",
            "name_hash",
            "alive",
            "unschedulable",
            "taint_class",
        ):
            setattr(self, name, _doubled(getattr(self, name)))
        self._owned = {name: _doubled(column) for name, column in self._owned.items()}
        self.capacity *= 2

    def lay_out(self, capacity: int, used: int, resources: Sequence[str]) -> None:
        """Make columns of nothing as many and as long as others are."""
        for name in resources:
            self.resource(name)
        while self.capacity < capacity:
            self.grow()
        if (self.capacity, tuple(self.resources)) != (capacity, tuple(resources)):
            raise ValueError("these are no columns of a snapshot")
        self.rows = np.arange(used, dtype=np.int64)

    def take(self, row: int) -> None:
        """Begin to use a row."""
        if row >= len(self.rows):
            self.rows = np.arange(row + 1, dtype=np.int64)

    def clear(self, row: int) -> None:
        """Zero a row that is given back."""
        for column in (self.allocatable, self.requested, self.non_zero_requested):
            column[row] = 0
        for column in (self.pod_count, self.pods_max, self.taint_class, *self._owned.values()):
            column[row] = 0
        self.name_hash[row] = 0
        self.alive[row] = self.unschedulable[row] = False


def _doubled(column: NDArray[_T]) -> NDArray[_T]:
    return np.concatenate([column, np.zeros_like(column)])
