"""A run's rounds as the scheduler received them, and the scheduler's checkpoints between them.

Rounds are length-delimited in zstd frames of at most about 1 MiB of whole rounds. A frame ends when
it is full and each time that the log is flushed, so that the file of a killed run can be read up to
its last frame. Equal rounds are equal bytes in a frame; where frames end depends on wall time.

`explain` replays a late decision from the last checkpoint before it. Checkpoints are taken between
instants, ten seconds of wall time or more after the last one. When there are more than KEPT_MAX,
every second one is removed and the interval doubles, so that a run of any length keeps few, evenly
spaced. They influence no decision.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import cast

import zstandard
from google.protobuf import proto
from google.protobuf.message import DecodeError

from replay.errors import RunError, TraceError
from replay.results.run.log_file import RunLog, whole_messages
from replay.trace.files import delimited, open_plain
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.session.v1beta1 import session_pb2
from services.growing_file import GrowingFile

FRAME_BYTES = 1 << 20
_LEVEL = 1


class RoundLog(RunLog):
    """Writes rounds to a file."""

    def __init__(self, file: GrowingFile) -> None:
        super().__init__(file)
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
        self._rounds = self._records.waiting
        self._bytes = 0

    def write(self, round_: scheduler_pb2.Round) -> None:
        """Append a round; equal rounds give equal bytes."""
        encoded = delimited(round_)
        self._rounds.append(encoded)
        self._bytes += len(encoded)
        if self._bytes >= FRAME_BYTES:
            self.flush()

    def _encoded(self, records: Sequence[bytes]) -> bytes:
        self._bytes = 0
        return self._compressor.compress(b"".join(records))


def read_rounds(path: Path, *, is_whole: bool = True) -> Iterator[scheduler_pb2.Round]:
    """Yield the rounds in order.

    is_whole: whether the file was written to its end; otherwise a cut last frame is left out.
    Raises RunError if the file cannot be read, and if a whole one ends within a round.
    """
    return whole_messages(path, scheduler_pb2.Round, is_whole=is_whole)


def with_responses(
    rounds: Iterable[scheduler_pb2.Round], answered: Iterator[scheduler_pb2.Round]
) -> Iterator[scheduler_pb2.Round]:
    """Yield `rounds`, the first of each moment with the extender responses of that moment.

    `answered` is in the same order; each response names its pod and attempt.
    """
    following = next(answered, None)
    for round_ in rounds:
        while following is not None and following.time_ns == round_.time_ns:
            round_.recorded.extend(following.recorded)
            following = next(answered, None)
        yield round_


EVERY_NS = 10_000_000_000
KEPT_MAX = 24
_NAME = re.compile(r"checkpoint-(\d+)-(\d+)\.zst")


@dataclass(frozen=True, slots=True, order=True)
class Checkpoint:
    """A scheduler's state after the first `rounds` rounds of the history, the last at `at_ns`."""

    rounds: int
    at_ns: int
    path: Path

    def chunks(self) -> Iterator[session_pb2.CheckpointChunk]:
        """Yield its content. Raises RunError if the file is damaged."""
        try:
            with open_plain(self.path) as plain:
                # The stub requires a BytesIO; any reader that reads in full works.
                stream = cast("io.BytesIO", plain)
                while chunk := proto.parse_length_prefixed(session_pb2.CheckpointChunk, stream):
                    yield chunk
        except (TraceError, DecodeError, ValueError) as error:
            raise RunError(f"{self.path}: not a checkpoint: {error}") from error


class Checkpoints:
    """Writes a run's checkpoints; `clock` returns ns of wall time.

    write, remove: do so with a file of the run. kept: the names of those that the run has.
    """

    def __init__(
        self,
        write: Callable[[str, bytes], None],
        remove: Callable[[str], None],
        kept: Iterable[str] = (),
        clock: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self._write = write
        self._remove = remove
        self._clock = clock
        self._last_ns = clock()
        self._every_ns = EVERY_NS
        self._kept = sorted(kept, key=lambda name: _place(name) or (0, 0))

    @property
    def is_due(self) -> bool:
        """Return whether another one should be taken."""
        return self._clock() - self._last_ns >= self._every_ns

    def save(self, at_ns: int, rounds: int, chunks: Iterable[session_pb2.CheckpointChunk]) -> None:
        """Save the scheduler's state after `rounds` rounds, at `at_ns`. Raises OutputError."""
        name = f"checkpoint-{rounds}-{at_ns}.zst"
        content = b"".join(delimited(chunk) for chunk in chunks)
        self._write(name, zstandard.ZstdCompressor(write_checksum=True).compress(content))
        self._kept.append(name)
        if len(self._kept) > KEPT_MAX:
            for checkpoint in self._kept[::2]:
                self._remove(checkpoint)
            self._kept = self._kept[1::2]
            self._every_ns *= 2
        self._last_ns = self._clock()


def is_checkpoint(name: str) -> bool:
    """Return whether a file name is a checkpoint's."""
    return _place(name) is not None


def checkpoints_in(folder: Path) -> Sequence[Checkpoint]:
    """Return the checkpoints of a run, the earliest first."""
    places = ((_place(path.name), path) for path in folder.iterdir())
    return sorted(Checkpoint(*place, path) for place, path in places if place is not None)


def _place(name: str) -> tuple[int, int] | None:
    """Return the rounds and the time in a checkpoint's file name; None for another name."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def last_before(folder: Path, at_ns: int) -> Checkpoint | None:
    """Return the latest checkpoint before `at_ns`, None without any."""
    return max(
        (checkpoint for checkpoint in checkpoints_in(folder) if checkpoint.at_ns < at_ns),
        default=None,
    )
