"""Checkpoints of a run: few, evenly spread, and never of a moment too late."""

from __future__ import annotations

from collections.abc import Sequence
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


class Session:
    """A session whose number of rounds grows at each read; saving it takes `takes_ns`."""

    def __init__(self, takes_ns: int = 0) -> None:
        self.sent = 0
        self.takes_ns = takes_ns
        self.now_ns = 0

    @property
    def rounds(self) -> int:
        """Count up."""
        self.sent += 1
        return self.sent

    def checkpoint(self) -> Sequence[session_pb2.CheckpointChunk]:
        """Return two chunks."""
        self.now_ns += self.takes_ns
        return [session_pb2.CheckpointChunk(data=bytes([n])) for n in (self.sent % 256, 7)]


def taken(folder: Path, instants: int, takes_ns: int = 0) -> None:
    """Let a run take so many instants, each as long as the wait for a checkpoint."""
    session = Session(takes_ns)
    writer = Checkpoints(folder, session, clock=lambda: session.now_ns)
    for at_ns in range(instants):
        session.now_ns += EVERY_NS
        if writer.is_due:
            writer.save(at_ns)


def test_a_long_run_keeps_few_checkpoints_of_all_its_parts(tmp_path: Path) -> None:
    """Every second one goes when there are too many, and the wait doubles."""
    taken(tmp_path, 400)
    found = checkpoints_in(tmp_path)
    assert KEPT_MAX // 2 <= len(found) <= KEPT_MAX
    gaps = [late.at_ns - early.at_ns for early, late in pairwise(found)]
    assert max(gaps) <= 2 * min(gaps)
    assert found[-1].at_ns > 350


def test_checkpoints_that_take_long_are_taken_seldom(tmp_path: Path) -> None:
    """They take a fiftieth of a run at the most."""
    taken(tmp_path, 400, takes_ns=2 * EVERY_NS)
    found = checkpoints_in(tmp_path)
    assert [late.at_ns - early.at_ns for early, late in pairwise(found)] == [100, 100, 100]


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
