"""The warning about a run that grows large."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from replay.cli.main import command
from replay.results.run import growth
from replay.results.run.growth import RunGrowth, warning
from services.kube.time import MINUTE_NS

_GB = 1_000_000_000


def test_a_warning_estimates_the_size_at_the_runs_end() -> None:
    """The estimate uses the growth since the first check, also for a resumed run."""
    text = warning(4 * _GB, 3 * _GB, (0, 2 * _GB), 10 * MINUTE_NS, 60 * MINUTE_NS)
    assert text == (
        "the run's files have 4.0 GB, 3.0 GB of which are spans; about 14.0 GB at its end in 50m, "
        "at this rate; --spans 1% keeps those of one pod in a hundred, --spans off none"
    )


def test_without_an_end_the_estimate_is_for_a_minute() -> None:
    """There is no advice about spans if they are a small part."""
    text = warning(4 * _GB, _GB, (0, 0), 2 * MINUTE_NS, None)
    assert text == (
        "the run's files have 4.0 GB, 1.0 GB of which are spans; about 2.0 GB more for each "
        "simulated minute, at this rate; --until ends it earlier"
    )


def test_a_run_that_grows_large_is_warned_about_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first look at which it is large."""
    monkeypatch.setattr(growth, "LARGE_BYTES", 1000)
    monkeypatch.setattr(growth, "_PERIOD_S", 0)
    notices: list[str] = []
    run = RunGrowth(tmp_path, notices.append)
    run.look(0, None)
    (tmp_path / "spans.jsonl").write_bytes(bytes(999))
    run.look(1, None)
    assert notices == []
    (tmp_path / "decisions.jsonl").write_bytes(bytes(1))
    run.look(2, None)
    run.look(3, None)
    assert len(notices) == 1


@pytest.mark.e2e
def test_a_replay_shows_the_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, on standard error."""
    monkeypatch.setattr(growth, "LARGE_BYTES", 1)
    monkeypatch.setattr(growth, "_PERIOD_S", 0)
    monkeypatch.chdir(tmp_path)
    make = ["generate", "-o", "trace.ktr", "--pods", "20", "--nodes", "3"]
    assert CliRunner().invoke(command, make).exit_code == 0
    options = ["--in-process", "--run", "run", "--no-report", "-q"]
    done = CliRunner().invoke(command, ["replay", "trace.ktr", *options])
    assert done.exit_code == 0
    assert done.stderr.count("Warning: the run's files have 0.0 GB") == 1
