"""The line that tells how far a replay has come."""

from __future__ import annotations

from replay.cli.progress import line
from replay.results.summary.tally import Tally, UnboundPod


def test_the_line_has_time_rate_and_counts_by_outcome() -> None:
    """A waiting pod is unschedulable once an attempt has failed."""
    tally = Tally()
    tally.cycles = 3000
    tally.decisions.update({"scheduled": 2000, "preempted": 3, "evicted": 1})
    tally.waiting = {
        "a": UnboundPod(priority=0, message="0/1 nodes are available"),
        "b": UnboundPod(priority=0),
        "c": UnboundPod(priority=0),
    }
    assert line(80_000_000_000, 0, 2.0, tally) == (
        "1m20s simulated · 1,500 pods/s · 2,000 bound · 3 preempted · 1 evicted · "
        "1 unschedulable · 2 not tried yet"
    )


def test_the_line_shows_when_simulated_time_runs_far_ahead_of_the_trace() -> None:
    """From ten minutes on, so that a run which goes on by itself explains itself."""
    minute_ns = 60 * 10**9
    assert line(11 * minute_ns, 9 * minute_ns, 1.0, Tally()).startswith("11m simulated · ")
    expected = "3d simulated (2d23h after the last record) · "
    assert line(3 * 1440 * minute_ns, 71 * 60 * minute_ns, 1.0, Tally()).startswith(expected)
