"""A run's folder from an untrusted source: commands follow no links in it and never block."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from replay.cli.errors import ExitError
from replay.cli.main import command
from replay.errors import OutputError, ReplayError
from replay.report.page import write_report
from replay.results.run.directory import RunDirectory
from replay.results.run.files import DECISIONS, HISTORY, MADE, MANIFEST, OBJECTS, REPORT, SUMMARY
from replay.results.run.lock import LOCK, RunLock
from replay.results.run.resume_point import RESUME
from services.folder import Folder, NotAFileError, drafted
from tests.unit.results.small_run import small_run

_VICTIM = "the only copy of a thesis"
_COMMANDS = (
    ("get", "pods", "RUN"),
    ("query", "RUN", "SELECT count(*) FROM pods"),
    ("report", "RUN"),
    ("export", "RUN", "-o", "OUT/x.json"),
    ("verify", "RUN"),
    ("resume", "RUN"),
)
_NAMES = (
    *(LOCK, MANIFEST, RESUME, DECISIONS, HISTORY, OBJECTS, SUMMARY, MADE, REPORT, "pods.parquet"),
    *("checkpoint-1-1.zst", "report.html.draft", ".tables-x"),
)
_LIMIT_S = 30


def _link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def _hard_link(path: Path, victim: Path) -> None:
    path.hardlink_to(victim)


def _fifo(path: Path, _: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path, _: Path) -> None:
    path.mkdir()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run with tables and a report."""
    run = small_run(tmp_path_factory.mktemp("made") / "run")
    write_report(run)
    return run.path


@pytest.fixture(autouse=True)
def _limited() -> Iterator[None]:
    """End a test that waits at a FIFO."""

    def late(*_: object) -> None:
        raise TimeoutError("a command waits")

    former = signal.signal(signal.SIGALRM, late)
    signal.alarm(_LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, former)


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("plant", [_link, _fifo, _folder, _hard_link])
def test_a_command_follows_nothing_in_a_run_s_folder_and_does_not_wait(
    made: Path, tmp_path: Path, name: str, plant: Callable[[Path, Path], None]
) -> None:
    """Each ends, with its result or one line; what the link leads to is as it was."""
    victim = tmp_path / "victim"
    for arguments in _COMMANDS:
        run = tmp_path / arguments[0]
        shutil.copytree(made, run)
        victim.write_text(_VICTIM)
        (run / name).unlink(missing_ok=True)
        plant(run / name, victim)
        texts = [
            argument.replace("RUN", str(run)).replace("OUT", str(tmp_path))
            for argument in arguments
        ]
        done = CliRunner().invoke(command, texts)
        assert done.exception is None or isinstance(
            done.exception, (ExitError, OutputError, SystemExit)
        ), (arguments, done.exception)
        assert victim.read_text() == _VICTIM, arguments


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("plant", [_link, _fifo])
def test_force_removes_no_link_and_writes_through_none(
    made: Path, tmp_path: Path, name: str, plant: Callable[[Path, Path], None]
) -> None:
    """What is not a file is not of a run; nothing is removed then."""
    run, victim = tmp_path / "run", tmp_path / "victim"
    shutil.copytree(made, run)
    victim.write_text(_VICTIM)
    (run / name).unlink(missing_ok=True)
    plant(run / name, victim)
    before = sorted(path.name for path in run.iterdir())
    with pytest.raises(ReplayError, match=name.replace(".", r"\.")):
        RunDirectory.create(run, force=True)
    assert (
        sorted(path.name for path in run.iterdir() if path.name != LOCK or name == LOCK) == before
    )
    assert victim.read_text() == _VICTIM


def test_a_fifo_or_a_link_in_place_of_the_lock_is_named(tmp_path: Path) -> None:
    """By those who read it, too."""
    os.mkfifo(tmp_path / LOCK)
    with pytest.raises(ReplayError, match=r"run\.lock cannot be written: it is a FIFO"):
        RunLock.take(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(ReplayError, match=r"run\.lock cannot be read: it is a FIFO"):
        RunDirectory.open(tmp_path).state()


def test_a_draft_is_new_and_has_a_name_that_nobody_foresees(tmp_path: Path) -> None:
    """And none is left, whether the write ends or fails."""
    seen: list[str] = []

    def written(folder: Folder, text: bytes) -> None:
        with folder.replacing("a") as file:
            file.write(text)
            seen.extend(name for name in folder.names() if drafted(name) == "a")
            if not text:
                raise RuntimeError

    with Folder(tmp_path) as folder:
        written(folder, b"1")
        written(folder, b"2")
        with pytest.raises(RuntimeError):
            written(folder, b"")
        assert folder.names() == ["a"]
    assert len(set(seen)) == 3
    assert (tmp_path / "a").read_bytes() == b"2"


def test_a_folder_is_opened_once(tmp_path: Path) -> None:
    """A link that takes its place afterwards leads nowhere."""
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").mkdir()
    with Folder(tmp_path / "run") as folder:
        (tmp_path / "run").rename(tmp_path / "moved")
        (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
        folder.write("a", b"1")
    assert (tmp_path / "moved" / "a").read_bytes() == b"1"
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    ("plant", "words"),
    [(_link, "symbolic link"), (_fifo, "FIFO"), (_folder, "folder"), (_hard_link, "hard link")],
)
def test_a_path_that_is_not_a_plain_file_is_refused_with_its_kind(
    tmp_path: Path, plant: Callable[[Path, Path], None], words: str
) -> None:
    """Where it would be changed in place, a second name is one too many."""
    victim = tmp_path / "victim"
    victim.write_text(_VICTIM)
    plant(tmp_path / "a", victim)
    with Folder(tmp_path) as folder, pytest.raises(NotAFileError, match=words):
        folder.open("a", os.O_RDWR)
