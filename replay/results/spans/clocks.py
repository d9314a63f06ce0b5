"""The clocks of pod spans: simulated time, or the wall time at which the replay reached it."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, MutableSequence
from typing import TypeAlias

Moments: TypeAlias = tuple[MutableSequence[int], MutableSequence[int]]
"""Simulated times and the wall time of each, ns since the Unix epoch; both ascending."""


class VirtualClock:
    """Simulated time, ns since the Unix epoch; the replay reaches times in order.

    `moments` is None for a clock that stores no times.
    """

    moments: Moments | None = None

    def reached(self, at_ns: int) -> None:
        """Do nothing: simulated time needs no notes."""

    def time_ns(self, at_ns: int) -> int:
        """Return the time for a span: `at_ns` itself."""
        return at_ns


class WallClock(VirtualClock):
    """The wall time at which the replay reached a simulated time; `now_ns` reads the wall clock.

    A time before the first noted one maps to the wall time of the first.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self.moments: Moments = (array("q"), array("q"))

    def reached(self, at_ns: int) -> None:
        """Note the wall time, once for each simulated time."""
        moments, walls = self.moments
        if not moments or at_ns > moments[-1]:
            moments.append(at_ns)
            walls.append(self._now_ns())

    def time_ns(self, at_ns: int) -> int:
        """Return the wall time of the latest noted time that is not after `at_ns`."""
        moments, walls = self.moments
        if not walls:
            return self._now_ns()
        return walls[max(0, bisect_right(moments, at_ns) - 1)]
