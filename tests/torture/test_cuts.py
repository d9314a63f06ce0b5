"""Connections that are cut and services that are frozen leave the decision log as it is."""

from __future__ import annotations

import asyncio
import filecmp
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from replay.backends import processes
from services.rpc.timeouts import Timeouts
from tests.torture.cuts import BY_DEADLINE, DECISIONS, Rig, disturbed, generated, replayed, rig
from tests.torture.kills import children

WITHIN_S = 0.5


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """Return the loop of the proxies."""
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def services(runner: asyncio.Runner) -> Iterator[Rig]:
    """Start three services, each behind a proxy."""
    made = rig()
    yield runner.run(made.__aenter__())
    runner.run(made.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def base(
    runner: asyncio.Runner, services: Rig, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """Return a trace, and its run without disturbances."""
    folder = tmp_path_factory.mktemp("cuts")
    source, run = generated(folder, seed=2), folder / "undisturbed"
    runner.run(services.replay(source, run, BY_DEADLINE))
    return source, run


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("seed", "kind"), [(1, "one way"), (2, "half open"), (3, "in a message"), (4, "stopped")]
)
def test_a_run_that_is_cut_off_goes_on_by_itself_with_the_same_decisions(
    runner: asyncio.Runner, services: Rig, base: tuple[Path, Path], seed: int, kind: str
) -> None:
    """From the last checkpoint, where a ping or a response is overdue."""
    found = runner.run(disturbed(services, *base, seed, WITHIN_S, kind))
    assert found.done
    assert not found.problem, f"{found.done}: {found.problem}"


@pytest.mark.e2e
def test_frozen_child_processes_are_killed_and_started_again(
    base: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the process that starts them; none stays behind."""
    monkeypatch.setattr(processes, "STOP_S", 0.3)
    monkeypatch.setattr(processes, "RESTART_S", 0.3)
    frozen: list[int] = []
    source, run = base
    before = {*children(os.getpid())}

    async def freeze() -> None:
        while not (tmp_path / "run" / DECISIONS).exists():
            await asyncio.sleep(0.01)
        [starter] = {*children(os.getpid())} - before
        frozen.extend([*sorted(children(starter))[:2], starter])  # eviction service and queue
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)

    async def replaying() -> None:
        timeouts = Timeouts(response=1, call=5, checkpoint=5)
        await asyncio.gather(
            asyncio.to_thread(replayed, source, tmp_path / "run", timeouts, notices.append),
            freeze(),
        )

    notices: list[str] = []
    asyncio.run(replaying())
    assert "the run goes on" in notices
    assert filecmp.cmp(run / DECISIONS, tmp_path / "run" / DECISIONS, shallow=False)
    deadline_s = time.monotonic() + 10
    while any(Path(f"/proc/{pid}/fd").exists() for pid in frozen):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    assert {*children(os.getpid())} == before
