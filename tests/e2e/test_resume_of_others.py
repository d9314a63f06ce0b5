"""A run of a stranger: `resume` repeats its command only where the user requests it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgpack
import pytest
import zstandard

from replay.results.run.directory import RunDirectory
from replay.results.run.resume_point import RESUME, ResumePoint, RunCommand
from replay.state_codec import dump
from tests.e2e.commands import reprieve

MINE = "precious"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """Return a file of the user's, which a stranger's command names."""
    path = tmp_path / "victim"
    path.write_text(MINE)
    return path


@pytest.fixture
def run(tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the finished run of a stranger, whose command writes to the user's file."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "stranger"))
    reprieve(tmp_path, "generate", "-o", "trace.ktr", "--pods", "30", "--nodes", "5")
    options = ("-q", "--in-process", "--no-report", "--junit", str(victim))
    reprieve(tmp_path, "replay", "trace.ktr", "--run", "run", *options)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "user"))
    victim.write_text(MINE)
    return tmp_path / "run"


def _broken_off(run: Path, user: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> None:
    """Make a finished run one that has just begun, by a user and with more arguments."""
    directory = RunDirectory.open(run)
    manifest = directory.manifest()
    command = RunCommand(
        argv=(*manifest.argv, *more),
        run="run",
        folder=str(run.parent),
        environment={"REPRIEVE_MAX_DEPTH": "90"},
    )
    point = ResumePoint(version=manifest.version, command=command)
    with monkeypatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(user))
        directory.write_manifest(replace(manifest, finished=False, files={}))
        directory.write_resume_point(point)


def _refused(folder: Path, victim: Path) -> str:
    refused = reprieve(folder, "resume", "run", code=2)
    assert "run was not begun here by you" in refused.stderr
    assert "add --repeat-command" in refused.stderr
    assert victim.read_text() == MINE
    return refused.stderr


@pytest.mark.e2e
def test_the_command_of_a_strangers_finished_run_is_shown_and_not_repeated(
    run: Path, victim: Path
) -> None:
    """Its file is written once the user requests it."""
    assert "reprieve replay trace.ktr --run run" in _refused(run.parent, victim)
    reprieve(run.parent, "resume", "run", "--repeat-command")
    assert victim.read_text().startswith("<?xml")


@pytest.mark.e2e
def test_nor_is_that_of_a_strangers_run_that_broke_off(
    run: Path, victim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is shown whole: with its folder, its bounds, and without control characters."""
    log = (run / "decisions.jsonl").read_bytes()
    _broken_off(run, tmp_path / "stranger", monkeypatch, "--assert", "bound >= 0")
    shown = _refused(tmp_path, victim)
    assert f"would run in {tmp_path}: REPRIEVE_MAX_DEPTH=90 reprieve replay trace.ktr" in shown
    assert f"--junit {victim} --assert 'bound >= 0'" in shown
    _broken_off(run, tmp_path / "stranger", monkeypatch, "\x1b[2K\n")
    assert "\\x1b[2K\\x0a" in _refused(tmp_path, victim)
    _broken_off(run, tmp_path / "stranger", monkeypatch)
    reprieve(tmp_path, "resume", "run", "--repeat-command")
    assert victim.read_text().startswith("<?xml")
    assert (run / "decisions.jsonl").read_bytes() == log


@pytest.mark.e2e
def test_a_run_that_the_user_began_goes_on_without_being_asked(
    run: Path, victim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until a stranger has changed its command, although with the checksums of the change."""
    _broken_off(run, tmp_path / "user", monkeypatch)
    whole = (run / RESUME).read_bytes()
    point = ResumePoint.read(run)
    reader = msgpack.Unpacker()
    reader.feed(zstandard.ZstdDecompressor().decompress(whole))
    signed = reader.unpack()
    changed = replace(point, command=replace(point.command, argv=(*point.command.argv, "-v")))
    content = msgpack.packb(signed) + dump(ResumePoint, changed)
    (run / RESUME).write_bytes(zstandard.ZstdCompressor(write_checksum=True).compress(content))
    assert ResumePoint.read(run) == changed
    assert "its signature is not by your key" in _refused(tmp_path, victim)
    (run / RESUME).write_bytes(whole)
    reprieve(tmp_path, "resume", "run")
    assert victim.read_text().startswith("<?xml")
