"""The lock of a run's folder: held by a live run, free after any end."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from replay.errors import OutputError, RunError
from replay.results.run.directory import RunDirectory
from replay.results.run.lock import LOCK, RunLock, is_held, read_holder
from replay.results.run.manifest import Manifest

_MANIFEST = Manifest(version="0", seed=0, rules="v1.34", traces=())
_HOLD = """
import sys
from pathlib import Path
from replay.results.run.directory import RunDirectory
from tests.unit.results.test_lock import _MANIFEST
run = RunDirectory.create(Path(sys.argv[1]))
run.write_manifest(_MANIFEST)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Return another process with a run that is still going, and the run's folder."""
    path = tmp_path / "run"
    command = [sys.executable, "-c", _HOLD, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process, path
        process.kill()


def test_a_folder_that_a_live_run_holds_is_refused_even_with_force(
    live: tuple[subprocess.Popen[str], Path],
) -> None:
    """The error names the process, and the folder stays as it is."""
    process, path = live
    before = sorted(file.name for file in path.iterdir())
    for force in (False, True):
        with pytest.raises(RunError, match=rf"still going \(process {process.pid} on .* since 2"):
            RunDirectory.create(path, force=force)
        with pytest.raises(RunError, match="still going"):
            RunDirectory.check(path, force=force)
    with pytest.raises(RunError, match="still going"):
        RunDirectory.reopen(path)
    assert sorted(file.name for file in path.iterdir()) == before


def test_a_live_run_can_be_read_and_reports_that_it_is_in_progress(
    live: tuple[subprocess.Popen[str], Path],
) -> None:
    """Readers take no lock for longer than an instant."""
    process, path = live
    state = RunDirectory.open(path).state()
    assert state.going.startswith(f"process {process.pid} on ")
    assert "still going" in str(state)


def test_the_lock_of_a_killed_run_is_free(live: tuple[subprocess.Popen[str], Path]) -> None:
    """The kernel lets it go; the run reads as killed, and may be replaced or continued."""
    process, path = live
    process.send_signal(signal.SIGKILL)
    process.wait()
    state = RunDirectory.open(path).state()
    assert state.broke_off.startswith(f"killed: process {process.pid} on ")
    RunDirectory.reopen(path).end()
    with RunDirectory.create(path, force=True):
        assert is_held(path)


def test_of_two_runs_that_begin_at_once_one_is_refused(tmp_path: Path) -> None:
    """Both saw an empty folder; what the first one writes is not removed by the second."""
    path = tmp_path / "run"
    RunDirectory.check(path)
    RunDirectory.check(path)
    with RunDirectory.create(path) as first:
        first.write_manifest(_MANIFEST)
        with pytest.raises(RunError, match="still going"):
            RunDirectory.create(path, force=True)
        assert not first.manifest().finished


def test_a_run_that_ended_after_the_check_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is looked at again once it is locked."""
    take = RunLock.take

    def ended_in_between(folder: Path) -> RunLock:
        (folder / "manifest.json").write_text("{}")
        return take(folder)

    monkeypatch.setattr(RunLock, "take", ended_in_between)
    with pytest.raises(RunError, match="--force replaces it"):
        RunDirectory.create(tmp_path / "run")
    assert not is_held(tmp_path / "run")


def test_a_complete_run_leaves_no_lock(tmp_path: Path) -> None:
    """Its folder holds results only."""
    with RunDirectory.create(tmp_path) as run:
        run.write_manifest(_MANIFEST.ended("over"))
    assert not (tmp_path / LOCK).exists()
    assert run.state().is_whole
    with pytest.raises(RunError, match="has its end"):
        RunDirectory.reopen(tmp_path)
    assert not (tmp_path / LOCK).exists()


def test_a_run_that_breaks_off_leaves_the_reason(tmp_path: Path) -> None:
    """Readers, and the exception on its way to the command's end, have it."""

    def break_off() -> None:
        with RunDirectory.create(tmp_path) as run:
            run.write_manifest(_MANIFEST)
            raise OutputError("decisions.jsonl cannot be written: No space left on device")

    with pytest.raises(OutputError) as caught:
        break_off()
    assert caught.value.__notes__ == [f"{tmp_path} has what was written until then"]
    state = RunDirectory.open(tmp_path).state()
    assert state.broke_off == "decisions.jsonl cannot be written: No space left on device"
    assert not is_held(tmp_path)


def test_the_reason_needs_no_space_on_the_disk(tmp_path: Path) -> None:
    """The file has its size from the beginning, however long the reason is."""
    lock = RunLock.take(tmp_path)
    size = (tmp_path / LOCK).stat().st_size
    lock.release("ü" * 10_000)
    assert (tmp_path / LOCK).stat().st_size == size
    holder = read_holder(tmp_path)
    assert holder is not None
    assert holder.broke_off.startswith("üüü")


def test_a_lock_file_that_was_removed_under_a_waiting_run_is_not_taken(tmp_path: Path) -> None:
    """The lock of a file that no other run would find protects nothing."""
    first = RunLock.take(tmp_path)
    (tmp_path / LOCK).unlink()
    second = RunLock.take(tmp_path)
    assert is_held(tmp_path)
    first.release()
    assert is_held(tmp_path)
    second.release()
    assert not (tmp_path / LOCK).exists()


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"pid": "x"}'])
def test_a_lock_file_of_any_content_can_be_read(tmp_path: Path, text: bytes) -> None:
    """No process is named then."""
    (tmp_path / LOCK).write_bytes(text)
    assert read_holder(tmp_path) is not None
    assert not is_held(tmp_path)


def test_a_folder_without_permission_is_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not a full disk's error."""

    def denied(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(RunError, match="cannot be written: Permission denied"):
        RunLock.take(tmp_path)
