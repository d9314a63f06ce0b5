"""What the tables of Google's traces tell, whatever their form; times are us since the trace's 0.

Time 0 is before the window, which begins at 600 s. Shares are of the largest machine.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from typing import ClassVar

AFTER_US = 2**53
"""From here on a time means "after the window", which is written as 2^63-1, or 2^64-1."""
Key = tuple[int, int]
"""Collection (or job) and index."""


class Rank(IntEnum):
    """What comes first of events at one time."""

    ATTRIBUTE = 0
    MACHINE = 1
    CONSTRAINT = 2
    TASK = 3
    USAGE = 4


class TaskChange(Enum):
    """What happens to a task."""

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
    """What happens to a machine."""

    ADD = "ADD"
    REMOVE = "REMOVE"
    UPDATE = "UPDATE"


class Operator(Enum):
    """How a constraint compares a machine's attribute."""

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
    """What a task asks of a machine's attribute."""

    operator: Operator
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A line of a table; events of one time come in the order of their ranks."""

    rank: ClassVar[Rank]
    at_us: int
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEvent(Event):
    """A change of a task. `machine` "" is none; `apart`: not on a machine with its like.

    `in_alloc`: it uses what a reservation holds, and nothing of a machine. `is_repaired`: the
    trace's makers put the event in where they had none.
    """

    rank = Rank.TASK
    key: Key
    change: TaskChange
    machine: str = ""
    priority: int = 0
    scheduling_class: str = ""
    cpu: Decimal | None = None
    memory: Decimal | None = None
    apart: bool = False
    in_alloc: bool = False
    is_repaired: bool = False
    constraints: tuple[Constraint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineEvent(Event):
    """A change of a machine; unknown sizes are None."""

    rank = Rank.MACHINE
    machine: str
    change: MachineChange
    cpu: Decimal | None
    memory: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeEvent(Event):
    """An attribute of a machine is set, or taken away (`value` None)."""

    rank = Rank.ATTRIBUTE
    machine: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintEvent(Event):
    """A constraint of a task that is submitted at that time."""

    rank = Rank.CONSTRAINT
    key: Key
    constraint: Constraint


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitEvent(Event):
    """How many tasks of a collection may be on a machine, or a switch; 0: any number."""

    rank = Rank.CONSTRAINT
    collection: int
    per_machine: int
    per_switch: int
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageEvent(Event):
    """What a task used from `at_us` on."""

    rank = Rank.USAGE
    key: Key
    cpu: Decimal | None
    memory: Decimal | None


def merged(tables: Iterable[Iterable[Event]]) -> Iterator[Event]:
    """Yield the events of tables that are each in order of time, in one order."""
    return heapq.merge(*tables, key=lambda event: (event.at_us, event.rank))
