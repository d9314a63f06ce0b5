"""Checkpoints of a run: few, evenly spread, and never of a moment too late."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from replay.errors import RunError
from replay.results.run.history import (
    EVERY_NS,
    KEPT_MAX,
    Checkpoints,
    checkpoints_in,
    is_checkpoint,
    last_before,
)
from reprieve.session.v1beta1 import session_pb2
from services.folder import write_file


def taken(folder: Path, instants: int) -> None:
    """Let a run take so many instants, each as long as the wait for a checkpoint."""
    now_ns = [0]
    writer = Checkpoints(
        lambda name, content: write_file(folder / name, content),
        lambda name: (folder / name).unlink(),
        clock=lambda: now_ns[0],
    )
    for at_ns in range(instants):
        now_ns[0] += EVERY_NS
        if writer.is_due:
            chunks = [session_pb2.CheckpointChunk(data=bytes([n])) for n in (at_ns % 256, 7)]
            writer.save(at_ns, at_ns, chunks)


def test_a_long_run_keeps_few_checkpoints_of_all_its_parts(tmp_path: Path) -> None:
    """Every second one goes when there are too many, and the wait doubles."""
    taken(tmp_path, 400)
    found = checkpoints_in(tmp_path)
    assert KEPT_MAX // 2 <= len(found) <= KEPT_MAX
    gaps = [late.at_ns - early.at_ns for early, late in pairwise(found)]
    assert max(gaps) <= 2 * min(gaps)
    assert found[-1].at_ns > 350


def test_the_last_checkpoint_before_a_moment_is_found(tmp_path: Path) -> None:
    """One of that very moment is too late."""
    taken(tmp_path, 5)
    found = last_before(tmp_path, 3)
    assert found is not None
    assert found.at_ns == 2
    assert [chunk.data[0] for chunk in found.chunks()] == [found.rounds, 7]
    assert last_before(tmp_path, 0) is None


def test_a_broken_checkpoint_is_refused(tmp_path: Path) -> None:
    """With its path."""
    (tmp_path / "checkpoint-1-1.zst").write_bytes(b"nothing of ours")
    found = last_before(tmp_path, 2)
    assert found is not None
    with pytest.raises(RunError, match=r"checkpoint-1-1\.zst"):
        list(found.chunks())


def test_only_checkpoints_are_named_like_one() -> None:
    """A run directory may be replaced with them in it, and not with a stranger's file."""
    assert is_checkpoint("checkpoint-12-90000000000.zst")
    assert not is_checkpoint("checkpoint-12.zst")
