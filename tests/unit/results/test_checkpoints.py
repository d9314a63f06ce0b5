"""Checkpoints of a run: few, evenly spread, and never of a moment too late."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from replay.errors import RunError
from replay.results.run import checkpoints
from replay.results.run.checkpoints import Checkpoints, checkpoints_in, is_checkpoint, last_before
from replay.results.run.resume_point import ResumePoint, RunCommand
from services.folder import write_file

COUNT = 20
START_NS = 1_000_000


def writer_of(folder: Path, count: int = COUNT) -> Checkpoints:
    """Return a writer that continues with the checkpoints in a folder."""
    sizes = {found.path.name: found.path.stat().st_size for found in checkpoints_in(folder)}
    return Checkpoints(
        lambda name, content: write_file(folder / name, content),
        lambda name: (folder / name).unlink(),
        sizes,
        count,
    )


def taken(writer: Checkpoints, instants: range, content: bytes = b"x") -> None:
    """Simulate a run with instants a nanosecond apart, and save each checkpoint that is due."""
    for number in instants:
        at_ns = START_NS + number
        if writer.is_due(at_ns, START_NS):
            writer.save(at_ns, number, content, START_NS)


def test_a_long_run_keeps_few_checkpoints_of_all_its_parts(tmp_path: Path) -> None:
    """However long it takes; also where it is resumed on the way."""
    taken(writer_of(tmp_path), range(700))
    taken(writer_of(tmp_path), range(700, 4000))
    kept = checkpoints_in(tmp_path)
    assert COUNT // 2 < len(kept) <= COUNT
    times = [START_NS, *(checkpoint.at_ns for checkpoint in kept), START_NS + 4000]
    gaps = [late - early for early, late in pairwise(times)]
    assert max(gaps) < 3 * 4000 / COUNT


def test_a_run_with_a_count_of_0_keeps_no_checkpoints(tmp_path: Path) -> None:
    """None is due at any time."""
    taken(writer_of(tmp_path, 0), range(100))
    assert not checkpoints_in(tmp_path)


def test_large_checkpoints_are_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their bytes are bounded, and the last one stays."""
    monkeypatch.setattr(checkpoints, "BYTES_MAX", 500)
    taken(writer_of(tmp_path), range(200), bytes(100))
    kept = checkpoints_in(tmp_path)
    assert len(kept) == 5
    assert kept[-1].at_ns > START_NS + 180
    taken(writer_of(tmp_path), range(300, 301), bytes(600))
    assert [checkpoint.rounds for checkpoint in checkpoints_in(tmp_path)] == [300]


def test_the_last_checkpoint_before_a_moment_is_found(tmp_path: Path) -> None:
    """One of that very moment is too late."""
    for at_ns in (1, 2, 3):
        point = ResumePoint(version="1", command=RunCommand(), at_ns=at_ns, rounds=10 * at_ns)
        write_file(tmp_path / f"checkpoint-{10 * at_ns}-{at_ns}.zst", point.encoded())
    checkpoint = last_before(tmp_path, 3)
    assert checkpoint is not None
    assert (checkpoint.at_ns, checkpoint.rounds) == (2, 20)
    assert (checkpoint.point().at_ns, checkpoint.point().rounds) == (2, 20)
    assert last_before(tmp_path, 1) is None


def test_a_broken_checkpoint_is_refused(tmp_path: Path) -> None:
    """With its path."""
    (tmp_path / "checkpoint-1-1.zst").write_bytes(b"nothing of ours")
    checkpoint = last_before(tmp_path, 2)
    assert checkpoint is not None
    with pytest.raises(RunError, match=r"checkpoint-1-1\.zst"):
        checkpoint.scheduler()


def test_only_checkpoints_are_named_like_one() -> None:
    """A run directory may be replaced with them in it, and not with a stranger's file."""
    assert is_checkpoint("checkpoint-12-90000000000.zst")
    assert not is_checkpoint("checkpoint-12.zst")
