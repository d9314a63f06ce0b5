"""The time over which two runs are compared, counted from the beginning of each.

A run that ended by itself stays as it is, however long the other one takes: its pending pods wait
on, and its nodes keep what they have. A run that was stopped, by --until for instance, decides no
more, so that nothing after its end can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from replay.results.run.directory import RunDirectory
from replay.world.loop.replay import ReplayEnd

_STOPPED = (ReplayEnd.UNTIL.value, ReplayEnd.WINDOW.value)
_BROKE_OFF = "it broke off"


@dataclass(frozen=True, slots=True)
class RunTime:
    """The simulated time of a run, ns since the Unix epoch.

    stopped: why it ended before all was played; "" if it ended by itself.
    """

    start_ns: int
    end_ns: int
    stopped: str = ""

    @property
    def length_ns(self) -> int:
        """Return how long it is."""
        return self.end_ns - self.start_ns


def start_ns(run: RunDirectory) -> int:
    """Return the time of a run's first round, 0 without rounds."""
    return next((round_.time_ns for round_ in run.rounds()), 0)


def time_of(run: RunDirectory) -> RunTime:
    """Return the time of a run; one without rounds has none. Raises RunError if it is broken."""
    manifest, begin_ns = run.manifest(), start_ns(run)
    if manifest.finished:
        stopped = manifest.end if manifest.end in _STOPPED else ""
        return RunTime(begin_ns, max(begin_ns, manifest.end_ns), stopped)
    last_ns = max((round_.time_ns for round_ in run.rounds()), default=begin_ns)
    return RunTime(begin_ns, last_ns, _BROKE_OFF)


def common_length_ns(a: RunTime, b: RunTime) -> int:
    """Return how long two runs are compared, ns."""
    stopped = [time.length_ns for time in (a, b) if time.stopped]
    return min(stopped or [max(a.length_ns, b.length_ns)])
