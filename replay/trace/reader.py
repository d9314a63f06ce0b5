"""Reading the native trace, in its binary and its text form."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import orjson
from google.protobuf import json_format

from replay.trace import format1
from replay.trace.compression import ZSTD_MAGIC, head, open_plain
from replay.trace.errors import TraceError
from replay.trace.frames import read_frames, starts_like_records
from reprieve.trace.v1beta1.trace_pb2 import Record

_SNIFFED_BYTES = 4096
_Reading = Callable[[BinaryIO, str], Iterator[tuple[str, Record]]]
FORMAT_VERSION = 2


def read(path: str | os.PathLike[str], *, former: bool = True) -> Iterator[Record]:
    """Yield the trace's records in order, the header first. Memory is bounded.

    The form is known by content: ".ktr", or JSON lines as they are, with gzip or with zstd. A trace
    of format 1 is converted, or refused unless `former`.
    Raises TraceError where the file is not a trace or is broken, with frame or line.
    """
    file_path = Path(path)
    start = head(file_path, _SNIFFED_BYTES)
    if is_binary(file_path, start):
        with _opened(file_path) as file:
            yield from _checked(file, file_path, read_frames, former)
    elif is_text(start):
        with open_plain(file_path) as file:
            yield from _checked(file, file_path, read_lines, former)
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


def _checked(file: BinaryIO, path: Path, reading: _Reading, former: bool) -> Iterator[Record]:
    check, converts = OrderCheck(), False
    for where, record in reading(file, str(path)):
        if record.HasField("header"):
            converts = record.header.format_version == format1.VERSION
        if converts and former:
            format1.convert(record, is_text=reading is read_lines)
        if problem := check.problem(record):
            raise TraceError(f"{where}, record {record.sequence}", problem)
        yield record
    if missing := check.missing():
        raise TraceError(str(path), missing)


def read_lines(file: BinaryIO, name: str) -> Iterator[tuple[str, Record]]:
    """Yield each record with where it stands; empty lines are skipped."""
    converts = False
    for number, line in enumerate(file, 1):
        if line.isspace():
            continue
        where = f"{name}, line {number}"
        try:
            plain = orjson.loads(line)
            converts = converts or format1.is_begun(plain)
            record = json_format.ParseDict(format1.text(plain) if converts else plain, Record())
            yield where, record
        except (orjson.JSONDecodeError, json_format.ParseError) as error:
            raise TraceError(where, str(error)) from error


def line(record: Record) -> bytes:
    """Return the record as a line with its end: equal records give equal lines."""
    plain = json_format.MessageToDict(record)
    return orjson.dumps(plain, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


class OrderCheck:
    """Header first, (at_ns, sequence) rising, as many records as counted: for reader and writer."""

    def __init__(self) -> None:
        self._at_ns = 0
        self._sequence = 0
        self._expected: dict[str, int] = {}
        self._counts: Counter[str] = Counter()

    def problem(self, record: Record) -> str:
        """Return what is wrong with the next record, "" for nothing."""
        kind, at_ns, sequence = record.WhichOneof("record"), record.at_ns, record.sequence
        wrong = ""
        if self._sequence == 0:
            wrong = self._first(record, kind)
        elif kind == "header":
            wrong = "a second header"
        elif sequence <= self._sequence:
            wrong = f"sequence {sequence} follows {self._sequence}"
        elif at_ns < self._at_ns:
            wrong = f"at_ns {at_ns} follows {self._at_ns}"
        self._at_ns, self._sequence = at_ns, sequence
        if self._expected:
            self._counts[kind or "unknown"] += 1
        return wrong

    def missing(self) -> str:
        """Return what is missing at the end, "" for nothing."""
        if self._sequence == 0:
            return "no header: the trace is empty"
        for kind, expected in sorted(self._expected.items()):
            if self._counts[kind] != expected:
                return f"{self._counts[kind]} records of kind {kind}, the header counts {expected}"
        return ""

    def _first(self, record: Record, kind: str | None) -> str:
        if kind != "header":
            return f"the first record is a header, not {kind or 'of an unknown kind'}"
        if record.sequence < 1:
            return "sequence begins at 1"
        if record.header.format_version != FORMAT_VERSION:
            return (
                f"format_version {record.header.format_version}; this version reads "
                f"{FORMAT_VERSION}"
            )
        self._expected = dict(record.header.counts)
        return ""
