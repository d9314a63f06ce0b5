"""Utilisation and pending pods over simulated time, by priority."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from replay.report.figure import Cell, Figure, Option, line, over_time
from replay.report.source import BUCKETS, OTHER, Source
from replay.report.steps import bucket_s, stepped
from replay.results import durations

_RESOURCES_MAX = 6
_TABLE_ROWS = 40

_PENDING = """
SELECT CAST(priority AS VARCHAR) AS name, created_ns AS t, 1 AS d
FROM pods WHERE node_name IS NULL OR scheduled_ns IS NOT NULL
UNION ALL
SELECT CAST(priority AS VARCHAR), coalesce(scheduled_ns, ended_ns), -1
FROM pods WHERE scheduled_ns IS NOT NULL OR (node_name IS NULL AND ended_ns IS NOT NULL)
"""
_BOUND = """
SELECT CAST(priority AS VARCHAR) AS name, coalesce(scheduled_ns, created_ns) AS t,
    requests['{resource}'] AS d
FROM pods WHERE node_name IS NOT NULL AND requests['{resource}'] > 0
    AND ended_ns IS DISTINCT FROM created_ns
UNION ALL
SELECT CAST(priority AS VARCHAR), ended_ns, -requests['{resource}']
FROM pods WHERE node_name IS NOT NULL AND requests['{resource}'] > 0
    AND ended_ns IS NOT NULL AND ended_ns <> created_ns
"""
_CAPACITY = """
SELECT 'all' AS name, added_ns AS t, allocatable['{resource}'] AS d
FROM nodes WHERE allocatable['{resource}'] > 0
UNION ALL
SELECT 'all', removed_ns, -allocatable['{resource}']
FROM nodes WHERE removed_ns IS NOT NULL AND allocatable['{resource}'] > 0
"""
_RESOURCES = """
SELECT resource, count(*) AS pods FROM (SELECT unnest(map_keys(requests)) AS resource FROM pods)
WHERE resource IN (SELECT DISTINCT unnest(map_keys(allocatable)) FROM nodes)
GROUP BY resource
ORDER BY resource NOT IN ('cpu', 'memory'), resource = 'pods', pods DESC, resource LIMIT {limit}
"""


def utilisation(source: Source) -> Figure:
    """Return what bound pods request of each resource, as a share of what nodes have."""
    found = source.rows(_RESOURCES.format(limit=_RESOURCES_MAX))
    charts: dict[str, Option] = {}
    rows: list[list[Cell]] = []
    for resource in [name.replace("'", "''") for name, _ in found]:
        used = stepped(source, _BOUND.format(resource=resource))
        have = stepped(source, _CAPACITY.format(resource=resource)).get("all")
        if have is None or not used:
            continue
        shares = {name: _share(steps.means, have.means) for name, steps in used.items()}
        series = [
            line(_label(name), _points(source, shares[name]), stack="all")
            for name in by_priority(shares)
        ]
        top = max(map(sum, zip(*shares.values(), strict=True)))
        y_max = 100 if top <= 100 else None
        charts[resource] = over_time(series, end_s=source.end_s, y_format="@percent", y_max=y_max)
        rows += _rows(source, shares, resource)
    return Figure(
        key="utilisation",
        title="Utilisation by priority",
        note="What bound pods request, as a share of what the nodes have for pods; the mean over "
        f"each {durations.simulated(round(bucket_s(source) * 1e9))} of simulated time.",
        empty="No pod was bound that requests anything.",
        charts=charts,
        choice="Resource",
        columns=("Resource", "From", "Priority", "Requested, % of allocatable"),
        rows=rows,
        left_out=f"all but every {BUCKETS // _TABLE_ROWS}th of the moments that are charted",
    )


def pending(source: Source) -> Figure:
    """Return how many pods have no node, by priority."""
    found = stepped(source, _PENDING)
    peaks = {name: steps.peaks for name, steps in found.items()}
    series = [line(_label(name), _points(source, peaks[name])) for name in by_priority(peaks)]
    chart = over_time(series, end_s=source.end_s, y_format="@count", y_max=None)
    return Figure(
        key="pending",
        title="Pending pods by priority",
        note="Pods without a node: the most at once within each "
        f"{durations.simulated(round(bucket_s(source) * 1e9))} of simulated time.",
        empty="Every pod came with its node.",
        charts={"": chart} if series else {},
        columns=("From", "Priority", "Most pending pods"),
        rows=[row[1:] for row in _rows(source, peaks, "")],
        left_out=f"all but every {BUCKETS // _TABLE_ROWS}th of the moments that are charted",
    )


def by_priority(names: Mapping[str, object]) -> list[str]:
    """Return names of priorities, the highest first, and what was put together last."""
    return sorted(names, key=lambda name: (name == OTHER, -int(name) if name != OTHER else 0))


def _label(name: str) -> str:
    return name if name == OTHER else f"priority {name}"


def _share(used: Sequence[float], have: Sequence[float]) -> list[float]:
    return [round(100 * u / h, 2) if h else 0.0 for u, h in zip(used, have, strict=True)]


def _points(source: Source, values: Sequence[float]) -> list[list[float]]:
    width = bucket_s(source)
    points = [[round(i * width, 3), value] for i, value in enumerate(values)]
    return [*points, [round(source.end_s, 3), values[-1]]]


def _rows(source: Source, values: Mapping[str, Sequence[float]], what: str) -> list[list[Cell]]:
    width = bucket_s(source)
    return [
        [what, durations.simulated(round(i * width * 1e9)), name, values[name][i]]
        for i in range(0, BUCKETS, BUCKETS // _TABLE_ROWS)
        for name in by_priority(values)
    ]
