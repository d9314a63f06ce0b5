"""The JSON values of a stream: one a line, pretty-printed over many lines, or end to end.

`kubectl get -w -o json` prints its events over many lines and nothing between them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

import orjson

from replay.trace.errors import TraceError

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_DECODER = json.JSONDecoder()


class CutShortError(TraceError):
    """The stream ends within a value, as a recorder that was stopped leaves it."""


def json_values(file: BinaryIO, name: str) -> Iterator[tuple[str, Any]]:
    """Yield each value with its place, "FILE, line N". Memory is bounded by the largest value.

    Raises TraceError with the line at which a value that is no JSON begins; CutShortError where the
    last one is not complete.
    """
    pending, first, depth = list[bytes](), 1, 0
    for number, line in enumerate(file, 1):
        if not pending:
            if line.isspace():
                continue
            first = number
            try:
                yield f"{name}, line {first}", orjson.loads(line)
            except orjson.JSONDecodeError:
                pass
            else:
                continue
        pending.append(line)
        bare = _STRING.sub(b"", line)
        depth += bare.count(b"{") + bare.count(b"[") - bare.count(b"}") - bare.count(b"]")
        if depth <= 0:
            yield from _values(b"".join(pending), f"{name}, line {first}")
            pending.clear()
            depth = 0
    if pending:
        raise CutShortError(f"{name}, line {first}", "a JSON value is not complete")


def _values(data: bytes, where: str) -> Iterator[tuple[str, Any]]:
    try:
        yield where, orjson.loads(data)
        return
    except orjson.JSONDecodeError as error:
        problem = str(error)
    try:
        text = data.decode()
        at = 0
        while text[at:].strip():
            at += len(text[at:]) - len(text[at:].lstrip())
            value, at = _DECODER.raw_decode(text, at)
            yield where, value
    except ValueError as error:
        raise TraceError(where, f"is no JSON: {problem}") from error
