"""The text form, ".jsonl": one record a line, as proto3 JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import orjson
from google.protobuf import json_format

from replay.trace.errors import TraceError
from reprieve.trace.v1alpha1.trace_pb2 import Record


def read_lines(file: BinaryIO, name: str) -> Iterator[tuple[str, Record]]:
    """Yield each record with where it stands; empty lines are skipped."""
    for number, line in enumerate(file, 1):
        if line.isspace():
            continue
        where = f"{name}, line {number}"
        try:
            yield where, json_format.ParseDict(orjson.loads(line), Record())
        except (orjson.JSONDecodeError, json_format.ParseError) as error:
            raise TraceError(where, str(error)) from error


def line(record: Record) -> bytes:
    """Return the record as a line with its end: equal records give equal lines."""
    plain = json_format.MessageToDict(record)
    return orjson.dumps(plain, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
