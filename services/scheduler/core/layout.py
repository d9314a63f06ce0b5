"""Which row of a snapshot's columns is whose; rows of nodes that went are taken again."""

from __future__ import annotations

from dataclasses import dataclass

from services.scheduler.core.columns import Columns
from services.scheduler.core.hashing import node_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where a snapshot keeps what, so that a restored one numbers its rows alike.

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
        """Return a free row for a node; the columns grow where there is none."""
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

    def layout(self) -> Layout:
        """Return which row is whose."""
        return Layout(
            capacity=self._columns.capacity,
            used=len(self._columns.rows),
            resources=tuple(self._columns.resources),
            rows=tuple(self.by_name.items()),
            free=tuple(self._free),
        )

    def lay_out(self, layout: Layout) -> None:
        """Take the rows of another snapshot, before any is taken here.

        Raises ValueError for rows that are no snapshot's.
        """
        assert not self.by_name, "rows are taken already"
        self._columns.lay_out(layout.capacity, layout.used, layout.resources)
        self._widen()
        taken = [row for _, row in layout.rows]
        if sorted([*taken, *layout.free]) != list(range(self._columns.capacity)):
            raise ValueError("the rows are not those of a snapshot")
        self._free = list(layout.free)
        for name, row in layout.rows:
            self._name(row, name)

    def _widen(self) -> None:
        self.names.extend([""] * (self._columns.capacity - len(self.names)))

    def _name(self, row: int, name: str) -> None:
        self.by_name[name] = row
        self.names[row] = name
        self._columns.name_hash[row] = node_hash(name)
