"""Traces of format 1, as records of today.

Format 1 had google.protobuf.Value where IntOrString is now, numbered the fields of an object's
reference otherwise in PersistentVolume and CronJob, and had a wait of -1 ns for one not known. In
the text form, where fields have names, the reference is as it is now.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any

from google.protobuf import json_format, unknown_fields

from reprieve.kube.v1beta1.meta_pb2 import IntOrString, ObjectReference
from reprieve.trace.v1beta1.trace_pb2 import Record

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
