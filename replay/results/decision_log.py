"""The decision log: one Decision a line, as JSON with its keys in the order of the fields.

Equal decisions give equal bytes, so that two runs can be compared with cmp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from replay.results.errors import RunError
from reprieve.kube.v1alpha1.object_ref_pb2 import ObjectRef
from reprieve.trace.v1alpha1 import trace_pb2
from services.rpc import kube_json

_LINES_BUFFERED = 1024
_Getter = Callable[[Any], tuple[Any, ...]]


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
    plain = _PLAIN.get(case or "")
    if plain is None or observed.resource_version:
        mapping = kube_json.to_json(decision)
    else:
        mapping = _plain_mapping(decision, *plain)
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


# Most decisions hold numbers and texts only. Their fields are read a message at a time, which takes
# a third of what the generic writer takes.


def _plain_mapping(
    decision: trace_pb2.Decision,
    case: str,
    key: str,
    names: tuple[str, ...],
    values: _Getter,
    optional: tuple[tuple[str, str], ...],
) -> dict[str, Any]:
    observed = decision.observed
    detail = getattr(observed, case)
    fields = {name: value for name, value in zip(names, values(detail), strict=True) if value}
    for field, name in optional:
        if detail.HasField(field):
            fields[name] = getattr(detail, field)
    told: dict[str, Any] = {}
    if observed.HasField("object"):
        reference = _REFERENCE_VALUES(observed.object)
        told["object"] = {
            name: value for name, value in zip(_REFERENCE_NAMES, reference, strict=True) if value
        }
    told[key] = fields
    mapping = {
        name: value
        for name, value in zip(_STAMP_NAMES, _STAMP_VALUES(decision), strict=True)
        if value
    }
    mapping["observed"] = told
    if decision.refused:
        mapping["refused"] = decision.refused
    return mapping


def _plain_plan(
    field: FieldDescriptor,
) -> tuple[str, str, tuple[str, ...], _Getter, tuple[tuple[str, str], ...]] | None:
    """Return how to read a case whose fields are plain, the optional ones last; else None."""
    fields = sorted(_message(field).fields, key=lambda each: each.number)
    if any(each.is_repeated or each.message_type for each in fields):
        return None
    plain = [each for each in fields if not each.has_presence]
    optional = [each for each in fields if each.has_presence]
    if plain + optional != fields or not plain:
        return None
    names, values = _reader(plain)
    return (
        field.name,
        field.json_name,
        names,
        values,
        tuple((each.name, each.json_name) for each in optional),
    )


def _reader(fields: list[FieldDescriptor]) -> tuple[tuple[str, ...], _Getter]:
    names = tuple(each.json_name for each in fields)
    getter = attrgetter(*(each.name for each in fields))
    if len(fields) == 1:
        return names, lambda message: (getter(message),)
    return names, getter


def _message(field: FieldDescriptor) -> Descriptor:
    assert field.message_type is not None  # noqa: S101 - every case of Observed is a message
    return field.message_type


_CASES = trace_pb2.Observed.DESCRIPTOR.oneofs_by_name["observed"].fields
_PLAIN = {
    field.name: plan for field in _CASES if (plan := _plain_plan(field)) is not None
}
_REFERENCE_NAMES, _REFERENCE_VALUES = _reader(list(ObjectRef.DESCRIPTOR.fields))
_STAMP_NAMES, _STAMP_VALUES = _reader(list(trace_pb2.Decision.DESCRIPTOR.fields)[:3])
