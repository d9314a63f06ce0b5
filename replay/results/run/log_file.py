"""The log files of a run: appending to them, and reading a file that ends within a record.

A log holds lines of JSON, or zstd frames of length-delimited messages. It grows by whole writes
(services.growing_file). If a run was killed, or its disk was full, its file can end within a line
or a frame: the readers here yield the complete records before that. In a complete run, such an end
means damage, and raises an error.
"""

from __future__ import annotations

import abc
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

import zstandard
from google.protobuf import proto
from google.protobuf.message import DecodeError, Message

from replay.errors import RunError, unreadable, unwritable
from services.folder import open_file
from services.growing_file import Buffered, GrowingFile

_M = TypeVar("_M", bound=Message)
_CHUNK_BYTES = 1 << 14
_FRAME_BYTES_MAX = 1 << 30
"""Size limit for a frame that is read; a written frame has about 1 MiB, or one larger round."""


class RunLog(abc.ABC):
    """A log that is being written; a subclass appends to `_records.waiting`.

    One thread appends, any thread may flush. Methods raise OutputError if the disk is full or
    failing, and RunError for other reasons; records that were not written are kept for the next
    call.
    """

    def __init__(self, file: GrowingFile) -> None:
        self._records = Buffered[bytes](file, self._encoded)

    @abc.abstractmethod
    def _encoded(self, records: Sequence[bytes]) -> bytes:
        """Return the bytes of some records."""

    @property
    def unwritten(self) -> Buffered[bytes]:
        """Return the records that wait to be written; its `flush` raises OSError."""
        return self._records

    def flush(self) -> None:
        """Write the buffered records to the file."""
        try:
            self._records.flush()
        except OSError as error:
            raise unwritable(self._records.file.path, error) from error

    def sync(self) -> None:
        """Write the buffered records and wait until the disk has them."""
        try:
            self._records.sync()
        except OSError as error:
            raise unwritable(self._records.file.path, error) from error

    def close(self) -> None:
        """Write the records to the disk and close the file; a second call does nothing."""
        try:
            self._records.close()
        except OSError as error:
            raise unwritable(self._records.file.path, error) from error


def whole_lines(path: Path, *, is_whole: bool) -> Iterator[tuple[str, bytes]]:
    """Yield (file and line number, text) of each line.

    is_whole: whether the file is complete. An incomplete last line is skipped if not, and raises
    RunError if it is. Also raises RunError if the file cannot be read.
    """
    try:
        with open_file(path) as file:
            for number, text in enumerate(file, 1):
                where = f"{path}, line {number}"
                if not text.endswith(b"\n"):
                    if is_whole:
                        raise RunError(f"{where}: ends in the middle; {_DAMAGED}")
                    return
                yield where, text
    except OSError as error:
        raise unreadable(path, error) from error


_DAMAGED = "the file was changed after the run; `reprieve verify RUN` checks all files"


def whole_messages(path: Path, kind: type[_M], *, is_whole: bool) -> Iterator[_M]:
    """Yield the messages of a file of zstd frames in order.

    is_whole: whether the file is complete. An incomplete last frame is skipped if not, and raises
    RunError if it is. Also raises RunError if the file cannot be read.
    """
    try:
        with open_file(path) as file:
            for number, plain in enumerate(_frames(file, path, is_whole=is_whole), 1):
                stream = io.BytesIO(plain)
                try:
                    while (message := proto.parse_length_prefixed(kind, stream)) is not None:
                        yield message
                except (DecodeError, ValueError) as error:
                    problem = f"{path}, frame {number}: not a {kind.__name__}: {error}"
                    raise RunError(problem) from error
    except OSError as error:
        raise unreadable(path, error) from error


def _frames(file: BinaryIO, path: Path, *, is_whole: bool) -> Iterator[bytes]:
    """Yield each frame's content."""
    number, compressed = 1, file.read(_CHUNK_BYTES)
    while compressed:
        frame = zstandard.ZstdDecompressor().decompressobj()
        parts, size = list[bytes](), 0
        where = f"{path}, frame {number}"
        while not frame.eof:
            if not compressed and not (compressed := file.read(_CHUNK_BYTES)):
                if is_whole:
                    raise RunError(f"{where}: ends in the middle; {_DAMAGED}")
                return
            try:
                parts.append(frame.decompress(compressed))
            except zstandard.ZstdError as error:
                raise RunError(f"{where}: its compression is broken: {error}") from error
            size += len(parts[-1])
            if size > _FRAME_BYTES_MAX:
                raise RunError(f"{where}: has more than {_FRAME_BYTES_MAX:,} bytes")
            compressed = frame.unused_data
        yield b"".join(parts)
        number += 1
        compressed = compressed or file.read(_CHUNK_BYTES)
