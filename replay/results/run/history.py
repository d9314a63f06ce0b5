"""A run's rounds as the scheduler received them.

Rounds are length-delimited in zstd frames of at most about 1 MiB of whole rounds. A frame ends when
it is full and when the log is flushed, so the file of a killed run can be read up to its last
frame. Equal rounds are equal bytes in a frame; where a frame ends depends on wall time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import zstandard

from replay.results.run.log_file import RunLog, whole_messages
from replay.trace.files import delimited
from reprieve.scheduler.v1beta1 import scheduler_pb2
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

    is_whole: whether the file is complete. An incomplete last frame is skipped if not, and raises
    RunError if it is. Also raises RunError if the file cannot be read.
    """
    return whole_messages(path, scheduler_pb2.Round, is_whole=is_whole)


def with_responses(
    rounds: Iterable[scheduler_pb2.Round], answered: Iterator[scheduler_pb2.Round]
) -> Iterator[scheduler_pb2.Round]:
    """Yield `rounds`; the first round of each moment gets that moment's extender responses.

    `answered` is in the same order; each response names its pod and attempt.
    """
    following = next(answered, None)
    for round_ in rounds:
        while following is not None and following.time_ns == round_.time_ns:
            round_.recorded.extend(following.recorded)
            following = next(answered, None)
        yield round_
