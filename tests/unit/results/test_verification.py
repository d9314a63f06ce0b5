"""`reprieve verify`: files that are those of the run's end, and those that are not."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from replay.cli.commands.verify import command
from replay.cli.errors import DIFFERS, ExitError
from replay.report.page import write_report
from replay.results.run.directory import RunDirectory
from replay.results.run.files import DECISIONS, EXTENDERS, HISTORY, LATENCIES, REPORT, SUMMARY
from replay.results.run.manifest import Manifest, RunFile, trace_files
from replay.results.run.resume_point import RESUME, ResumePoint, RunCommand
from replay.results.run.verification import verify
from replay.results.schema import FILE_NAMES
from services.folder import Folder
from tests.unit.results.small_run import small_run

_WRITTEN = (DECISIONS, HISTORY, SUMMARY, LATENCIES)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Return a run of one trace, whose manifest has digests."""
    trace = tmp_path / "trace.jsonl"
    trace.write_text("{}\n")
    run = small_run(tmp_path / "run")
    manifest = Manifest(version="0", seed=7, rules="v1.34", traces=trace_files([trace]))
    run.write_manifest(manifest.ended("over"))
    return run


def _verdicts(run: RunDirectory) -> dict[str, str]:
    return {Path(issue.path).name: issue.verdict for issue in verify(run)}


def test_every_file_of_a_run_and_its_traces_are_ok(run: RunDirectory) -> None:
    """So are tables and report; an export is not part."""
    write_report(run)
    (run.path / "mine.json").write_text("an export")
    names = (*_WRITTEN, *FILE_NAMES, REPORT, "trace.jsonl")
    assert _verdicts(run) == dict.fromkeys(names, "ok")
    assert CliRunner().invoke(command, [str(run.path)]).exit_code == 0


@pytest.mark.parametrize("name", [*_WRITTEN, "../trace.jsonl"])
def test_one_bit_is_a_change(run: RunDirectory, name: str) -> None:
    """Also where the size is the same."""
    path = run.path / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    verdicts = _verdicts(run)
    assert verdicts.pop(path.name) == "changed"
    assert set(verdicts.values()) == {"ok"}


def test_the_last_checkpoint_of_a_run_that_broke_off_is_checked(run: RunDirectory) -> None:
    """By its own checksum; a run that has its end has none."""
    path = run.path / RESUME
    run.write_manifest(Manifest(version="0", seed=7, rules="v1.34", traces=()))
    run.write_resume_point(ResumePoint(version="0", command=RunCommand(), world=bytes(5000)))
    assert _verdicts(run)[RESUME] == "ok"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert _verdicts(run)[RESUME] == "changed"


def test_a_run_that_broke_off_is_checked_by_those_who_may_only_read_it(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is opened for nothing else."""
    files = {DECISIONS: RunFile.of((run.path / DECISIONS).read_bytes()[:9])}
    run.write_manifest(Manifest(version="0", seed=7, rules="v1.34", traces=()))
    run.write_resume_point(ResumePoint(version="0", command=RunCommand(), files=files))
    opened = Folder.open

    def read_only(folder: Folder, name: str, flags: int = os.O_RDONLY) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(errno.EACCES, "Permission denied", name)
        return opened(folder, name, flags)

    monkeypatch.setattr(Folder, "open", read_only)
    assert _verdicts(run)[DECISIONS] == "unchecked"


def test_missing_extra_and_gone_files_are_named(run: RunDirectory) -> None:
    """A trace may go, for nothing reads it any more."""
    (run.path / SUMMARY).unlink()
    (run.path / EXTENDERS).write_bytes(b"")
    (run.path / "checkpoint-3-9.zst").write_bytes(b"")
    (run.path.parent / "trace.jsonl").unlink()
    verdicts = _verdicts(run)
    assert verdicts[SUMMARY] == "missing"
    assert verdicts[EXTENDERS] == verdicts["checkpoint-3-9.zst"] == "extra"
    assert verdicts["trace.jsonl"] == "gone"


def test_a_run_that_broke_off_is_unchecked(tmp_path: Path) -> None:
    """It has no digests, and the reason is its state."""
    run = RunDirectory.create(tmp_path / "run")
    run.write_manifest(Manifest(version="0", seed=7, rules="v1.34", traces=()))
    run.decision_log().close()
    run.end()
    (verification,) = verify(run)
    assert (verification.verdict, "broke off" in verification.problem) == ("unchecked", True)


def test_the_command_ends_with_1_where_a_file_is_not_ok(run: RunDirectory) -> None:
    """JSON has each file with verdict and reason."""
    (run.path / DECISIONS).write_bytes(b"")
    done = CliRunner().invoke(command, [str(run.path), "-o", "json"])
    assert isinstance(done.exception, ExitError)
    assert done.exception.code == DIFFERS
    found = {Path(load["path"]).name: load for load in json.loads(done.stdout)}
    assert found[DECISIONS]["verdict"] == "changed"
    assert "0 bytes" in found[DECISIONS]["problem"]
    assert found[SUMMARY] == {"path": str(run.path / SUMMARY), "verdict": "ok", "problem": ""}
