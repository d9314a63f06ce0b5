"""Plays scripts of the autoscaler's scans, and compares what each scan reports.

Scan i is at (i + 1) x scan_interval_ms. At one instant the autoscaler's background work comes first
(evictions, deletions), then the script's operations in their order, then the scan. What the
background work has to do at once after a scan belongs to that scan.

A script's outcome may depend on an order that upstream leaves to chance. Recorded is the outcome of
one order (by name), with others as alternatives of the first scan that may differ. An autoscaler
that iterates in that order is compared to the end; of another one only the scans before the first
that may differ are compared, and that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import orjson

from replay.conform.autoscaler.cluster import (
    DELETION_CANDIDATE,
    TO_BE_DELETED,
    Json,
    ScriptedChange,
    ScriptedCluster,
)

Carry = Callable[[Json], str]
"""Carries out a call of the autoscaler's; returns why it is refused, "" if it is not."""
_LOGGED = {"increase_size", "decrease_target_size", "delete_nodes", "evict"}


class ScriptedAutoscaler(Protocol):
    """An autoscaler that a script is played with; times are a script's.

    Carrying out a call may change objects; the player applies such changes before it returns.
    """

    def apply(self, changes: Iterable[ScriptedChange]) -> None:
        """Take over changes of the cluster and of the cloud."""

    def start(self) -> None:
        """Start at time 0, after the changes of that time."""

    def next_due_ms(self) -> int | None:
        """Return when the background work is next due, None for no work."""

    def act(self, at_ms: int, carry: Carry) -> None:
        """Do the background work that is due."""

    def scan(self, at_ms: int, carry: Carry) -> Json:
        """Scan, and report it in the vectors' form, apart from what the cluster shows."""


def play(script: Json, autoscaler: ScriptedAutoscaler) -> Iterator[Json]:
    """Yield each scan's report, with the calls up to just before the next one."""
    config = script["config"]
    cluster = ScriptedCluster.of(config)
    clock = _Clock(cluster, autoscaler)
    operations = iter(sorted(script["script"], key=lambda op: op["at_ms"]))
    op = next(operations, None)
    while op is not None and op["at_ms"] <= 0:
        cluster.play(op)
        op = next(operations, None)
    clock.tell()
    autoscaler.start()
    report: Json | None = None
    interval_ms = config["scan_interval_ms"]
    for number in range(1, config["scans"] + 1):
        scan_ms = number * interval_ms
        while op is not None and op["at_ms"] <= scan_ms:
            clock.run_until(op["at_ms"])
            cluster.play(op)
            clock.tell()
            op = next(operations, None)
        clock.run_until(scan_ms)
        if report is not None:
            yield {**report, "calls": clock.take_calls()}
        report = clock.scan(scan_ms)
    clock.run_until(interval_ms * (config["scans"] + 1) - 1)
    if report is not None:
        yield {**report, "calls": clock.take_calls()}


def difference(script: Json, autoscaler: ScriptedAutoscaler, *, by_name: bool) -> str:
    """Return the first difference from a script's recorded scans, "" if none.

    `by_name`: the autoscaler iterates by name, as the recording does.
    """
    tie = script.get("ties_from_scan")
    scans = zip(play(script, autoscaler), script["expected"], strict=True)
    for number, (report, expected) in enumerate(scans):
        text = _difference(report, expected)
        if number == tie and not by_name:
            options = (expected, *script.get("alternatives", ()))
            return "" if not all(_difference(report, option) for option in options) else text
        if text:
            return f"scan {number} at {expected['at_ms']} ms: {text}"
    return ""


class _Clock:
    """Time between scans: the background work, evicted pods that are gone, and the calls."""

    def __init__(self, cluster: ScriptedCluster, autoscaler: ScriptedAutoscaler) -> None:
        self._cluster, self._autoscaler = cluster, autoscaler
        self._calls: list[Json] = []
        self._now_ms = 0
        self.tell()

    def tell(self) -> None:
        """Tell the autoscaler what has changed."""
        self._autoscaler.apply(self._cluster.take_changes())

    def run_until(self, at_ms: int) -> None:
        """Let time pass, up to and with what is due at that time."""
        while True:
            dues = (self._cluster.next_due_ms(), self._autoscaler.next_due_ms())
            due_ms = min((due for due in dues if due is not None), default=None)
            if due_ms is None or due_ms > at_ms:
                break
            self._now_ms = max(due_ms, self._now_ms)
            self._cluster.let_go(self._now_ms)
            self.tell()
            self._autoscaler.act(self._now_ms, self._carry)
        self._now_ms = at_ms

    def scan(self, at_ms: int) -> Json:
        """Scan, and report it with what the cluster shows after it."""
        self._now_ms = at_ms
        report = self._autoscaler.scan(at_ms, self._carry)
        cluster = self._cluster
        report |= {
            "at_ms": at_ms,
            "targets": {name: group.target for name, group in cluster.groups.items()},
            "to_be_deleted": cluster.nodes_with(TO_BE_DELETED),
            "deletion_candidates": cluster.nodes_with(DELETION_CANDIDATE),
        }
        return report

    def take_calls(self) -> list[Json]:
        """Return the calls since the last time, by time, then alphabetically."""
        calls, self._calls = self._calls, []
        return sorted(calls, key=_order)

    def _carry(self, call: Json) -> str:
        refusal = self._cluster.call(call, self._now_ms)
        if call["call"] in _LOGGED:
            logged = {"at_ms": self._now_ms, **call}
            self._calls.append({**logged, "refused": True} if refusal else logged)
        self.tell()
        return refusal


_SORTED = orjson.OPT_SORT_KEYS


def _order(call: Json) -> tuple[object, ...]:
    """Return the sort key of calls: their time, and then alphabetically."""
    nodes = ",".join(call.get("nodes", ()))
    return call["at_ms"], call["call"], call.get("group", ""), nodes, call.get("pod", "")


def _difference(report: Json, expected: Json) -> str:
    """Return how a report differs; absent fields count as empty."""
    for name in sorted({*report, *expected}):
        seen, recorded = report.get(name), expected.get(name)
        if _plain(seen) != _plain(recorded):
            return f"{name} {_text(seen)}, expected {_text(recorded)}"
    return ""


def _plain(value: object) -> object:
    """Return a value without its empty parts."""
    if isinstance(value, dict):
        kept = {name: _plain(part) for name, part in value.items()}
        return {name: part for name, part in kept.items() if not _is_empty(part)} or None
    if isinstance(value, list):
        return [_plain(part) for part in value] or None
    return None if _is_empty(value) else value


def _is_empty(value: object) -> bool:
    """Return whether a field of that value may be absent; 0 may not."""
    return value is None or value is False or value == ""


def _text(value: object) -> str:
    return orjson.dumps(value, option=_SORTED).decode()
