"""Incomplete runs: each reader reads the complete part, and reports that the rest is missing."""

from __future__ import annotations

import dataclasses
import random
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from replay.cli.commands import export
from replay.cli.commands.compare import command as compare_command
from replay.cli.commands.get import command as get_command
from replay.cli.commands.runs import query_command, report_command
from replay.cli.errors import REFUSED, ExitError
from replay.errors import RunError
from replay.results.run.directory import RunDirectory
from replay.results.run.files import DECISIONS, HISTORY
from replay.results.run.lock import RunLock
from replay.results.run.manifest import RunFile
from replay.results.run.resume_point import ResumePoint, RunCommand
from tests.e2e.commands import command, environment, reprieve
from tests.unit.results.small_run import small_run

_COUNT = "SELECT count(*) AS n FROM decisions"
_READERS: dict[str, tuple[click.Command, tuple[str, ...]]] = {
    "pods": (get_command, ("pods", "RUN")),
    "nodes": (get_command, ("nodes", "RUN", "-o", "json")),
    "events": (get_command, ("events", "RUN")),
    "query": (query_command, ("RUN", _COUNT, "-o", "csv")),
    "report": (report_command, ("RUN", "-o", "OUT/report.html")),
    "export": (export.command, ("RUN", "-o", "OUT/x.json")),
    "compare": (compare_command, ("RUN", "RUN", "--no-explain", "-o", "json")),
}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Return a run without its end."""
    run = small_run(tmp_path / "run")
    run.write_manifest(dataclasses.replace(run.manifest(), finished=False, end="", files={}))
    return run


def _read(name: str, run: Path, out: Path) -> tuple[str, str]:
    reader, arguments = _READERS[name]
    texts = [argument.replace("RUN", str(run)).replace("OUT", str(out)) for argument in arguments]
    done = CliRunner().invoke(reader, texts, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


@pytest.mark.parametrize("name", _READERS)
def test_a_reader_says_that_a_run_broke_off(run: RunDirectory, name: str) -> None:
    """One line on standard error; standard output is for the result."""
    shown, said = _read(name, run.path, run.path.parent)
    assert said.count("the run broke off") == (2 if name == "compare" else 1)
    assert "broke off" not in shown


def test_a_whole_run_is_read_without_a_word(tmp_path: Path) -> None:
    """There is nothing to warn of."""
    assert _read("pods", small_run(tmp_path / "run").path, tmp_path)[1] == ""


@pytest.mark.parametrize("seed", range(2))
def test_files_that_were_cut_anywhere_are_read(run: RunDirectory, seed: int) -> None:
    """Up to the last whole line or frame, by every reader."""
    chance = random.Random(seed)  # noqa: S311 - a test
    for number in range(3):
        cut = run.path.parent / f"cut-{number}"
        shutil.copytree(run.path, cut)
        for name in (DECISIONS, HISTORY):
            content = (cut / name).read_bytes()
            (cut / name).write_bytes(content[: chance.randrange(len(content) + 1)])
        lines = (cut / DECISIONS).read_bytes().count(b"\n")
        assert _read("query", cut, cut.parent)[0] == f"n\n{lines}\n"
        for reader in _READERS:
            _read(reader, cut, cut.parent)


def test_a_live_run_gets_no_tables_in_its_folder(run: RunDirectory) -> None:
    """Its files grow on: a table would be old at once."""
    lock = RunLock.take(run.path)
    before = sorted(run.path.iterdir())
    assert "still going (process" in _read("query", run.path, run.path.parent)[1]
    _read("export", run.path, run.path.parent)
    assert sorted(run.path.iterdir()) == before
    lock.release()


@pytest.mark.parametrize(
    ("arguments", "limit"),
    [
        (("query", "run", "SELECT * FROM decisions"), 600),
        (("export", "run", "-o", "x.json"), 3_000),
        (("report", "run"), 100_000),
        (("generate", "-o", "x.jsonl", "--pods", "99", "--nodes", "9"), 3_000),
    ],
)
def test_a_file_that_cannot_grow_ends_a_command_with_6(
    tmp_path: Path, arguments: tuple[str, ...], limit: int
) -> None:
    """As a full disk does; the limit of the process stands for it (EFBIG)."""
    small_run(tmp_path / "run")
    if arguments[0] == "report":
        _read("query", tmp_path / "run", tmp_path)
    done = _limited(tmp_path, arguments, limit)
    assert done.returncode == 6, done.stderr
    (line,) = done.stderr.splitlines()
    assert "File too large" in line


def test_a_full_standard_output_ends_a_command_with_6(tmp_path: Path) -> None:
    """One line, and no second complaint when Python ends."""
    small_run(tmp_path / "run")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command("get", "pods", "run"),
            cwd=tmp_path,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, len(done.stderr.splitlines())) == (6, 1), done.stderr
    assert "No space left" in done.stderr


def test_a_replay_whose_disk_is_full_ends_with_6_and_can_be_read(tmp_path: Path) -> None:
    """The reason is kept in its folder, and readers say it."""
    generate = ("generate", "-o", "x.ktr", "--pods", "4000", "--nodes", "30")
    reprieve(tmp_path, *generate)
    arguments = ("replay", "x.ktr", "--run", "r", "--in-process", "-q", "--spans", "off")
    done = _limited(tmp_path, arguments, 500_000)
    assert done.returncode == 6, done.stderr
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    shown, said = _read("query", tmp_path / "r", tmp_path)
    assert int(shown.split()[1]) > 0
    assert "File too large" in said


@pytest.mark.parametrize("limit", [0, 4096, 5000])
def test_a_disk_that_is_full_at_the_start_ends_a_replay_with_6(tmp_path: Path, limit: int) -> None:
    """At the lock, at the first files, at the first spans: no traceback; then it can be used."""
    generate = ("generate", "-o", "x.ktr", "--pods", "40", "--nodes", "4")
    reprieve(tmp_path, *generate)
    arguments = ("replay", "x.ktr", "--run", "r", "--in-process", "-q", "--no-report")
    done = _limited(tmp_path, arguments, limit)
    assert done.returncode == 6, done.stderr
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    begun = (
        RunDirectory.open(tmp_path / "r") if (tmp_path / "r" / "manifest.json").exists() else None
    )
    again = ("resume", "r") if begun is not None else arguments
    reprieve(tmp_path, *again)
    assert RunDirectory.open(tmp_path / "r").is_whole


# Compiled modules are files, too: Python keeps what fits of one, and cannot read it afterwards.
_LIMITED = """
import resource, runpy, signal, sys
limit = int(sys.argv.pop(1))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
runpy.run_module("replay.cli", run_name="__main__")
"""


def _limited(
    folder: Path, arguments: tuple[str, ...], limit: int
) -> subprocess.CompletedProcess[str]:
    """Run a command that may write at most `limit` bytes into a file."""
    return subprocess.run(
        [sys.executable, "-P", "-c", _LIMITED, str(limit), *arguments],
        cwd=folder,
        env={**environment(), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _described(path: Path, size: int) -> RunFile:
    return RunFile.of(path.read_bytes()[:size])


@pytest.mark.parametrize("name", _READERS)
def test_a_file_that_was_changed_before_the_last_checkpoint_is_refused(
    run: RunDirectory, name: str
) -> None:
    """And what follows the checkpoint is read as it is."""
    files = {name: _described(run.path / name, 20) for name in (DECISIONS, HISTORY)}
    run.write_resume_point(ResumePoint(version="0", command=RunCommand(), files=files))
    _read(name, run.path, run.path.parent)
    for changed in files:
        with (run.path / changed).open("r+b") as file:
            file.seek(19)
            file.write(b"\xff")
    reader, arguments = _READERS[name]
    texts = [text.replace("RUN", str(run.path)).replace("OUT", str(run.path)) for text in arguments]
    done = CliRunner().invoke(reader, texts)
    assert isinstance(done.exception, ExitError)
    assert done.exception.code == REFUSED
    assert "other bytes in its first 20 than were written" in str(done.exception)


def test_a_live_run_is_read_without_verification(run: RunDirectory) -> None:
    """Its files may be cut and written again at any moment."""
    files = {DECISIONS: RunFile(sha256="0" * 64, size=1)}
    run.write_resume_point(ResumePoint(version="0", command=RunCommand(), files=files))
    lock = RunLock.take(run.path)
    try:
        assert list(RunDirectory.open(run.path).decisions())
    finally:
        lock.release("ended")
    with pytest.raises(RunError, match="other bytes"):
        list(RunDirectory.open(run.path).decisions())
