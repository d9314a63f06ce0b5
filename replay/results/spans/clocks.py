"""The clocks that the spans of pods run on: simulated time, or the wall time at which it came."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, MutableSequence
from typing import TypeAlias

Moments: TypeAlias = tuple[MutableSequence[int], MutableSequence[int]]
"""Simulated times and their wall times, ns since the Unix epoch, both ascending; in arrays."""


class VirtualClock:
    """Simulated time, ns since the Unix epoch; times are reached in order.

    `moments` is None if the clock needs none.
    """

    moments: Moments | None = None

    def reached(self, at_ns: int) -> None:
        """Note that the replay reached a simulated time; nothing is kept here."""

    def time_ns(self, at_ns: int) -> int:
        """Return the span's time for a simulated time that was reached: the same."""
        return at_ns


class WallClock(VirtualClock):
    """The wall time at which the replay reached a simulated time; `now_ns` reads the clock.

    A time before the first one has the wall time of the first.
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
        """Return the wall time at which the latest time up to this one was reached."""
        moments, walls = self.moments
        if not walls:
            return self._now_ns()
        return walls[max(0, bisect_right(moments, at_ns) - 1)]
