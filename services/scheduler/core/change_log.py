"""Which rows changed, so that a cached column recomputes those alone.

A position counts changes since the log began. A reader keeps the position up to which it has
read; what the log has forgotten in between makes it read every row again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

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

    __slots__ = ("_again", "_log", "_mark", "_position")

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self.forget()

    def forget(self) -> None:
        """Read every row next time."""
        self._position = -1
        self._mark: Hashable = None
        self._again: Sequence[int] = ()

    def changed(self, mark: Hashable, now: Sequence[int] = ()) -> NDArray[np.int64] | None:
        """Return the rows to look at, some maybe twice; None means every row.

        Those are all where `mark` differs from the last one. The rows `now` are read in any case,
        and once more next time.
        """
        rows = self._log.since(self._position) if mark == self._mark else None
        again = (*self._again, *now)
        self._position, self._mark, self._again = self._log.end, mark, now
        return rows if rows is None or not again else np.append(rows, again)
