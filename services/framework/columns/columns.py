"""The snapshot's numbers, one row per node: whose each row is, and which rows changed.

Rows of deleted nodes are used again; each resource is a column that is added on first use.

A ChangeLog holds the latest changed rows, so that a cached column recomputes those alone. A
position counts changes since the log began. A reader keeps the position up to which it has read; if
the log no longer reaches back to it, the reader reads every row again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from services.framework.columns.hashing import node_hash
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
        "_numbers",
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
        self._numbers = np.arange(_FIRST_ROWS, dtype=np.int64)
        self.rows = self._numbers[:0]
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
        """Return the index of a resource's column, which is created for a new resource."""
        return self.places((name,))[0]

    def places(self, names: Iterable[str]) -> list[int]:
        """Return the indexes of resources' columns, which are created for new resources.

        The columns are copied for that, once for all new ones among `names`.
        """
        places, known = list[int](), len(self.resources)
        for name in names:
            place = self.resources.get(name)
            if place is None:
                place = self.resources[name] = len(self.resources)
            places.append(place)
        if len(self.resources) > known:
            blank = np.zeros((self.capacity, len(self.resources) - known), dtype=np.int64)
            self.allocatable = np.ascontiguousarray(np.hstack([self.allocatable, blank]))
            self.requested = np.ascontiguousarray(np.hstack([self.requested, blank]))
        return places

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
        self._numbers = np.arange(self.capacity, dtype=np.int64)

    def lay_out(self, capacity: int, used: int, resources: Sequence[str]) -> None:
        """Make columns of nothing as many and as long as others are."""
        self.places(resources)
        while self.capacity < capacity:
            self.grow()
        if (self.capacity, tuple(self.resources)) != (capacity, tuple(resources)):
            raise ValueError("the columns are not those of a snapshot")
        self.rows = self._numbers[:used]

    def take(self, row: int) -> None:
        """Begin to use a row."""
        if row >= len(self.rows):
            self.rows = self._numbers[: row + 1]

    def clear(self, row: int) -> None:
        """Zero a row that is freed."""
        for column in (self.allocatable, self.requested, self.non_zero_requested):
            column[row] = 0
        for column in (self.pod_count, self.pods_max, self.taint_class, *self._owned.values()):
            column[row] = 0
        self.name_hash[row] = 0
        self.alive[row] = self.unschedulable[row] = False


def _doubled(column: NDArray[_T]) -> NDArray[_T]:
    return np.concatenate([column, np.zeros_like(column)])


_KEPT = 8192


class ChangeLog:
    """The latest changed rows; `end` is the position after the last change."""

    __slots__ = ("_rows", "_start", "end")

    def __init__(self) -> None:
        self._rows = np.zeros(_KEPT, dtype=np.int64)
        self._start = 0
        self.end = 0

    def note(self, row: int) -> None:
        """Record that `row` changed."""
        length = self.end - self._start
        if length == _KEPT:
            self._forget_half()
            length = self.end - self._start
        self._rows[length] = row
        self.end += 1

    def note_all(self) -> None:
        """Record that every row changed."""
        self.end += 1
        self._start = self.end

    def since(self, position: int) -> NDArray[np.int64] | None:
        """Return the rows changed since `position`, some maybe twice; None means every row."""
        if position < self._start:
            return None
        return self._rows[position - self._start : self.end - self._start]

    def _forget_half(self) -> None:
        half = _KEPT // 2
        self._rows[:half] = self._rows[half:]
        self._start += half


class LogReader:
    """Reads a log from where it left off."""

    __slots__ = ("_again", "_log", "_read_to", "_version")

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self.forget()

    def forget(self) -> None:
        """Read every row next time."""
        self._read_to = -1
        self._version: Hashable = None
        self._again: Sequence[int] = ()

    def changed(self, version: Hashable, now: Sequence[int] = ()) -> NDArray[np.int64] | None:
        """Return the rows that are stale, some maybe twice; None means every row.

        Those are all where `version` differs from the last one. The rows `now` are read in any
        case, and once more next time.
        """
        rows = self._log.since(self._read_to) if version == self._version else None
        again = (*self._again, *now)
        self._read_to, self._version, self._again = self._log.end, version, now
        return rows if rows is None or not again else np.append(rows, again)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout:
    """The owners of a snapshot's rows and columns, so that a restored one numbers them equally.

    `rows` are (node name, row), in the order in which they were taken. `free` are the rows to take
    next, the last one first; `used` counts those ever taken.
    """

    capacity: int
    used: int
    resources: tuple[str, ...]
    rows: tuple[tuple[str, int], ...]
    free: tuple[int, ...]


class Rows:
    """The rows of `columns` by node name, in the order in which they were taken.

    by_name: the rows that are taken. names: each row's node name, "" where it is free.
    """

    __slots__ = ("_columns", "_free", "by_name", "names")

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self.by_name: dict[str, int] = {}
        self.names = [""] * columns.capacity
        self._free = list(range(columns.capacity - 1, -1, -1))

    def take(self, name: str) -> int:
        """Return a free row for a node; the columns grow when all rows are in use."""
        columns = self._columns
        if not self._free:
            before = columns.capacity
            columns.grow()
            self._widen()
            self._free.extend(range(columns.capacity - 1, before - 1, -1))
        row = self._free.pop()
        columns.take(row)
        self._name(row, name)
        return row

    def give_back(self, row: int) -> None:
        """Free a row, which holds nothing any more."""
        del self.by_name[self.names[row]]
        self.names[row] = ""
        self._columns.clear(row)
        self._free.append(row)

    def layout(self) -> RowLayout:
        """Return which row is whose."""
        return RowLayout(
            capacity=self._columns.capacity,
            used=len(self._columns.rows),
            resources=tuple(self._columns.resources),
            rows=tuple(self.by_name.items()),
            free=tuple(self._free),
        )

    def lay_out(self, layout: RowLayout) -> None:
        """Take the rows of another snapshot, before any is taken here.

        Raises ValueError for a layout that no snapshot can have.
        """
        assert not self.by_name, "rows are taken already"
        rows = sorted([*(row for _, row in layout.rows), *layout.free])
        # Before memory is taken for them: a layout may claim any number of rows.
        whole = len(rows) == layout.capacity and 0 <= layout.used <= layout.capacity
        if not whole or rows != list(range(layout.capacity)):
            raise ValueError("the rows are not those of a snapshot")
        self._columns.lay_out(layout.capacity, layout.used, layout.resources)
        self._widen()
        self._free = list(layout.free)
        for name, row in layout.rows:
            self._name(row, name)

    def _widen(self) -> None:
        self.names.extend([""] * (self._columns.capacity - len(self.names)))

    def _name(self, row: int, name: str) -> None:
        self.by_name[name] = row
        self.names[row] = name
        self._columns.name_hash[row] = node_hash(name)
