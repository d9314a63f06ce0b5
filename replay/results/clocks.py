"""Which clock a pod's spans run on."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Turns a moment of the simulation into a span's time, both in ns since the Unix epoch."""

    def reached(self, at_ns: int) -> None:
        """Note that the replay has come to a moment; they come in order."""

    def time_ns(self, at_ns: int) -> int:
        """Return the span's time for a moment that the replay has come to."""


class VirtualClock:
    """The simulation's own time."""

    def reached(self, at_ns: int) -> None:
        """Nothing is to be noted."""

    def time_ns(self, at_ns: int) -> int:
        """Return the moment as it is."""
        return at_ns


class WallClock:
    """When the replay came to a moment on the wall clock; `now_ns` reads that.

    A moment before the first one is the first.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._moments = array("q")
        self._walls = array("q")

    def reached(self, at_ns: int) -> None:
        """Note what the wall clock shows, once for each moment."""
        if not self._moments or at_ns > self._moments[-1]:
            self._moments.append(at_ns)
            self._walls.append(self._now_ns())

    def time_ns(self, at_ns: int) -> int:
        """Return when the latest moment up to this one was reached."""
        if not self._walls:
            return self._now_ns()
        return self._walls[max(0, bisect_right(self._moments, at_ns) - 1)]
