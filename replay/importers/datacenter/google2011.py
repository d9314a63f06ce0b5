"""Google's cluster trace of 2011 (clusterdata-2011-2): CSV tables without names of columns.

The importer reads machine_events, machine_attributes, task_events, task_constraints and task_usage,
each in one file or in many shards, and recognises each by its columns; job_events adds nothing to
task_events. Times are us from 0, which means "before the window"; the window begins at 600 s. Sizes
are shares of the largest machine. Source: the trace's schema, version 2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from replay.errors import TraceError
from replay.importers.datacenter import borg_events as borg
from replay.importers.datacenter.borg_trace import borg_trace
from replay.importers.records import Importer, ImportOptions, Issues
from replay.importers.rows import TableRow, first_fields, table_rows
from replay.trace.files import head
from reprieve.trace.v1beta1.trace_pb2 import Record

NAME = "google-2011"
_COLUMNS: Mapping[str, Sequence[str]] = {
    "machine_events": ("time", "machine", "change", "platform", "cpu", "memory"),
    "machine_attributes": ("time", "machine", "name", "value", "deleted"),
    "task_events": (
        *("time", "missing", "job", "index", "machine", "change", "user", "class", "priority"),
        *("cpu", "memory", "disk", "different_machines"),
    ),
    "task_constraints": ("time", "job", "index", "operator", "name", "value"),
    "task_usage": (
        *("start", "end", "job", "index", "machine", "cpu", "memory", "assigned", "unmapped"),
        *("total", "max_memory", "disk_time", "disk_space", "max_cpu", "max_disk", "cpi", "mai"),
        *("portion", "aggregation", "sampled_cpu"),
    ),
}
_BY_WIDTH = {5: "machine_attributes", 8: "job_events", 13: "task_events", 20: "task_usage"}
_PRIORITY_MAX = 999
_T = TypeVar("_T")
# Enums by the trace's numbers.
_MACHINE_CHANGES = tuple(borg.MachineChange)
_TASK_CHANGES = tuple(
    change for change in borg.TaskChange if change.value not in {"QUEUE", "ENABLE"}
)
_TASK_CHANGES += (borg.TaskChange.UPDATE,)  # UPDATE_RUNNING; the one before is UPDATE_PENDING
_OPERATORS = tuple(borg.ConstraintOperator)[:4]


def sniff(_path: Path, start: bytes) -> bool:
    """Return whether a file whose content begins with `start` is one of the tables."""
    return bool(_table(start))


def load(paths: Sequence[Path], options: ImportOptions) -> Iterator[Record]:
    """Yield the trace of the tables. Raises TraceError, with file and line, for a broken row."""
    issues = Issues()
    shards: dict[str, list[Path]] = {}
    for path in paths:
        table = _table(head(path))
        if table in _READERS:
            shards.setdefault(table, []).append(path)
        else:
            message = f"{table or 'no table of the trace'}: left out"
            issues.add("ignored-file", str(path), message)
    tables = [_events(name, sorted(files), issues) for name, files in sorted(shards.items())]
    return borg_trace(NAME, paths, borg.merged(tables), issues, options)


def _table(start: bytes) -> str:
    """Return the name of the table that begins with `start`, "" for no table.

    machine_events and task_constraints have six columns; the fourth is a platform, or an operator.
    """
    fields = first_fields(start)
    if not fields or not fields[0].isdecimal():
        return ""
    table = _BY_WIDTH.get(len(fields), "")
    if len(fields) == 6:
        is_constraint = len(fields[3]) == 1 and fields[3] in "0123"
        table = "task_constraints" if is_constraint else "machine_events"
    checked = {"machine_events": (1, 2), "machine_attributes": (1, 4), "job_events": (2, 3, 5)}
    checked |= {"task_events": (2, 5), "task_usage": (1, 2), "task_constraints": (1, 2)}
    whole = all(fields[at].isdecimal() or not fields[at] for at in checked.get(table, ()))
    return table if whole else ""


def _events(table: str, files: Sequence[Path], issues: Issues) -> Iterator[borg.BorgEvent]:
    """Yield the events of a table's shards, whose names are in order of time."""
    last_us = 0
    for path in files:
        for row in table_rows(path, _COLUMNS[table]):
            event = _READERS[table](row)
            if event.at_us < last_us:
                message = f"{table}: rows are not in order of time"
                issues.add("out-of-order", row.where, message)
            last_us = event.at_us
            yield event


def _time_us(row: TableRow, name: str = "time") -> int:
    time_us = row.integer(name)
    if time_us is None or time_us < 0:
        raise TraceError(row.where, f"{name}: {row.text(name)!r} is not a time in us")
    return time_us


def _whole(row: TableRow, name: str) -> int:
    row.required(name)
    return row.integer(name) or 0


def _enum(row: TableRow, name: str, values: Sequence[_T]) -> _T:
    row.required(name)
    return values[row.count(name, len(values) - 1) or 0]


def _machine_event(row: TableRow) -> borg.BorgEvent:
    return borg.MachineEvent(
        at_us=_time_us(row),
        where=row.where,
        machine=row.text("machine"),
        change=_enum(row, "change", _MACHINE_CHANGES),
        cpu=row.share("cpu"),
        memory=row.share("memory"),
    )


def _attribute(row: TableRow) -> borg.BorgEvent:
    return borg.MachineAttributeEvent(
        at_us=_time_us(row),
        where=row.where,
        machine=row.text("machine"),
        name=row.text("name"),
        value=None if row.text("deleted") == "1" else row.text("value"),
    )


def _task_event(row: TableRow) -> borg.BorgEvent:
    return borg.TaskEvent(
        at_us=_time_us(row),
        where=row.where,
        key=(_whole(row, "job"), _whole(row, "index")),
        change=_enum(row, "change", _TASK_CHANGES),
        machine=row.text("machine"),
        priority=row.count("priority", _PRIORITY_MAX) or 0,
        scheduling_class=row.text("class"),
        cpu=row.share("cpu"),
        memory=row.share("memory"),
        different_machines=row.text("different_machines") in {"1", "true"},
        has_missing_info=bool(row.text("missing")),
    )


def _constraint(row: TableRow) -> borg.BorgEvent:
    operator = _enum(row, "operator", _OPERATORS)
    return borg.TaskConstraintEvent(
        at_us=_time_us(row),
        where=row.where,
        key=(_whole(row, "job"), _whole(row, "index")),
        constraint=borg.Constraint(
            operator=operator, name=row.text("name"), value=row.text("value")
        ),
    )


def _usage(row: TableRow) -> borg.BorgEvent:
    return borg.TaskUsageEvent(
        at_us=_time_us(row, "start"),
        where=row.where,
        key=(_whole(row, "job"), _whole(row, "index")),
        cpu=row.share("cpu"),
        memory=row.share("memory"),
    )


_READERS: Mapping[str, Callable[[TableRow], borg.BorgEvent]] = {
    "machine_attributes": _attribute,
    "machine_events": _machine_event,
    "task_constraints": _constraint,
    "task_events": _task_event,
    "task_usage": _usage,
}


IMPORTER = Importer(
    name=NAME,
    description="Google's tables of 2011: CSV of 6 (machine_events), 13 (task_events) or 20 "
    "columns",
    sniff=sniff,
    load=load,
)
