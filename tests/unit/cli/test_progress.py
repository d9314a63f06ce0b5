"""The line that shows how far a replay has come."""

from __future__ import annotations

import gzip
from pathlib import Path

from replay.cli.progress import line
from replay.results.summary.tally import Tally, UnboundPod
from replay.trace.files import open_plain
from replay.trace.reading import watched


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
    """From ten minutes on, so that a run which continues by itself explains itself."""
    minute_ns = 60 * 10**9
    assert line(11 * minute_ns, 9 * minute_ns, 1.0, Tally()).startswith("11m simulated · ")
    expected = "3d simulated (2d23h after the last record) · "
    assert line(3 * 1440 * minute_ns, 71 * 60 * minute_ns, 1.0, Tally()).startswith(expected)


def test_the_line_shows_progress_and_the_estimated_time_left() -> None:
    """The estimate from two seconds on, when it means something."""
    second_ns = 10**9
    assert line(second_ns, 0, 1.0, Tally(), 0.25).startswith("25 % · 1s simulated · ")
    assert line(second_ns, 0, 30.0, Tally(), 0.25).startswith("25 %, 1m30s left · 1s simulated")
    assert line(second_ns, 0, 30.0, Tally(), None).startswith("1s simulated · ")


def test_what_is_read_of_a_trace_is_reported(tmp_path: Path) -> None:
    """Of plain and compressed files in bytes of the file; and no longer once nobody watches."""
    (tmp_path / "a.yaml").write_bytes(b"a: b\n" * 100_000)
    (tmp_path / "b.yaml.gz").write_bytes(gzip.compress(bytes(range(256)) * 4000))
    seen: list[tuple[str, int, int]] = []
    with watched(lambda path, read, size: seen.append((path.name, read, size))):
        for path in sorted(tmp_path.iterdir()):
            with open_plain(path) as file:
                while file.read(1 << 16):
                    pass
    for name in ("a.yaml", "b.yaml.gz"):
        size = (tmp_path / name).stat().st_size
        reads = [read for path, read, of in seen if (path, of) == (name, size)]
        assert reads == sorted(reads)
        assert reads[-1] == size
    count = len(seen)
    with open_plain(tmp_path / "a.yaml") as file:
        file.read()
    assert len(seen) == count
