"""A run in the Trace Event Format, which Perfetto and Chrome's tracing open.

Every node is a process. Its pods are slices, on as many threads as pods overlap in time;
preemptions and evictions are instant events. The process of the cluster has counters of pending
pods. Timestamps are simulated microseconds since the run's beginning.

A run does not record the sub-queue of a waiting pod. Instead, pending pods are counted as not tried
yet, refused, or nominated for a node.

Source: the document "Trace Event Format" of the Chromium project.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from replay.results.tables.query import RunTables

TraceEvent = dict[str, Any]
_CLUSTER = 0
_ARGUMENTS = (
    *("priority", "waited_ns", "attempts", "preempted_by", "evicted_signal"),
    *("cpu_milli", "memory_bytes"),
)

_NODES = """
SELECT node_name FROM (SELECT node_name FROM nodes UNION SELECT node_name FROM pods)
WHERE node_name IS NOT NULL ORDER BY node_name
"""
_PODS = """
SELECT node_name, coalesce(scheduled_ns, created_ns) AS from_ns, coalesce(ended_ns, $end) AS to_ns,
    namespace || '/' || name, ending, priority, waited_ns, attempts, preempted_by, evicted_signal,
    cpu_milli, memory_bytes
FROM pods WHERE node_name IS NOT NULL ORDER BY node_name, from_ns, uid
"""
_DISPLACED = """
SELECT at_ns, node_name, 'Preempted' AS what, namespace || '/' || name,
    'by ' || by_namespace || '/' || by_name FROM preemptions
UNION ALL
SELECT at_ns, node_name, 'Evicted', namespace || '/' || name,
    coalesce(signal, 'local storage limit') FROM evictions
ORDER BY ALL
"""
_PENDING = """
WITH waiting AS (
    SELECT pods.*, tried.at_ns AS tried_ns, coalesce(scheduled_ns, ended_ns) AS over_ns
    FROM pods LEFT JOIN (
        SELECT uid, min(at_ns) AS at_ns FROM attempts WHERE result <> 'Scheduled' GROUP BY uid
    ) AS tried USING (uid)
    WHERE node_name IS NULL OR scheduled_ns IS NOT NULL
),
nominated AS (
    SELECT uid, at_ns, sequence, CAST(kind = 'nominated' AND node_name IS NOT NULL AS INTEGER) AS v
    FROM decisions
    WHERE kind IN ('nominated', 'finished', 'removed') OR (kind = 'scheduled' AND refused IS NULL)
),
turns AS (
    SELECT at_ns, v - lag(v, 1, 0) OVER (PARTITION BY uid ORDER BY sequence) AS d FROM nominated
),
deltas AS (
    SELECT created_ns AS t, 1 AS untried, 0 AS refused, 0 AS nominated FROM waiting
    UNION ALL SELECT coalesce(tried_ns, over_ns), -1, 0, 0 FROM waiting
    UNION ALL SELECT tried_ns, 0, 1, 0 FROM waiting
    UNION ALL SELECT over_ns, 0, -1, 0 FROM waiting WHERE tried_ns IS NOT NULL
    UNION ALL SELECT at_ns, 0, -d, d FROM turns WHERE d <> 0
)
SELECT t, sum(untried), sum(refused), sum(nominated) FROM deltas
WHERE t IS NOT NULL GROUP BY t ORDER BY t
"""


def trace_events(tables: RunTables) -> Iterator[TraceEvent]:
    """Yield a run's trace events; memory is bounded by the pods that overlap on a node."""
    start_ns, end_ns = next(tables.select("SELECT start_ns, end_ns FROM run").rows())
    processes = {name: pid for pid, (name,) in enumerate(tables.select(_NODES).rows(), 1)}
    yield _named(_CLUSTER, "cluster")
    for name, pid in processes.items():
        yield _named(pid, f"node {name}")
    yield from _slices(tables, processes, start_ns, end_ns)
    yield from _instants(tables, processes, start_ns)
    yield from _counters(tables, start_ns)


def _named(pid: int, name: str) -> TraceEvent:
    return {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}


def _slices(
    tables: RunTables, processes: dict[str, int], start_ns: int, end_ns: int
) -> Iterator[TraceEvent]:
    lanes, last_node = Lanes(), ""
    for node, from_ns, to_ns, pod, ending, *rest in tables.select(_PODS, {"end": end_ns}).rows():
        if node != last_node:
            lanes, last_node = Lanes(), node
        args = {"ending": ending, **dict(zip(_ARGUMENTS, rest, strict=True))}
        yield {
            "ph": "X",
            "name": pod,
            "cat": ending,
            "pid": processes[node],
            "tid": lanes.take(from_ns, to_ns) + 1,
            "ts": (from_ns - start_ns) / 1000,
            "dur": (to_ns - from_ns) / 1000,
            "args": {key: value for key, value in args.items() if value is not None},
        }


def _instants(tables: RunTables, processes: dict[str, int], start_ns: int) -> Iterator[TraceEvent]:
    for at_ns, node, what, pod, why in tables.select(_DISPLACED).rows():
        yield {
            "ph": "i",
            "s": "p",
            "name": f"{what} {pod}",
            "cat": what,
            "pid": processes.get(node, _CLUSTER),
            "tid": 0,
            "ts": (at_ns - start_ns) / 1000,
            "args": {"why": why},
        }


def _counters(tables: RunTables, start_ns: int) -> Iterator[TraceEvent]:
    untried = refused = nominated = 0
    for at_ns, more_untried, more_refused, more_nominated in tables.select(_PENDING).rows():
        untried += more_untried
        refused += more_refused
        nominated += more_nominated
        yield {
            "ph": "C",
            "name": "pending pods",
            "pid": _CLUSTER,
            "tid": 0,
            "ts": (at_ns - start_ns) / 1000,
            "args": {"not tried yet": untried, "refused": refused, "nominated": nominated},
        }


class Lanes:
    """Assigns each interval the first free row; intervals must be ordered by their beginning."""

    def __init__(self) -> None:
        self._busy: list[tuple[float, int]] = []
        self._free: list[int] = []
        self._count = 0

    def take(self, begin: float, end: float) -> int:
        """Return the row of an interval, from 0."""
        while self._busy and self._busy[0][0] <= begin:
            heapq.heappush(self._free, heapq.heappop(self._busy)[1])
        if self._free:
            row = heapq.heappop(self._free)
        else:
            row, self._count = self._count, self._count + 1
        heapq.heappush(self._busy, (end, row))
        return row
