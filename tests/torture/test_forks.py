"""Forks at random moments: a run of each is compared, and a difference is found."""

from __future__ import annotations

import random
from pathlib import Path
from unittest import mock

import pytest

from replay.durations import duration_ns
from replay.results.run.directory import RunDirectory
from tests.e2e.commands import reprieve
from tests.e2e.replays import ROOT
from tests.torture import forks
from tests.torture.kill_traces import kind_of

SHOP = str(ROOT / "examples" / "recordings" / "shop")
RECORDED = 5


@pytest.mark.e2e
def test_forks_are_their_twins_and_are_compared(tmp_path: Path) -> None:
    """Of a recording that takes no time; each shares something."""
    assert kind_of(RECORDED) == "recorded"
    problems, counts = forks.attempt(RECORDED, tmp_path)
    assert problems == []
    assert counts == {"forks": 3, "compared": 3, "shared": 3}


@pytest.mark.e2e
def test_a_fork_that_is_not_its_twin_is_found(tmp_path: Path) -> None:
    """In the twin another node is drained."""
    change = ("10s", ["--drain", "node-1"], ["--drain", "node-2,at=10s"])
    with mock.patch.object(forks, "change", return_value=change):
        problems, counts = forks.attempt(RECORDED, tmp_path, forks=1)
    assert counts["compared"] == 1
    assert any(": decision log: " in problem for problem in problems)


@pytest.mark.e2e
def test_moments_are_of_the_run_or_soon_after_its_end(tmp_path: Path) -> None:
    """A moment long after the end shares everything, and pods that wait are tried until then."""
    reprieve(tmp_path, "replay", SHOP, "--run", "a", "-q", "--no-report")
    run = RunDirectory.open(tmp_path / "a")
    times = [round_.time_ns for round_ in run.rounds()]
    length_ns = times[-1] - times[0]
    moments = [
        duration_ns(forks.change(run, random.Random(seed), tmp_path, 0)[0])  # noqa: S311 - a test's
        for seed in range(40)
    ]
    assert 0 < min(moments) < length_ns / 2 < max(moments) <= 1.02 * length_ns
