"""The checkpoints that a run keeps: its whole state at some moments, for forks and for `explain`.

A checkpoint is a file like resume.zst. It is written between two instants, after the disk has all
the records that it refers to. A run keeps at most `count` checkpoints, whatever its length, spread
evenly over simulated time: the next one is due 1/count of the simulated time so far after the last
one, and a surplus removes the checkpoint whose neighbours are closest to each other. Checkpoints
influence no decision.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from replay.results.run.resume_point import ResumePoint, unpacked
from reprieve.session.v1beta1 import session_pb2

BYTES_MAX = 1 << 28
"""Limit for the bytes of all checkpoints together; the last one is kept even if it exceeds this."""
_NAME = re.compile(r"checkpoint-(\d+)-(\d+)\.zst")


@dataclass(frozen=True, slots=True, order=True)
class Checkpoint:
    """A run's state after the first `rounds` rounds of the history, at `at_ns`."""

    rounds: int
    at_ns: int
    path: Path

    def point(self) -> ResumePoint:
        """Read the file. Raises RunError if it is damaged, or in another version's format."""
        return ResumePoint.read_file(self.path)

    def scheduler(self) -> Sequence[session_pb2.CheckpointChunk]:
        """Return the scheduler's state. Raises as `point` does."""
        return unpacked(self.point().scheduler)


class Checkpoints:
    """Writes a run's checkpoints, `count` of them at most.

    write, remove: write or remove a file of the run. kept: sizes of existing checkpoints by name.
    """

    def __init__(
        self,
        write: Callable[[str, bytes], None],
        remove: Callable[[str], None],
        kept: Mapping[str, int],
        count: int,
    ) -> None:
        self._write = write
        self._remove = remove
        self._count = count
        self._sizes = {
            name: kept[name] for name in sorted(kept, key=lambda name: _place(name) or (0, 0))
        }

    def is_due(self, at_ns: int, start_ns: int) -> bool:
        """Return whether `at_ns` is far enough from the last one; the run begins at `start_ns`."""
        if not self._count:
            return False
        last_ns = _at_ns(next(reversed(self._sizes))) if self._sizes else start_ns
        return at_ns - last_ns >= max(1, (at_ns - start_ns) // self._count)

    def save(self, at_ns: int, rounds: int, content: bytes, start_ns: int) -> None:
        """Keep the state after `rounds` rounds, at `at_ns`. Raises OutputError and RunError."""
        name = f"checkpoint-{rounds}-{at_ns}.zst"
        self._write(name, content)
        self._sizes[name] = len(content)
        while len(self._sizes) > 1 and (
            len(self._sizes) > self._count or sum(self._sizes.values()) > BYTES_MAX
        ):
            # The last checkpoint stays, because is_due measures from it.
            surplus = _most_crowded(list(self._sizes), start_ns)
            self._remove(surplus)
            del self._sizes[surplus]


def _most_crowded(names: Sequence[str], start_ns: int) -> str:
    """Return the checkpoint, except the last, with the smallest time between its neighbours."""
    times = [start_ns, *map(_at_ns, names)]
    gaps = {name: times[place + 2] - times[place] for place, name in enumerate(names[:-1])}
    return min(gaps, key=lambda name: gaps[name])


def is_checkpoint(name: str) -> bool:
    """Return whether a file name is a checkpoint's."""
    return _place(name) is not None


def checkpoints_in(folder: Path) -> Sequence[Checkpoint]:
    """Return the checkpoints of a run, the earliest first."""
    return sorted(_found(folder))


def last_before(folder: Path, at_ns: int) -> Checkpoint | None:
    """Return the latest checkpoint before `at_ns`, None without any."""
    before = (checkpoint for checkpoint in _found(folder) if checkpoint.at_ns < at_ns)
    return max(before, default=None)


def _found(folder: Path) -> Iterator[Checkpoint]:
    for path in folder.iterdir():
        place = _place(path.name)
        if place is not None:
            yield Checkpoint(*place, path)


def _at_ns(name: str) -> int:
    _, at_ns = _place(name) or (0, 0)
    return at_ns


def _place(name: str) -> tuple[int, int] | None:
    """Return the rounds and the time in a checkpoint's file name; None for another name."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None
