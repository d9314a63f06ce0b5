"""Rows for intervals, so that no two in one row overlap, and as few as possible."""

from __future__ import annotations

import heapq


class Lanes:
    """Gives each interval the first free row; they come in the order of their beginnings."""

    def __init__(self) -> None:
        self._busy: list[tuple[float, int]] = []
        self._free: list[int] = []
        self._count = 0

    def take(self, begin: float, end: float) -> int:
        """Return the row of an interval, from 0."""
        while self._busy and self._busy[0][0] <= begin:
            heapq.heappush(self._free, heapq.heappop(self._busy)[1])
        if self._free:
            row = heapq.heappop(self._free)
        else:
            row, self._count = self._count, self._count + 1
        heapq.heappush(self._busy, (end, row))
        return row
