"""What a task used, as a profile that counts from its start."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from replay.importers.borg.events import UsageEvent
from replay.importers.borg.pods import Task
from replay.importers.options import ImportOptions
from replay.importers.shares import scaled
from reprieve.trace.v1alpha1.trace_pb2 import UsageProfile

WINDOWS_MAX = 512
_Window = tuple[int, Decimal | None, Decimal | None]


def note_usage(task: Task, event: UsageEvent) -> bool:
    """Add a window to a running task; tell whether windows had to be put together for it.

    Windows count from the sum of the task's runs, since a replay's pod runs them in one.
    """
    offset_us = task.ran_us + max(0, event.at_us - (task.running_us or 0))
    if task.usage and task.usage[-1][0] >= offset_us:
        return False
    task.usage.append((offset_us, event.cpu, event.memory))
    if len(task.usage) <= WINDOWS_MAX:
        return False
    task.usage[:] = [
        _together(first, second)
        for first, second in zip(task.usage[::2], [*task.usage[1::2], task.usage[-1]], strict=False)
    ]
    return True


def usage_profile(number: int, windows: Sequence[_Window], options: ImportOptions) -> UsageProfile:
    """Return the profile of a task's windows."""
    profile = UsageProfile(id=number)
    for offset_us, cpu, memory in windows:
        segment = profile.segments.add(offset_ns=offset_us * 1000)
        if cpu is not None:
            segment.cpu_milli = scaled(cpu, options.unit_cpu_milli)
        if memory is not None:
            segment.memory_bytes = scaled(memory, options.unit_memory_bytes)
    if profile.segments:
        profile.segments[0].offset_ns = 0
    return profile


def _together(first: _Window, second: _Window) -> _Window:
    return first[0], _larger(first[1], second[1]), _larger(first[2], second[2])


def _larger(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    known = [each for each in (one, other) if each is not None]
    return max(known) if known else None
