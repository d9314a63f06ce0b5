"""The files of traces: compression, and the frames of the binary form.

The binary form, ".ktr", is a sequence of independent zstd frames. A frame has about 1 MiB of
records, each preceded by its length as a varint, and no record is in two frames. A reader can
therefore begin at any frame, and a writer can append frames.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import zstandard
from google.protobuf.message import DecodeError, Message

from replay import bounds
from replay.errors import TraceError
from reprieve.trace.v1beta1.trace_pb2 import Record

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
FRAME_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 13
_RECORD_BYTES_MAX = 1 << 28
_LEVEL = 6
_BROKEN = (zstandard.ZstdError, zlib.error, gzip.BadGzipFile, EOFError)


@contextmanager
def open_plain(path: Path) -> Iterator[io.BufferedReader]:
    """Open `path` for reading; gzip or zstd is removed.

    Raises TraceError where the file cannot be read, or where its compression is broken.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(4)
            file.seek(0)
            with _uncompressed(file, magic, str(path)) as plain:
                yield plain
    except _BROKEN as error:
        raise TraceError(str(path), f"its compression is broken: {error}") from error
    except OSError as error:
        raise TraceError(str(path), f"cannot be read: {error.strerror or error}") from error


def head(path: Path, size: int = 65536) -> bytes:
    """Return the first `size` uncompressed bytes of a file; fewer of a broken file."""
    with open_plain(path) as plain:
        start = bytearray()
        try:
            while len(start) < size and (chunk := plain.read(size - len(start))):
                start += chunk
        except _BROKEN:
            pass
        return bytes(start)


def _uncompressed(file: io.BufferedReader, magic: bytes, name: str) -> io.BufferedReader:
    if magic.startswith(GZIP_MAGIC):
        reader: Any = gzip.GzipFile(fileobj=file, mode="rb")
    elif magic == ZSTD_MAGIC:
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    else:
        return file
    return io.BufferedReader(bounds.PlainReader(reader, file, name), 1 << 16)


def read_frames(file: BinaryIO, name: str) -> Iterator[tuple[str, Record]]:
    """Yield each record with file and frame. Memory is bounded by the largest record."""
    number, compressed = 1, file.read(_CHUNK_BYTES)
    while compressed:
        frame = zstandard.ZstdDecompressor().decompressobj()
        rest, count, where = b"", 0, f"{name}, frame {number}"
        while not frame.eof:
            if not compressed and not (compressed := file.read(_CHUNK_BYTES)):
                raise TraceError(where, "ends in the middle")
            try:
                plain = rest + frame.decompress(compressed)
            except zstandard.ZstdError as error:
                raise TraceError(where, f"is not a zstd frame: {error}") from error
            compressed = frame.unused_data
            at = 0
            for start, at in _spans(plain, where):
                count += 1
                try:
                    record = Record.FromString(plain[start:at])
                except DecodeError as error:
                    problem = "is not a record of a trace"
                    raise TraceError(f"{where}, record {count}", problem) from error
                yield where, record
            rest = plain[at:]
        if rest:
            raise TraceError(where, f"ends in the middle of record {count + 1}")
        number += 1
        compressed = compressed or file.read(_CHUNK_BYTES)


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


def _spans(data: bytes, where: str) -> list[tuple[int, int]]:
    """Return start and end of each complete record, by the varint before it."""
    spans, at, end = list[tuple[int, int]](), 0, len(data)
    while at < end:
        size, shift = data[at], 0
        at += 1
        while size >> shift >= 0x80 and shift < 28:
            if at == end:
                return spans
            shift += 7
            size = size & (1 << shift) - 1 | data[at] << shift
            at += 1
        if size >> shift >= 0x80 or size > _RECORD_BYTES_MAX:
            problem = f"a record's length is out of range (at most {_RECORD_BYTES_MAX})"
            raise TraceError(where, problem)
        if at + size > end:
            break
        spans.append((at, at := at + size))
    return spans
