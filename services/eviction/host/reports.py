"""A live node's steps as text: a table for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson

from services.eviction.core.observations import MemoryStats
from services.eviction.host.watch import Kill, StepReport
from services.kube.quantity import Format, Quantity

_MIB = 1 << 20


def printer(output: str, write: Callable[[str], None]) -> Callable[[StepReport], None]:
    """Return the function that prints a step as lines ("table") or as one object ("json")."""
    if output == "json":
        return lambda report: write(orjson.dumps(_mapping(report)).decode())
    return lambda report: write("\n".join(_lines(report)))


def _lines(report: StepReport) -> list[str]:
    """Return a line for the step and one for each eviction."""
    at = datetime.fromtimestamp(report.at_ns / 1e9, UTC).strftime("%H:%M:%S")
    conditions = ", ".join(each.value for each in report.result.conditions_held) or "no pressure"
    found = [
        f"{at}  memory available {_amount(report.summary.memory)}, for pods "
        f"{_amount(report.summary.allocatable_memory)}; {report.pods} pods; {conditions}"
        + (f"  ({report.woken.value})" if report.woken.value != "interval" else "")
    ]
    found += [f"          threshold met: {each}" for each in report.result.thresholds_met]
    found += [f"          {_outcome(each)}" for each in report.kills]
    return found


def _outcome(kill: Kill) -> str:
    eviction = kill.eviction
    name = f"{eviction.namespace}/{eviction.name}" if eviction.namespace else eviction.name
    done = {None: "would evict", True: "evicted", False: "could not end"}[kill.ended]
    return f"{done} {name} (grace period {eviction.grace_period_s} s): {eviction.message.strip()}"


def _amount(stats: MemoryStats | None) -> str:
    if stats is None or stats.available_bytes is None:
        return "unknown"
    rounded = stats.available_bytes // _MIB * _MIB
    return str(Quantity.from_value(rounded, Format.BINARY_SI))


def _mapping(report: StepReport) -> dict[str, Any]:
    result = report.result
    return {
        "at_ns": report.at_ns,
        "woken": report.woken.value,
        "pods": report.pods,
        "memory": _memory(report.summary.memory),
        "allocatable_memory": _memory(report.summary.allocatable_memory),
        "conditions": [each.value for each in result.conditions_held],
        "thresholds_met": [str(each) for each in result.thresholds_met],
        "evictions": [
            {
                "uid": each.eviction.uid,
                "namespace": each.eviction.namespace,
                "name": each.eviction.name,
                "signal": each.eviction.cause,
                "grace_period_s": each.eviction.grace_period_s,
                "message": each.eviction.message,
                "ended": each.ended,
            }
            for each in report.kills
        ],
        "error": result.error,
    }


def _memory(stats: MemoryStats | None) -> dict[str, int | None] | None:
    if stats is None:
        return None
    return {"available_bytes": stats.available_bytes, "working_set_bytes": stats.working_set_bytes}
