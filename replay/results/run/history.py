"""The history file: every round that was sent to the scheduler.

Rounds are length-delimited in zstd frames of about 1 MiB of whole rounds, so that the file of a
killed run can be read up to its last frame.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import zstandard
from google.protobuf import proto
from google.protobuf.message import DecodeError

from replay.errors import RunError, TraceError
from replay.trace.files import delimited, open_plain
from reprieve.scheduler.v1beta1 import scheduler_pb2

FRAME_BYTES = 1 << 20
_LEVEL = 1


class RoundLog:
    """Writes rounds to a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self._frame = io.BytesIO()

    def write(self, round_: scheduler_pb2.Round) -> None:
        """Append a round; equal rounds give equal bytes."""
        self._frame.write(delimited(round_))
        if self._frame.tell() >= FRAME_BYTES:
            self.flush()

    def flush(self) -> None:
        """End the frame and write it to the file."""
        if self._frame.tell():
            self._file.write(self._compressor.compress(self._frame.getvalue()))
            self._frame = io.BytesIO()
        self._file.flush()

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if not self._file.closed:
            self.flush()
            self._file.close()


def read_rounds(path: Path) -> Iterator[scheduler_pb2.Round]:
    """Yield the rounds in order.

    Raises RunError where the file cannot be read or ends within a round.
    """
    try:
        with open_plain(path) as plain:
            # The stub requires a BytesIO; any reader that reads in full works.
            stream = cast("io.BytesIO", plain)
            while True:
                round_ = proto.parse_length_prefixed(scheduler_pb2.Round, stream)
                if round_ is None:
                    return
                yield round_
    except (TraceError, DecodeError, ValueError) as error:
        raise RunError(f"{path}: not a history of a run: {error}") from error


def with_responses(
    rounds: Iterable[scheduler_pb2.Round], answered: Iterator[scheduler_pb2.Round]
) -> Iterator[scheduler_pb2.Round]:
    """Yield `rounds`, the first of each moment with the extender responses of that moment.

    `answered` is in the same order; each response names its pod and attempt.
    """
    following = next(answered, None)
    for round_ in rounds:
        while following is not None and following.at_ns == round_.at_ns:
            round_.recorded.extend(following.recorded)
            following = next(answered, None)
        yield round_
