"""Reading the native trace, in its binary and its text form."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from replay.trace.compression import ZSTD_MAGIC, head, open_plain
from replay.trace.errors import TraceError
from replay.trace.frames import read_frames, starts_like_records
from replay.trace.lines import read_lines
from replay.trace.order import OrderCheck
from reprieve.trace.v1alpha1.trace_pb2 import Record

_SNIFFED_BYTES = 4096
_Reading = Callable[[BinaryIO, str], Iterator[tuple[str, Record]]]


def read(path: str | os.PathLike[str]) -> Iterator[Record]:
    """Yield the trace's records in order, the header first. Memory is bounded.

    The form is known by content: ".ktr", or JSON lines as they are, with gzip or with zstd.
    Raises TraceError where the file is not a trace or is broken, with frame or line.
    """
    file_path = Path(path)
    start = head(file_path, _SNIFFED_BYTES)
    if is_binary(file_path, start):
        with _opened(file_path) as file:
            yield from _checked(file, file_path, read_frames)
    elif is_text(start):
        with open_plain(file_path) as file:
            yield from _checked(file, file_path, read_lines)
    else:
        raise TraceError(str(file_path), "is neither a .ktr nor a .jsonl trace")


def is_binary(path: Path, start: bytes) -> bool:
    """Tell whether a file, whose content begins with `start`, is a ".ktr"."""
    with _opened(path) as file:
        return file.read(4) == ZSTD_MAGIC and starts_like_records(start)


def is_text(start: bytes) -> bool:
    """Tell whether content that begins with `start` is a trace in JSON lines."""
    first = start.lstrip().partition(b"\n")[0]
    return first.startswith(b"{") and b'"header"' in first and b'"sequence"' in first


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise TraceError(str(path), f"cannot be read: {error.strerror or error}") from error


def _checked(file: BinaryIO, path: Path, reading: _Reading) -> Iterator[Record]:
    check = OrderCheck()
    for where, record in reading(file, str(path)):
        if problem := check.problem(record):
            raise TraceError(f"{where}, record {record.sequence}", problem)
        yield record
    if missing := check.missing():
        raise TraceError(str(path), missing)
