"""The events of Google's traces, independent of the tables' form.

Times are us since the trace's 0. Time 0 is before the window, which begins at 600 s. Shares are of
the largest machine.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from typing import ClassVar

AFTER_US = 2**53
"""Times from here on mean "after the window", which is written as 2^63-1 or 2^64-1."""
InstanceKey = tuple[int, int]
"""Collection (in 2011: job) and index."""


class EventOrder(IntEnum):
    """The order of events at equal times."""

    ATTRIBUTE = 0
    MACHINE = 1
    CONSTRAINT = 2
    TASK = 3
    USAGE = 4


class TaskChange(Enum):
    """The type of a task's event, by its name and in the order of its numbers in the traces.

    2011 has no QUEUE and ENABLE. UPDATE is UPDATE_PENDING or UPDATE_RUNNING.
    """

    SUBMIT = "SUBMIT"
    QUEUE = "QUEUE"
    ENABLE = "ENABLE"
    SCHEDULE = "SCHEDULE"
    EVICT = "EVICT"
    FAIL = "FAIL"
    FINISH = "FINISH"
    KILL = "KILL"
    LOST = "LOST"
    UPDATE = "UPDATE"


class MachineChange(Enum):
    """The type of a machine's event, in the order of its numbers in the traces."""

    ADD = "ADD"
    REMOVE = "REMOVE"
    UPDATE = "UPDATE"


class ConstraintOperator(Enum):
    """The operators of constraints on attributes of machines; 2011 has the first four."""

    EQUAL = "EQUAL"
    NOT_EQUAL = "NOT_EQUAL"
    LESS_THAN = "LESS_THAN"
    GREATER_THAN = "GREATER_THAN"
    LESS_THAN_EQUAL = "LESS_THAN_EQUAL"
    GREATER_THAN_EQUAL = "GREATER_THAN_EQUAL"
    PRESENT = "PRESENT"
    NOT_PRESENT = "NOT_PRESENT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A task's constraint on an attribute of its machine."""

    operator: ConstraintOperator
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BorgEvent:
    """A row of a table."""

    order: ClassVar[EventOrder]
    at_us: int
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEvent(BorgEvent):
    """An event of a task. `machine` is "" for a task without a machine.

    `different_machines`: no machine runs two tasks of its job. `in_alloc`: the task runs within an
    alloc instance and reserves nothing on its machine. `has_missing_info`: the event was missing,
    and Google synthesized it.
    """

    order = EventOrder.TASK
    key: InstanceKey
    change: TaskChange
    machine: str = ""
    priority: int = 0
    scheduling_class: str = ""
    cpu: Decimal | None = None
    memory: Decimal | None = None
    different_machines: bool = False
    in_alloc: bool = False
    has_missing_info: bool = False
    constraints: tuple[Constraint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineEvent(BorgEvent):
    """An event of a machine; `cpu` and `memory` are None if they are missing."""

    order = EventOrder.MACHINE
    machine: str
    change: MachineChange
    cpu: Decimal | None
    memory: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineAttributeEvent(BorgEvent):
    """An attribute of a machine is set, or removed (`value` None)."""

    order = EventOrder.ATTRIBUTE
    machine: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConstraintEvent(BorgEvent):
    """A constraint of a task that is submitted at the same time."""

    order = EventOrder.CONSTRAINT
    key: InstanceKey
    constraint: Constraint


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionEvent(BorgEvent):
    """An event of a collection: its instances per machine and per switch, 0 for any number."""

    order = EventOrder.CONSTRAINT
    collection: int
    per_machine: int
    per_switch: int
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskUsageEvent(BorgEvent):
    """A task's usage from `at_us` on."""

    order = EventOrder.USAGE
    key: InstanceKey
    cpu: Decimal | None
    memory: Decimal | None


def merged(tables: Iterable[Iterable[BorgEvent]]) -> Iterator[BorgEvent]:
    """Yield the events of all tables in order; each table is in order of time."""
    return heapq.merge(*tables, key=lambda event: (event.at_us, event.order))
