"""Google's cluster traces of 2019 (clusterdata-2019): tables of Borg cells, exported as JSON lines.

The importer reads collection_events, instance_events, machine_events, machine_attributes and
instance_usage, and recognises each by its fields. An export is not ordered; its lines are first
sorted by time, on disk. 64-bit numbers are strings, enums are numbers or names. Times, sizes and
the life of a task are as in 2011. New are QUEUE and ENABLE (a scheduling gate), alloc instances (an
alloc instance is a pod; tasks within it are left out, since it reserves their resources), limits of
instances on a machine, and raw priorities, which are kept (documents disagree about their tiers).

Source: clusterdata_trace_format_v3.proto.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import orjson

from replay.errors import TraceError
from replay.importers.datacenter import borg_events as borg
from replay.importers.datacenter.borg_trace import borg_trace
from replay.importers.records import Importer, ImportOptions, Issues
from replay.importers.rows import SHARE_MAX, DiskSorter, decimal
from replay.kube.changes import parts
from replay.kube.documents import read_json
from reprieve.trace.v1beta1.trace_pb2 import Record

NAME = "google-2019"
_Raw = Mapping[str, Any]
_T = TypeVar("_T")
# The trace's names of enums, by the trace's numbers.
_TASK_CHANGES: Mapping[str, borg.TaskChange] = {
    **{change.value: change for change in borg.TaskChange if change is not borg.TaskChange.UPDATE},
    "UPDATE_PENDING": borg.TaskChange.UPDATE,
    "UPDATE_RUNNING": borg.TaskChange.UPDATE,
}
_MACHINE_CHANGES: Mapping[str, borg.MachineChange | None] = {
    "EVENT_TYPE_UNKNOWN": None,
    **{change.value: change for change in borg.MachineChange},
}
_OPERATORS = {operator.value: operator for operator in borg.ConstraintOperator}
_ENDS = frozenset(
    {borg.TaskChange.FAIL, borg.TaskChange.FINISH, borg.TaskChange.KILL, borg.TaskChange.LOST}
)
_INTEGERS = range(-(2**63), 2**64)
_PRIORITIES = range(1000)
_ALLOC_SET = (1, "1", "ALLOC_SET")
_NO_MACHINE = frozenset({"", "0", "-1", "NO_MACHINE", "DEDICATED_MACHINE"})


def sniff(path: Path, start: bytes) -> bool:
    """Return whether a file whose content begins with `start` is one of the tables."""
    if path.suffix == ".ktr":
        return False
    try:
        raw = orjson.loads(start.partition(b"\n")[0])
    except orjson.JSONDecodeError:
        return False
    return isinstance(raw, dict) and bool(_table(raw))


def load(paths: Sequence[Path], options: ImportOptions) -> Iterator[Record]:
    """Yield the trace of the tables. Raises TraceError, with file and line, for a broken line."""
    issues = Issues()
    with DiskSorter() as lines:
        for path in paths:
            _sort(path, lines, issues)
        yield from borg_trace(NAME, paths, _events(lines), issues, options)


def _sort(path: Path, lines: DiskSorter, issues: Issues) -> None:
    for where, raw in read_json(path):
        table = _table(raw) if isinstance(raw, dict) else ""
        if not table:
            issues.add("unknown-line", where, "no line of a table of the trace: left out")
            continue
        at_us = _time_us(where, raw, "start_time" if table == "usage" else "time")
        try:
            data = orjson.dumps([where, table, raw])
        except TypeError as error:
            raise TraceError(where, f"cannot be read: {error}") from error
        lines.put(min(at_us, borg.AFTER_US), _TABLES[table][0], data)


def _events(lines: DiskSorter) -> Iterator[borg.BorgEvent]:
    for data in lines.sorted():
        where, table, raw = orjson.loads(data)
        yield _TABLES[table][1](where, raw)


def _table(raw: _Raw) -> str:
    """Return the table of a line, "" for a line of no table."""
    if "start_time" in raw and "collection_id" in raw:
        return "usage"
    if "time" not in raw:
        return ""
    if "collection_id" in raw:
        return "instance" if "instance_index" in raw else "collection"
    if "machine_id" not in raw:
        return ""
    return "machine" if "type" in raw or "capacity" in raw else "attribute"


def _instance(where: str, raw: _Raw) -> borg.BorgEvent:
    machine = str(raw.get("machine_id") or "")
    is_alloc = raw.get("collection_type") in _ALLOC_SET
    request = raw.get("resource_request")
    return borg.TaskEvent(
        at_us=_time_us(where, raw),
        where=where,
        key=(_whole(where, raw, "collection_id"), _whole(where, raw, "instance_index")),
        change=_enum(where, raw, "type", _TASK_CHANGES),
        machine="" if machine in _NO_MACHINE else machine,
        priority=_whole(where, raw, "priority", 0, _PRIORITIES),
        scheduling_class=str(raw.get("scheduling_class") or ""),
        cpu=_share(where, request, "cpus"),
        memory=_share(where, request, "memory"),
        in_alloc=not is_alloc and _whole(where, raw, "alloc_collection_id", 0) != 0,
        has_missing_info=raw.get("missing_type") not in (None, 0, "0", "", "MISSING_TYPE_NONE"),
        constraints=tuple(
            _constraint(where, constraint) for constraint in parts(raw, "constraint")
        ),
    )


def _collection(where: str, raw: _Raw) -> borg.BorgEvent:
    change = _enum(where, raw, "type", _TASK_CHANGES)
    return borg.CollectionEvent(
        at_us=_time_us(where, raw),
        where=where,
        collection=_whole(where, raw, "collection_id"),
        per_machine=_whole(where, raw, "max_per_machine", 0),
        per_switch=_whole(where, raw, "max_per_switch", 0),
        ended=change in _ENDS,
    )


def _machine(where: str, raw: _Raw) -> borg.BorgEvent:
    change = _enum(where, raw, "type", _MACHINE_CHANGES)
    if change is None:
        raise TraceError(where, "type: the machine event has no known type")
    return borg.MachineEvent(
        at_us=_time_us(where, raw),
        where=where,
        machine=str(raw.get("machine_id")),
        change=change,
        cpu=_share(where, raw.get("capacity"), "cpus"),
        memory=_share(where, raw.get("capacity"), "memory"),
    )


def _attribute(where: str, raw: _Raw) -> borg.BorgEvent:
    deleted = raw.get("deleted") in (True, "true", 1, "1")
    return borg.MachineAttributeEvent(
        at_us=_time_us(where, raw),
        where=where,
        machine=str(raw.get("machine_id")),
        name=str(raw.get("name") or ""),
        value=None if deleted else str(raw.get("value") or ""),
    )


def _usage(where: str, raw: _Raw) -> borg.BorgEvent:
    used = raw.get("average_usage")
    return borg.TaskUsageEvent(
        at_us=_time_us(where, raw, "start_time"),
        where=where,
        key=(_whole(where, raw, "collection_id"), _whole(where, raw, "instance_index")),
        cpu=_share(where, used, "cpus"),
        memory=_share(where, used, "memory"),
    )


def _constraint(where: str, raw: _Raw) -> borg.Constraint:
    operator = _enum(where, raw, "relation", _OPERATORS)
    value = "" if raw.get("value") is None else str(raw["value"])
    return borg.Constraint(operator=operator, name=str(raw.get("name") or ""), value=value)


def _whole(
    where: str, raw: _Raw, name: str, default: int | None = None, allowed: range = _INTEGERS
) -> int:
    value = raw.get(name)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | str | float):
        _refuse(where, name, value)
    try:
        number = int(value)
    except (ValueError, OverflowError):
        _refuse(where, name, value)
    if number not in allowed:
        _refuse(where, name, value)
    return number


def _time_us(where: str, raw: _Raw, name: str = "time") -> int:
    return _whole(where, raw, name, allowed=range(2**64))


def _enum(where: str, raw: _Raw, name: str, values: Mapping[str, _T]) -> _T:
    """Return an enum's value by its number or name; an absent field is number 0, as in proto."""
    value = raw.get(name, 0)
    if isinstance(value, str) and value in values:
        return values[value]
    number = _whole(where, raw, name, 0, range(len(values)))
    return list(values.values())[number]


def _share(where: str, raw: object, name: str) -> Decimal | None:
    value = raw.get(name) if isinstance(raw, dict) else None
    if value is None:
        return None
    number = decimal(str(value))
    if number is None or not 0 <= number <= SHARE_MAX:
        _refuse(where, name, value)
    return number


def _refuse(where: str, name: str, value: object) -> NoReturn:
    raise TraceError(where, f"{name}: {value!r} is not a valid value of this field")


_TABLES: Mapping[str, tuple[borg.EventOrder, Callable[[str, _Raw], borg.BorgEvent]]] = {
    "attribute": (borg.EventOrder.ATTRIBUTE, _attribute),
    "collection": (borg.EventOrder.CONSTRAINT, _collection),
    "instance": (borg.EventOrder.TASK, _instance),
    "machine": (borg.EventOrder.MACHINE, _machine),
    "usage": (borg.EventOrder.USAGE, _usage),
}


IMPORTER = Importer(
    name=NAME,
    description='Google\'s tables of 2019: JSON lines with "collection_id" or "machine_id" and a '
    "time",
    sniff=sniff,
    load=load,
)
