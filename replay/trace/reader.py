"""Reading the native trace, in its binary and its text form.

Traces of format 1, as records of today.

Format 1 had google.protobuf.Value where IntOrString is now, numbered the fields of an object's
reference otherwise in PersistentVolume and CronJob, and had a wait of -1 ns for one not known. In
the text form, where fields have names, the reference is as it is now.
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

from replay.errors import TraceError
from replay.trace.files import ZSTD_MAGIC, head, open_plain, read_frames, starts_like_records
from reprieve.kube.v1beta1.meta_pb2 import IntOrString, ObjectReference
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
            converts = record.header.format_version == VERSION
        if converts and former:
            convert(record, is_text=reading is read_lines)
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
            converts = converts or is_begun(plain)
            record = json_format.ParseDict(text(plain) if converts else plain, Record())
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


VERSION = 1
_NUMBER = 2
_UNKNOWN_NS = -1
_BOUNDS = (
    ("podDisruptionBudget", ("spec",), ("minAvailable", "maxUnavailable")),
    ("deployment", ("spec", "strategy", "rollingUpdate"), ("maxUnavailable", "maxSurge")),
    ("daemonSet", ("spec", "updateStrategy", "rollingUpdate"), ("maxUnavailable", "maxSurge")),
    ("statefulSet", ("spec", "updateStrategy", "rollingUpdate"), ("maxUnavailable", "maxSurge")),
)
"""Where in an object the numbers stand that may be percentages, by the names of the text form."""


def convert(record: Record, *, is_text: bool) -> None:
    """Make a record of format 1 what it says today.

    In one that was read from text (`is_text`), names have put each field in its place.
    """
    held: Any = getattr(record, record.WhichOneof("record") or "", None)
    if record.HasField("header"):
        record.header.format_version = VERSION + 1
        _clear_zeros(record.header, "window_end_ns", "cpu_milli_per_unit", "memory_bytes_per_unit")
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
        if record.observed.scheduled.waited_ns == _UNKNOWN_NS:
            record.observed.scheduled.waited_ns = 0
    elif not is_text and (record.HasField("create") or record.HasField("update")):
        for bound in _bounds(held):
            _convert_bound(bound)
        for reference in _references(held):
            reference.namespace, reference.name, reference.uid, reference.api_version = (
                *(reference.name, reference.uid, reference.api_version),
                reference.namespace,
            )


def _clear_zeros(message: Any, *names: str) -> None:
    """Clear fields whose zero meant none, where one was written."""
    for name in names:
        if message.HasField(name) and not getattr(message, name):
            message.ClearField(name)


def is_begun(plain: Any) -> bool:
    """Tell whether a line is the header of a trace of format 1."""
    header = plain.get("header") if isinstance(plain, dict) else None
    if not isinstance(header, dict):
        return False
    return str(header.get("formatVersion", header.get("format_version"))) == str(VERSION)


def text(plain: Any) -> Any:
    """Return a line that was read from a ".jsonl" of format 1, its numbers as they are today."""
    for change in ("create", "update"):
        for kind, path, names in _BOUNDS:
            part: Any = plain.get(change) if isinstance(plain, dict) else None
            for step in (kind, *path):
                part = part.get(_spelt(part, step)) if isinstance(part, dict) else None
            for name in (_spelt(part, each) for each in names) if isinstance(part, dict) else ():
                match part.get(name):
                    case str(text):
                        part[name] = {"stringValue": text}
                    case int() | float() as number if not isinstance(number, bool):
                        part[name] = json_format.MessageToDict(_bound(number))
    return plain


def _spelt(part: dict[str, Any], name: str) -> str:
    """Return a field's name as a line spells it: JSON has two ways."""
    snake = re.sub(r"[A-Z]", lambda each: f"_{each[0].lower()}", name)
    return snake if snake in part else name


def _bounds(held: Any) -> Iterator[IntOrString]:
    match held.WhichOneof("object"):
        case "pod_disruption_budget":
            spec = held.pod_disruption_budget.spec
            parts, names = [spec], ("min_available", "max_unavailable")
        case "deployment":
            parts = [held.deployment.spec.strategy.rolling_update]
            names = ("max_unavailable", "max_surge")
        case "daemon_set" | "stateful_set" as kind:
            parts = [getattr(held, kind).spec.update_strategy.rolling_update]
            names = ("max_unavailable", "max_surge")
        case _:
            return
    for part in parts:
        yield from (getattr(part, name) for name in names if part.HasField(name))


def _convert_bound(bound: IntOrString) -> None:
    """Take the number, a double, which today's message has as a field that it does not know."""
    unknown = unknown_fields.UnknownFieldSet(bound)
    for field in (unknown[index] for index in range(len(unknown))):
        if field.field_number == _NUMBER:
            (number,) = struct.unpack("<d", struct.pack("<Q", field.data))
            bound.CopyFrom(_bound(number))
            return


def _bound(number: float) -> IntOrString:
    """Return a number as it is today; one that is not whole as a text, which nobody takes."""
    if float(number).is_integer() and -(2**31) <= number < 2**31:
        return IntOrString(int_value=int(number))
    return IntOrString(string_value=str(number))


def _references(held: Any) -> Iterator[ObjectReference]:
    match held.WhichOneof("object"):
        case "persistent_volume":
            if held.persistent_volume.spec.HasField("claim_ref"):
                yield held.persistent_volume.spec.claim_ref
        case "cron_job":
            yield from held.cron_job.status.active
