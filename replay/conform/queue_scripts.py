"""The recorded scripts of upstream's PriorityQueue: how a run of one is compared.

Result and state are compared after every operation. Where upstream leaves the order of equal
entries open, both sides are put into one order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

Json = Mapping[str, Any]


def difference_of(
    mode: str,
    vector: Json,
    apply: Callable[[Json], dict[str, Any]],
    state: Callable[[], dict[str, Any] | None],
) -> str:
    """Do each operation by `apply`; tell where results or `state` differ, "" for nowhere.

    Where `state` is None, nobody has looked at it after this operation.
    """
    for step, (op, expected) in enumerate(zip(vector["script"], vector["expected"], strict=True)):
        result = apply(op)
        recorded = expected.get("result", {})
        ties = {name for name in recorded if name.endswith("_tie")}
        seen = state()
        actual = {"result": result, "state": comparable(seen or expected["state"], ties)}
        wanted = {
            "result": {name: recorded[name] for name in recorded if name not in ties},
            "state": comparable(expected["state"], ties),
        }
        if mode == "v1.16":  # recorded from a later version's entries: they say nothing here
            for side in (actual, wanted):
                drop_attempts(side)
        for part, value in wanted.items():
            if actual[part] != value:
                return (
                    f"{vector['id']} step {step} {json.dumps(op)}: {part}\n"
                    f"  upstream {value}\n  here     {actual[part]}"
                )
    return ""


def comparable(state: Json, ties: set[str]) -> dict[str, Any]:
    """Put unordered entries, and those that a marked tie leaves open, into one order."""
    unique = dict(state)
    unique["unschedulable"] = sorted(state["unschedulable"])
    if "active_tie" in ties:
        unique["active"] = sorted_within(state["active"], lambda row: row[2])
    if "backoff_tie" in ties:
        unique["backoff"] = sorted_within(state["backoff"], lambda row: row[3])
    return unique


def sorted_within(rows: list[Any], order: Callable[[Any], Any]) -> list[Any]:
    """Sort runs of neighbours that `order` does not tell apart."""
    sorted_rows: list[Any] = []
    run: list[Any] = []
    for row in rows:
        if run and order(run[-1]) != order(row):
            sorted_rows += sorted(run)
            run = []
        run.append(row)
    return sorted_rows + sorted(run)


def drop_attempts(side: dict[str, Any]) -> None:
    """Blank the attempts of results and entries."""
    side["result"] = {k: v for k, v in side["result"].items() if k != "attempts"}
    for name in ("active", "backoff", "unschedulable"):
        side["state"][name] = [[row[0], *row[2:]] for row in side["state"][name]]


def summary(active: int, backoff: int, unschedulable: int) -> str:
    """Return upstream's words for how many pods are pending."""
    return f"activeQ:{active}; backoffQ:{backoff}; unschedulablePods:{unschedulable}"


def refusing_plugins(op: Json) -> tuple[str, ...]:
    """Return who refused the pod of a script's cycle; without anyone named, "AnyPlugin" did."""
    plugins = tuple(op.get("plugins", ()))
    if plugins or op.get("pending") or op.get("err"):
        return plugins
    return ("AnyPlugin",)
