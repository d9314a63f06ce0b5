"""Files that may be compressed, opened by what they hold and not by what they are called."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import zstandard

from replay.trace.errors import TraceError

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_BROKEN = (zstandard.ZstdError, zlib.error, gzip.BadGzipFile, EOFError)


@contextmanager
def open_plain(path: Path) -> Iterator[io.BufferedReader]:
    """Open `path` for reading and take gzip or zstd off.

    Raises TraceError where the file cannot be read, or where its compression is broken.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(4)
            file.seek(0)
            with _uncompressed(file, magic) as plain:
                yield plain
    except _BROKEN as error:
        raise TraceError(str(path), f"its compression is broken: {error}") from error
    except OSError as error:
        raise TraceError(str(path), f"cannot be read: {error.strerror or error}") from error


def head(path: Path, size: int = 65536) -> bytes:
    """Return the first `size` bytes of what `path` holds, uncompressed; less of a broken file."""
    with open_plain(path) as plain:
        start = bytearray()
        try:
            while len(start) < size and (chunk := plain.read(size - len(start))):
                start += chunk
        except _BROKEN:
            pass
        return bytes(start)


def _uncompressed(file: io.BufferedReader, magic: bytes) -> io.BufferedReader:
    if magic.startswith(GZIP_MAGIC):
        return io.BufferedReader(gzip.GzipFile(fileobj=file, mode="rb"))
    if magic == ZSTD_MAGIC:
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        return io.BufferedReader(cast("io.RawIOBase", reader), 1 << 16)
    return file
