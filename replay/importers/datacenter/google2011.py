"""Google's cluster trace of 2011 (clusterdata-2011-2): CSV tables without names of columns.

Read are machine_events, machine_attributes, task_events, task_constraints and task_usage, each of
one file or of many shards, told apart by their columns; job_events say nothing that the tasks do
not. Times are us from 0, which means "before the window"; the window begins at 600 s. Sizes are
shares of the largest machine. Source: the trace's schema, version 2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from replay.errors import TraceError
from replay.importers.datacenter import borg_events
from replay.importers.datacenter.borg_trace import borg_trace
from replay.importers.records import ImportOptions, Issues
from replay.importers.rows import Row, first_fields, rows
from replay.trace.files import head
from reprieve.trace.v1beta1.trace_pb2 import Record

NAME = "google-2011"
LOOKED_FOR = "Google's tables of 2011: CSV of 6 (machine_events), 13 (task_events) or 20 columns"
_COLUMNS = {
    "machine_events": "time machine change platform cpu memory",
    "machine_attributes": "time machine name value deleted",
    "job_events": "time missing job change user class name logical_name",
    "task_events": "time missing job index machine change user class priority cpu memory disk "
    "different_machines",
    "task_constraints": "time job index operator name value",
    "task_usage": "start end job index machine cpu memory assigned unmapped total max_memory "
    "disk_time disk_space max_cpu max_disk cpi mai portion aggregation sampled_cpu",
}
_TABLES: Mapping[str, Sequence[str]] = {name: text.split() for name, text in _COLUMNS.items()}
_BY_WIDTH = {5: "machine_attributes", 8: "job_events", 13: "task_events", 20: "task_usage"}
_MACHINE = tuple(borg_events.MachineChange)
_NOT_YET = {borg_events.TaskChange.QUEUE, borg_events.TaskChange.ENABLE}
_TASK = (
    *(each for each in borg_events.TaskChange if each not in _NOT_YET),
    borg_events.TaskChange.UPDATE,
)
_PRIORITIES = 1000
_OPERATORS = tuple(borg_events.Operator)[:4]


def sniff(path: Path, start: bytes) -> bool:
    """Tell whether a file whose content begins with `start` is one of the tables."""
    del path
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
    return borg_trace(NAME, paths, borg_events.merged(tables), issues, options)


def _table(start: bytes) -> str:
    """Return which table begins with `start`, "" for none.

    Of six columns are machine_events, with a platform in the fourth, and task_constraints, with
    an operator there.
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


def _events(table: str, files: Sequence[Path], issues: Issues) -> Iterator[borg_events.Event]:
    """Yield the events of a table's shards: slices of time, in the order of their names."""
    last_us = 0
    for path in files:
        for row in rows(path, _TABLES[table]):
            event = _READERS[table](row)
            if event.at_us < last_us:
                message = f"{table}: rows are not in order of time"
                issues.add("out-of-order", row.where, message)
            last_us = event.at_us
            yield event


def _time_us(row: Row, name: str = "time") -> int:
    time_us = row.integer(name)
    if time_us is None or time_us < 0:
        raise TraceError(row.where, f"{name}: {row.text(name)!r} where a time in us is wanted")
    return time_us


def _whole(row: Row, name: str) -> int:
    number = row.integer(name)
    if number is None:
        raise TraceError(row.where, f"{name} is missing")
    return number


def _code(row: Row, name: str, count: int) -> int:
    code = _whole(row, name)
    if not 0 <= code < count:
        raise TraceError(row.where, f"{name}: {code} is none of 0 to {count - 1}")
    return code


def _machine_event(row: Row) -> borg_events.Event:
    return borg_events.MachineEvent(
        at_us=_time_us(row),
        where=row.where,
        machine=row.text("machine"),
        change=_MACHINE[_code(row, "change", len(_MACHINE))],
        cpu=row.share("cpu"),
        memory=row.share("memory"),
    )


def _attribute(row: Row) -> borg_events.Event:
    return borg_events.AttributeEvent(
        at_us=_time_us(row),
        where=row.where,
        machine=row.text("machine"),
        name=row.text("name"),
        value=None if row.text("deleted") == "1" else row.text("value"),
    )


def _task_event(row: Row) -> borg_events.Event:
    return borg_events.TaskEvent(
        at_us=_time_us(row),
        where=row.where,
        key=(_whole(row, "job"), _whole(row, "index")),
        change=_TASK[_code(row, "change", len(_TASK))],
        machine=row.text("machine"),
        priority=_code(row, "priority", _PRIORITIES) if row.text("priority") else 0,
        scheduling_class=row.text("class"),
        cpu=row.share("cpu"),
        memory=row.share("memory"),
        apart=row.text("different_machines") in {"1", "true"},
        is_repaired=bool(row.text("missing")),
    )


def _constraint(row: Row) -> borg_events.Event:
    operator = _OPERATORS[_code(row, "operator", len(_OPERATORS))]
    return borg_events.ConstraintEvent(
        at_us=_time_us(row),
        where=row.where,
        key=(_whole(row, "job"), _whole(row, "index")),
        constraint=borg_events.Constraint(
            operator=operator, name=row.text("name"), value=row.text("value")
        ),
    )


def _usage(row: Row) -> borg_events.Event:
    return borg_events.UsageEvent(
        at_us=_time_us(row, "start"),
        where=row.where,
        key=(_whole(row, "job"), _whole(row, "index")),
        cpu=row.share("cpu"),
        memory=row.share("memory"),
    )


_READERS: Mapping[str, Callable[[Row], borg_events.Event]] = {
    "machine_attributes": _attribute,
    "machine_events": _machine_event,
    "task_constraints": _constraint,
    "task_events": _task_event,
    "task_usage": _usage,
}
