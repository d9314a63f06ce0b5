"""The files of traces: compression, and the frames of the binary form.

The binary form, ".ktr", is a sequence of independent zstd frames. A frame has about 1 MiB of
records, each preceded by its length as a varint, and no record is in two frames. A reader can
therefore begin at any frame, and a writer can append frames. A complete file ends with its end: a
skippable zstd frame of 20 bytes that has the number of records. Frames with checksums were written
by a version that writes an end, so that without one the file was cut off.
"""

from __future__ import annotations

import gzip
import io
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard
from google.protobuf.message import DecodeError, Message

from replay import bounds
from replay.errors import TraceError
from replay.trace.reading import open_watched
from reprieve.trace.v1beta1.trace_pb2 import Record

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
FRAME_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 11
"""What is decompressed at once: it expands to 64 MiB at most."""
_LENGTH_SHIFT_MAX = 28
_LEVEL = 6
_END = struct.Struct("<4sI4sQ")
"""The end of a ".ktr": magic of a skippable frame, size of the rest, mark, number of records."""
_END_HEAD = (b"\x5e\x2a\x4d\x18", 12, b"end\0")
_BROKEN = (zstandard.ZstdError, zlib.error, gzip.BadGzipFile)


class CutShortError(TraceError):
    """A file ends within a value, a record or a frame, as where its writer was stopped."""


@contextmanager
def open_plain(path: Path) -> Iterator[io.BufferedReader]:
    """Open `path` for reading; gzip or zstd is removed.

    Raises TraceError if the file cannot be read, or if its compression is broken, and
    CutShortError if it ends in the middle of its compressed content.
    """
    try:
        with open_watched(path) as file:
            magic = file.read(4)
            file.seek(0)
            with _uncompressed(file, magic, str(path)) as plain:
                yield plain
    except EOFError as error:
        problem = "was cut off: its compressed content ends in the middle"
        raise CutShortError(str(path), problem) from error
    except _BROKEN as error:
        raise TraceError(str(path), f"its compression is broken: {error}") from error
    except OSError as error:
        raise TraceError(str(path), f"cannot be read: {error.strerror or error}") from error


def head(path: Path, size: int = 65536) -> bytes:
    """Return the first `size` uncompressed bytes of a file; fewer of a broken file."""
    with open_plain(path) as plain:
        start = bytearray()
        try:
            while len(start) < size and (chunk := plain.read1(size - len(start))):
                start += chunk
        except (*_BROKEN, EOFError):
            pass
        return bytes(start)


def _uncompressed(file: BinaryIO, magic: bytes, name: str) -> io.BufferedReader:
    if magic.startswith(GZIP_MAGIC):
        reader: Any = gzip.GzipFile(fileobj=file, mode="rb")
    elif magic == ZSTD_MAGIC:
        reader = _ZstdReader(file)
    else:
        return cast("io.BufferedReader", file)
    return io.BufferedReader(bounds.PlainReader(reader, file, name), 1 << 16)


class _ZstdReader:
    """Reads the content of zstd frames. Raises EOFError if a frame is not complete."""

    def __init__(self, file: BinaryIO) -> None:
        self._pieces = _pieces(file)
        self._rest = memoryview(b"")

    def read1(self, size: int) -> bytes:
        """Return up to `size` bytes, b"" at the end."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = memoryview(piece[0])
        data, self._rest = bytes(self._rest[:size]), self._rest[size:]
        return data


def _pieces(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """Yield the content of zstd frames in pieces, and whether a piece is the last of its frame.

    A skippable frame is an empty piece. Raises EOFError if a frame is not complete.
    """
    compressed = file.read(_CHUNK_BYTES)
    while compressed:
        frame = zstandard.ZstdDecompressor().decompressobj()
        while not frame.eof:
            if not compressed and not (compressed := file.read(_CHUNK_BYTES)):
                raise EOFError
            plain = frame.decompress(compressed)
            compressed = frame.unused_data
            yield plain, frame.eof
        compressed = compressed or file.read(_CHUNK_BYTES)


def read_frames(file: BinaryIO, name: str) -> Iterator[tuple[str, Record]]:
    """Yield each record with file and frame. Memory is bounded by the largest record.

    Raises TraceError, and CutShortError if the file ends too early, after the last record.
    """
    state = end_of(file)
    number, total, expanded = 1, 0, 0
    rest, count, where = bytearray(), 0, f"{name}, frame 1"
    try:
        for plain, is_last in _pieces(file):
            rest += plain
            expanded += len(plain)
            bounds.check_expansion(expanded, file.tell(), where)
            at = 0
            with memoryview(rest) as view:
                for start, at in _spans(rest, where):
                    count += 1
                    try:
                        record = Record.FromString(cast("bytes", view[start:at]))
                    except DecodeError as error:
                        problem = "is not a record of a trace"
                        raise TraceError(f"{where}, record {count}", problem) from error
                    yield where, record
            del rest[:at]
            if is_last:
                if rest:
                    raise TraceError(where, f"ends in the middle of record {count + 1}")
                number, total, count = number + 1, total + count, 0
                where = f"{name}, frame {number}"
    except zstandard.ZstdError as error:
        raise TraceError(where, f"is not a zstd frame: {error}") from error
    except EOFError as error:
        raise CutShortError(where, "was cut off in the middle of the frame") from error
    if state.is_cut_off:
        raise CutShortError(name, f"was cut off after record {total}: it has no end")
    if state.records is not None and state.records != total:
        raise TraceError(name, f"has {total} records, and {state.records} when it was written")


@dataclass(frozen=True, slots=True)
class End:
    """The end of a ".ktr": the number of its records; None if the end is missing."""

    records: int | None
    has_checksums: bool

    @property
    def is_cut_off(self) -> bool:
        """Return whether the file was written with an end, which is missing."""
        return self.records is None and self.has_checksums


def end_of(file: BinaryIO) -> End:
    """Return how a ".ktr" ends; `file` is then at its start."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _END.size))
    last = file.read(_END.size)
    file.seek(0)
    *head, records = _END.unpack(last) if len(last) == _END.size else (b"", 0, b"", 0)
    try:
        has_checksums = zstandard.get_frame_parameters(file.read(18)).has_checksum
    except zstandard.ZstdError:
        has_checksums = False
    file.seek(0)
    return End(records if tuple(head) == _END_HEAD else None, has_checksums)


def end(records: int) -> bytes:
    """Return the end of a ".ktr" of so many records."""
    return _END.pack(*_END_HEAD, records)


def delimited(message: Message) -> bytes:
    """Return the message after its length; equal messages give equal bytes."""
    encoded = message.SerializeToString(deterministic=True)
    size, prefix = len(encoded), bytearray()
    while size > 0x7F:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    prefix.append(size)
    return bytes(prefix) + encoded


def frame(records: bytes) -> bytes:
    """Return delimited records as one zstd frame, with the checksum that a reader verifies."""
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(records)


def starts_like_records(plain: bytes) -> bool:
    """Return whether uncompressed bytes begin with a length and a record of a trace.

    A record begins with the tag of at_ns, sequence or header; JSON has a quote, a bracket or a
    space at that place.
    """
    size = next((at for at, byte in enumerate(plain[:5], 1) if byte < 0x80), 0)
    return 0 < size < len(plain) and plain[size] in (0x08, 0x10, 0x1A)


def _spans(data: bytearray, where: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each complete record, by the varint before it.

    A record is bounded as a line of the text form is.
    """
    at, end, largest = 0, len(data), bounds.bounds().line_bytes
    while at < end:
        size, shift = data[at], 0
        at += 1
        while size >> shift >= 0x80 and shift < _LENGTH_SHIFT_MAX:
            if at == end:
                return
            shift += 7
            size = size & (1 << shift) - 1 | data[at] << shift
            at += 1
        if size > largest:
            bounds.check_line(size, where, "a record")
        if at + size > end:
            return
        yield at, at + size
        at += size
