"""Kills of services and replays at random moments leave a run as it is but for wall times."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.torture.kill_traces import generated
from tests.torture.kills import children, disturbed, undisturbed

WITHIN_S, KILLS = 0.5, 4


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """Return a replay's arguments, and its run without kills."""
    folder = tmp_path_factory.mktemp("kills")
    arguments = generated(folder, seed=3, nodes=20, pods=300, service_time="30s", leaky=5)
    return arguments, undisturbed(arguments, folder)


@pytest.mark.e2e
def test_random_kills_leave_everything_but_wall_times_as_it_is(
    base: tuple[list[str], Path], tmp_path: Path
) -> None:
    """Of a service, of all, or of the replay, which is resumed; a service that stops for a time."""
    arguments, run = base
    found = disturbed(arguments, run, tmp_path, seed=1, within_s=WITHIN_S, kills=KILLS)
    assert len(found.kills) == KILLS
    assert found.is_good, (found.kills, found.code, found.problems, found.errors)


def test_children_are_found_while_threads_end() -> None:
    """A thread's folder in /proc may be gone between its listing and its reading."""
    ended = threading.Event()

    def churn() -> None:
        while not ended.is_set():
            thread = threading.Thread(target=lambda: None)
            thread.start()
            thread.join()

    churning = [threading.Thread(target=churn) for _ in range(4)]
    for thread in churning:
        thread.start()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        try:
            assert all(child.pid in children(os.getpid()) for _ in range(200))
        finally:
            ended.set()
            assert child.stdin is not None
            child.stdin.close()
