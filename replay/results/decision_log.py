"""The decision log: one Decision a line, as JSON with its keys in the order of the fields.

Equal decisions give equal bytes, so that two runs can be compared with cmp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor

from replay.results.errors import RunError
from reprieve.kube.v1alpha1.object_ref_pb2 import ObjectRef
from reprieve.trace.v1alpha1 import trace_pb2
from services.rpc import kube_json

_LINES_BUFFERED = 1024


class DecisionLog:
    """Writes decisions to a file; a line is there in full or not at all after a flush."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lines: list[bytes] = []

    def write(self, decision: trace_pb2.Decision) -> None:
        """Append a decision."""
        self._lines.append(line(decision))
        if len(self._lines) >= _LINES_BUFFERED:
            self.flush()

    def flush(self) -> None:
        """Hand to the system all that was written."""
        self._file.write(b"".join(self._lines))
        self._lines.clear()
        self._file.flush()

    def close(self) -> None:
        """End the file."""
        self.flush()
        self._file.close()


def line(decision: trace_pb2.Decision) -> bytes:
    """Return a decision as a line with its end.

    64-bit integers are JSON numbers; what is not set, and a field with its default, is absent.
    """
    observed = decision.observed
    case = observed.WhichOneof("observed")
    plain = observed.HasField("object") and not (observed.resource_version or decision.refused)
    if not plain or case not in _PLAIN_CASES:
        return orjson.dumps(kube_json.to_json(decision), option=orjson.OPT_APPEND_NEWLINE)
    key, fields = _PLAIN_CASES[case]
    mapping = _STAMP.mapping(decision)
    mapping["observed"] = {
        "object": _REFERENCE.mapping(observed.object),
        key: fields.mapping(getattr(observed, case)),
    }
    return orjson.dumps(mapping, option=orjson.OPT_APPEND_NEWLINE)


def read_decisions(path: Path) -> Iterator[trace_pb2.Decision]:
    """Yield the decisions of a log in order. Raises RunError for a line that is none."""
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, 1):
                yield _parsed(text, f"{path}, line {number}")
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error


def _parsed(text: bytes, where: str) -> trace_pb2.Decision:
    try:
        return json_format.ParseDict(orjson.loads(text), trace_pb2.Decision())
    except (orjson.JSONDecodeError, json_format.ParseError) as error:
        raise RunError(f"{where}: is no decision: {error}") from error


# Most decisions hold numbers and texts only: their fields are read a message at a time, which takes
# half of what the generic writer takes.


@dataclass(frozen=True, slots=True)
class _Fields:
    """A message's fields without presence, then those with, by JSON name."""

    names: tuple[str, ...]
    values: Callable[[Any], tuple[Any, ...]]
    optional: tuple[tuple[str, str], ...] = ()

    def mapping(self, message: Any) -> dict[str, Any]:
        values = self.values(message)
        mapping = dict(zip(self.names, values, strict=True))
        if not all(values):
            mapping = {name: value for name, value in mapping.items() if value}
        for field, name in self.optional:
            if message.HasField(field):
                mapping[name] = getattr(message, field)
        return mapping


def _fields(fields: Sequence[FieldDescriptor]) -> _Fields:
    plain = [field for field in fields if not field.has_presence]
    getter = attrgetter(*(field.name for field in plain))
    return _Fields(
        tuple(field.json_name for field in plain),
        getter if len(plain) > 1 else lambda message: (getter(message),),
        tuple((field.name, field.json_name) for field in fields if field.has_presence),
    )


def _is_plain(fields: Sequence[FieldDescriptor]) -> bool:
    """Tell whether a message has no messages or lists in it, and its optional fields stand last."""
    presence = [field.has_presence for field in fields]
    nested = any(field.is_repeated or field.message_type for field in fields)
    return not nested and not all(presence) and presence == sorted(presence)


_PLAIN_CASES = {
    case.name: (case.json_name, _fields(case.message_type.fields))
    for case in trace_pb2.Observed.DESCRIPTOR.oneofs_by_name["observed"].fields
    if case.message_type is not None and _is_plain(case.message_type.fields)
}
_REFERENCE = _fields(ObjectRef.DESCRIPTOR.fields)
_STAMP = _fields(trace_pb2.Decision.DESCRIPTOR.fields[:3])
