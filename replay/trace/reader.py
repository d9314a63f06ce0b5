"""Reads the native trace in its binary and its text form, and converts traces of format 1.

Format 1 had google.protobuf.Value in place of IntOrString, other numbers of the fields of object
references in PersistentVolume and CronJob, and -1 ns for an unknown wait. In the text form, where
fields have names, only the first and the last of these differ.
"""

from __future__ import annotations

import os
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from google.protobuf import json_format, unknown_fields
from google.protobuf.descriptor import Descriptor

from replay import bounds
from replay.errors import TraceError
from replay.trace.files import (
    ZSTD_MAGIC,
    CutShortError,
    end_of,
    head,
    open_plain,
    read_frames,
    starts_like_records,
)
from replay.trace.reading import open_watched
from reprieve.kube.v1beta1.meta_pb2 import IntOrString, ObjectReference
from reprieve.trace.v1beta1.trace_pb2 import ImportIssue, Record

_SNIFFED_BYTES = 4096
_Reading = Callable[[BinaryIO, str], Iterator[tuple[str, Record]]]
FORMAT_VERSION = 2
_FORMAT_1 = 1
_NUMBER_VALUE = 2
"""The field number of google.protobuf.Value.number_value."""
_UNKNOWN_WAIT_NS = -1
_INT_OR_STRING_FIELDS = (
    ("podDisruptionBudget", ("spec",), ("minAvailable", "maxUnavailable")),
    ("deployment", ("spec", "strategy", "rollingUpdate"), ("maxUnavailable", "maxSurge")),
    ("daemonSet", ("spec", "updateStrategy", "rollingUpdate"), ("maxUnavailable", "maxSurge")),
    ("statefulSet", ("spec", "updateStrategy", "rollingUpdate"), ("maxUnavailable", "maxSurge")),
)
"""The fields of type IntOrString by kind and path, as JSON names them."""


def read(
    path: str | os.PathLike[str], *, converts: bool = True, reads_cut_off: bool = False
) -> Iterator[Record]:
    """Yield the trace's records in order, the header first. Memory is bounded.

    The form is recognised by content: ".ktr", or JSON lines, which may be compressed by gzip or
    zstd. A trace of format 1 is converted, or refused unless `converts`. Raises TraceError, with
    frame or line, where the file is not a trace or is broken; a ".ktr" without its end before the
    first record. With `reads_cut_off` a trace that was cut off is read up to its last whole
    record, and an issue says so.
    """
    file_path, last = Path(path), Record()
    try:
        for record in _records(file_path, converts, reads_cut_off):
            last = record
            yield record
    except CutShortError as error:
        if not reads_cut_off or not last.sequence:
            problem = f"{error.problem}; --read-cut-off reads what is left"
            raise TraceError(error.where, problem) from error
        issue = ImportIssue(kind="cut-off", where=error.where, message=error.problem, count=1)
        yield Record(time_ns=last.time_ns, sequence=last.sequence + 1, issue=issue)


def _records(path: Path, converts: bool, reads_cut_off: bool) -> Iterator[Record]:
    start = head(path, _SNIFFED_BYTES)
    if is_binary(path, start):
        with _opened(path) as file:
            if not reads_cut_off and end_of(file).is_cut_off:
                raise CutShortError(str(path), "was cut off: it has no end")
            yield from _checked(file, path, read_frames, converts)
    elif is_text(start):
        with open_plain(path) as file:
            yield from _checked(file, path, read_lines, converts)
    else:
        raise TraceError(str(path), "is neither a .ktr nor a .jsonl trace")


def has_end(path: str | os.PathLike[str]) -> bool:
    """Return whether a ".ktr" has an end, so that a cut is noticed; True for other files."""
    file_path = Path(path)
    if not is_binary(file_path, head(file_path, _SNIFFED_BYTES)):
        return True
    with _opened(file_path) as file:
        return end_of(file).records is not None


def is_binary(path: Path, start: bytes) -> bool:
    """Return whether a file whose content begins with `start` is a ".ktr"."""
    with _opened(path) as file:
        return file.read(4) == ZSTD_MAGIC and starts_like_records(start)


def is_text(start: bytes) -> bool:
    """Return whether content that begins with `start` is a trace in JSON lines."""
    first = start.lstrip().partition(b"\n")[0]
    return first.startswith(b"{") and b'"header"' in first and b'"sequence"' in first


def _opened(path: Path) -> BinaryIO:
    try:
        return open_watched(path)
    except OSError as error:
        raise TraceError(str(path), f"cannot be read: {error.strerror or error}") from error


def _checked(file: BinaryIO, path: Path, reading: _Reading, converts: bool) -> Iterator[Record]:
    check, is_format_1 = OrderCheck(), False
    for where, record in reading(file, str(path)):
        if record.HasField("header"):
            is_format_1 = record.header.format_version == _FORMAT_1
        if is_format_1 and converts:
            convert_from_format_1(record, is_text=reading is read_lines)
        if problem := check.problem(record):
            raise TraceError(f"{where}, record {record.sequence}", problem)
        yield record
    if missing := check.missing():
        raise TraceError(str(path), missing)


def read_lines(file: BinaryIO, name: str) -> Iterator[tuple[str, Record]]:
    """Yield each record with file and line; empty lines are skipped."""
    is_format_1 = False
    for number, line in enumerate(bounds.lines(file, name), 1):
        if line.isspace():
            continue
        where = f"{name}, line {number}"
        try:
            bounds.check_json(line, where)
            plain = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            if not line.endswith(b"\n"):
                raise CutShortError(where, "was cut off in the middle of the line") from error
            raise TraceError(where, f"is not JSON: {error}") from error
        if not isinstance(plain, dict):
            raise TraceError(where, "is not a record of a trace: expected a mapping")
        is_format_1 = is_format_1 or _is_format_1_header(plain)
        try:
            yield where, _parsed(_converted_line(plain) if is_format_1 else plain)
        except (json_format.Error, TypeError, ValueError, AttributeError) as error:
            # ParseDict checks most types itself, and uses some values as if it had.
            raise TraceError(where, f"is not a record of a trace: {error}") from error


def _parsed(plain: Any) -> Record:
    """Return a record from its JSON; a field's JSON name may be spelt in snake case.

    Raises what ParseDict does.
    """
    try:
        return json_format.ParseDict(plain, Record())
    except json_format.ParseError:
        # ParseDict knows the names that fields have in the contract, which are others.
        return json_format.ParseDict(_in_camel_case(plain, Record.DESCRIPTOR), Record())


def _in_camel_case(plain: Any, descriptor: Descriptor) -> Any:
    """Return the JSON of a message by its fields' JSON names, which may be in snake case."""
    if isinstance(plain, list):
        return [_in_camel_case(part, descriptor) for part in plain]
    if not isinstance(plain, dict):
        return plain
    fields = {_snake_case(field.json_name): field for field in descriptor.fields}
    converted = {}
    for name, value in plain.items():
        field = fields.get(_snake_case(name))
        if field is None:
            converted[name] = value
            continue
        message = field.message_type
        if message is not None and not message.GetOptions().map_entry:
            value = _in_camel_case(value, message)  # noqa: PLW2901 - of the same field
        converted[field.json_name] = value
    return converted


def _snake_case(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def line(record: Record) -> bytes:
    """Return the record as a line of JSON; equal records give equal lines."""
    plain = json_format.MessageToDict(record)
    return orjson.dumps(plain, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


class OrderCheck:
    """Checks a trace: header first, (at_ns, sequence) increasing, as many records as counted."""

    def __init__(self) -> None:
        self._at_ns = 0
        self._sequence = 0
        self._expected: dict[str, int] = {}
        self._counts: Counter[str] = Counter()

    def problem(self, record: Record) -> str:
        """Return the problem of the next record, "" for a valid record."""
        kind, at_ns, sequence = record.WhichOneof("record"), record.time_ns, record.sequence
        wrong = ""
        if self._sequence == 0:
            wrong = self._first(record, kind)
        elif kind == "header":
            wrong = "a second header"
        elif sequence <= self._sequence:
            wrong = f"sequence {sequence} follows {self._sequence}"
        elif at_ns < self._at_ns:
            wrong = f"atNs {at_ns} follows {self._at_ns}"
        self._at_ns, self._sequence = at_ns, sequence
        if self._expected:
            self._counts[kind or "unknown"] += 1
        return wrong

    def missing(self) -> str:
        """Return what is missing at the end, "" for a complete trace."""
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


def convert_from_format_1(record: Record, *, is_text: bool) -> None:
    """Convert a record of format 1; in one of the text form, field numbers are right already."""
    content: Any = getattr(record, record.WhichOneof("record") or "", None)
    if record.HasField("header"):
        record.header.format_version = FORMAT_VERSION
        _clear_zeros(
            record.header, "window_end_time_ns", "cpu_milli_per_unit", "memory_bytes_per_unit"
        )
    elif record.HasField("pod_create"):
        _clear_zeros(record.pod_create, "template_id")
        _clear_zeros(record.pod_create.life, "usage_id")
    elif record.HasField("usage"):
        _clear_zeros(record.usage, "template_id")
    elif record.HasField("issue"):
        _clear_zeros(record.issue, "count")
    elif record.HasField("controller_pod"):
        _clear_zeros(record.controller_pod.life, "usage_id")
    elif record.HasField("observed"):
        if record.observed.scheduled.waited_duration_ns == _UNKNOWN_WAIT_NS:
            record.observed.scheduled.waited_duration_ns = 0
    elif not is_text and (record.HasField("create") or record.HasField("update")):
        for value in _int_or_strings(content):
            _convert_value(value)
        for reference in _references(content):
            reference.namespace, reference.name, reference.uid, reference.api_version = (
                *(reference.name, reference.uid, reference.api_version),
                reference.namespace,
            )


def _clear_zeros(message: Any, *names: str) -> None:
    """Clear fields that are 0, which format 1 wrote for absent fields."""
    for name in names:
        if message.HasField(name) and not getattr(message, name):
            message.ClearField(name)


def _is_format_1_header(plain: Any) -> bool:
    header = plain.get("header") if isinstance(plain, dict) else None
    if not isinstance(header, dict):
        return False
    return str(header.get("formatVersion", header.get("format_version"))) == str(_FORMAT_1)


def _converted_line(plain: Any) -> Any:
    """Return a line of format 1 with its IntOrString values converted."""
    for change in ("create", "update"):
        for kind, path, names in _INT_OR_STRING_FIELDS:
            part: Any = plain.get(change) if isinstance(plain, dict) else None
            for step in (kind, *path):
                part = part.get(_spelt(part, step)) if isinstance(part, dict) else None
            for name in (_spelt(part, field) for field in names) if isinstance(part, dict) else ():
                match part.get(name):
                    case str(text):
                        part[name] = {"stringValue": text}
                    case int() | float() as number if not isinstance(number, bool):
                        part[name] = json_format.MessageToDict(_int_or_string(number))
    return plain


def _spelt(part: dict[str, Any], name: str) -> str:
    """Return a field's name as `part` has it: in camelCase or in snake_case."""
    snake = _snake_case(name)
    return snake if snake in part else name


def _int_or_strings(created: Any) -> Iterator[IntOrString]:
    """Yield the IntOrString values of an object that are set."""
    names: tuple[str, str] = ("max_unavailable", "max_surge")
    match created.WhichOneof("object"):
        case "pod_disruption_budget":
            part: Any = created.pod_disruption_budget.spec
            names = ("min_available", "max_unavailable")
        case "deployment":
            part = created.deployment.spec.strategy.rolling_update
        case "daemon_set" | "stateful_set" as kind:
            part = getattr(created, kind).spec.update_strategy.rolling_update
        case _:
            return
    yield from (getattr(part, name) for name in names if part.HasField(name))


def _convert_value(value: IntOrString) -> None:
    """Convert a google.protobuf.Value, whose number is an unknown field of IntOrString."""
    unknown = unknown_fields.UnknownFieldSet(value)
    for field in (unknown[index] for index in range(len(unknown))):
        if field.field_number == _NUMBER_VALUE:
            (number,) = struct.unpack("<d", struct.pack("<Q", field.data))
            value.CopyFrom(_int_or_string(number))
            return


def _int_or_string(number: float) -> IntOrString:
    """Return an integer, or any other number as a string, which a replay refuses."""
    if float(number).is_integer() and -(2**31) <= number < 2**31:
        return IntOrString(int_value=int(number))
    return IntOrString(string_value=str(number))


def _references(created: Any) -> Iterator[ObjectReference]:
    match created.WhichOneof("object"):
        case "persistent_volume":
            if created.persistent_volume.spec.HasField("claim_ref"):
                yield created.persistent_volume.spec.claim_ref
        case "cron_job":
            yield from created.cron_job.status.active
