"""Replays in child processes: one process makes several, and is gone when it should be."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from replay.whatif import replay_processes
from replay.whatif.replay_processes import CellError, ReplayProcesses

_STAND_IN = """
import os, signal, sys, time
from replay.cli import replay_worker

def replay():
    print(os.getpid(), file=sys.stderr)
    what = sys.argv[2]
    if what == "waits":
        time.sleep(60)
    if what == "fails":
        sys.exit(2)
    if what == "breaks":
        raise KeyError("lost")
    if what == "is interrupted":
        sys.exit(130)
    if what == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)

replay_worker.command_line.main = replay
replay_worker.main()
"""


@pytest.fixture(name="replays")
def _replays(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReplayProcesses]:
    """Let replays be stand-ins, which write their process number and end as asked."""
    monkeypatch.setattr(replay_processes, "_CHILD", _STAND_IN)
    with closing(ReplayProcesses()) as replays:
        yield replays


def pid_in(log: Path) -> int:
    """Return the process number in the messages of a replay."""
    return int(log.read_text().split()[0])


@pytest.mark.parametrize(
    ("what", "code", "is_used_again"),
    [
        ("holds", 0, True),
        ("fails", 2, True),
        ("breaks", 1, False),
        ("is interrupted", 130, False),
        ("is killed", -signal.SIGKILL, False),
    ],
)
def test_a_process_replays_again_unless_it_may_be_broken(
    tmp_path: Path, replays: ReplayProcesses, what: str, code: int, is_used_again: bool
) -> None:
    """The exit code is that of the command; messages of each replay are in its own file."""
    first, second = tmp_path / "first.log", tmp_path / "second.log"
    assert replays.run([what], first) == code
    assert replays.run(["holds"], second) == 0
    assert (pid_in(first) == pid_in(second)) == is_used_again
    assert ("KeyError: 'lost'" in first.read_text()) == (what == "breaks")


def test_processes_are_gone_when_they_are_closed(tmp_path: Path, replays: ReplayProcesses) -> None:
    """A later replay starts another one."""
    assert replays.run(["holds"], tmp_path / "first.log") == 0
    replays.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid_in(tmp_path / "first.log"), 0)
    assert replays.run(["holds"], tmp_path / "second.log") == 0


def test_a_replay_that_runs_is_stopped(tmp_path: Path, replays: ReplayProcesses) -> None:
    """By another thread; no other replay is started."""
    log, codes = tmp_path / "first.log", list[int]()
    thread = threading.Thread(target=lambda: codes.append(replays.run(["waits"], log)))
    thread.start()
    while not (log.exists() and log.read_text()):
        time.sleep(0.01)
    replays.stop()
    thread.join(30)
    assert codes == [-signal.SIGTERM]
    with pytest.raises(CellError, match="the command is ending"):
        replays.run(["holds"], log)
