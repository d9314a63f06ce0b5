"""Columns as kubectl prints them: three spaces apart, as wide as the widest cell so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_GAP = "   "


class TableWriter:
    """Writes rows in batches; the header comes with the first one, and widths only grow."""

    def __init__(self, columns: Sequence[str], write: Callable[[str], object]) -> None:
        self._columns = columns
        self._write = write
        self._widths = [len(column) for column in columns]
        self._begun = False

    def rows(self, rows: Sequence[Sequence[str]]) -> None:
        """Write rows; each has a cell for each column."""
        for row in rows:
            self._widths = [max(w, len(cell)) for w, cell in zip(self._widths, row, strict=True)]
        if rows and not self._begun:
            self._begun = True
            self._line(self._columns)
        for row in rows:
            self._line(row)

    def _line(self, cells: Sequence[str]) -> None:
        padded = [cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True)]
        self._write(_GAP.join(padded).rstrip() + "\n")
