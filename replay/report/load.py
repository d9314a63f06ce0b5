"""Utilisation, pending pods and waiting times by priority, and wall times of the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from replay.report.section import (
    BUCKETS,
    GROUPS_MAX,
    OTHER,
    Cell,
    Option,
    ReportSection,
    ReportTables,
    bucket_s,
    grid,
    line,
    over_time,
    percentages,
    points,
    stepped,
)
from replay.results import durations

_RESOURCES_MAX = 6
_TABLE_ROWS = 40

PENDING = """
SELECT CAST(priority AS VARCHAR) AS name, created_ns AS t, 1 AS d
FROM pods WHERE node_name IS NULL OR scheduled_ns IS NOT NULL
UNION ALL
SELECT CAST(priority AS VARCHAR), coalesce(scheduled_ns, ended_ns), -1
FROM pods WHERE scheduled_ns IS NOT NULL OR (node_name IS NULL AND ended_ns IS NOT NULL)
"""
BOUND = """
SELECT CAST(priority AS VARCHAR) AS name, coalesce(scheduled_ns, created_ns) AS t,
    requests['{resource}'] AS d
FROM pods WHERE node_name IS NOT NULL AND requests['{resource}'] > 0
    AND ended_ns IS DISTINCT FROM created_ns
UNION ALL
SELECT CAST(priority AS VARCHAR), ended_ns, -requests['{resource}']
FROM pods WHERE node_name IS NOT NULL AND requests['{resource}'] > 0
    AND ended_ns IS NOT NULL AND ended_ns <> created_ns
"""
CAPACITY = """
SELECT 'all' AS name, added_ns AS t, allocatable['{resource}'] AS d
FROM nodes WHERE allocatable['{resource}'] > 0
UNION ALL
SELECT 'all', removed_ns, -allocatable['{resource}']
FROM nodes WHERE removed_ns IS NOT NULL AND allocatable['{resource}'] > 0
"""
RESOURCES = """
SELECT resource, count(*) AS pods FROM (SELECT unnest(map_keys(requests)) AS resource FROM pods)
WHERE resource IN (SELECT DISTINCT unnest(map_keys(allocatable)) FROM nodes)
GROUP BY resource
ORDER BY resource NOT IN ('cpu', 'memory'), resource = 'pods', pods DESC, resource LIMIT {limit}
"""
_FIRST_NS = 1_000_000
"""Shorter waits are drawn at this value, because a logarithmic axis has no 0."""
_PER_DECADE = 12

_WAITS = f"""
WITH ranked AS (
    SELECT priority,
        row_number() OVER (ORDER BY count(*) DESC, priority DESC) <= {GROUPS_MAX} AS kept
    FROM pods WHERE waited_ns IS NOT NULL GROUP BY priority
)
SELECT CASE WHEN kept THEN CAST(priority AS VARCHAR) ELSE '{OTHER}' END AS name,
    CAST(ceil(log10(greatest(waited_ns / {_FIRST_NS}, 1)) * {_PER_DECADE}) AS INTEGER) AS i,
    count(*) AS pods
FROM pods JOIN ranked USING (priority)
WHERE waited_ns IS NOT NULL GROUP BY ALL ORDER BY ALL
"""  # noqa: S608 - made of this module's own constants
_QUANTILES = """
SELECT priority, count(waited_ns), quantile_disc(waited_ns, [0.5, 0.9, 0.99]), max(waited_ns),
    count(*) FILTER (ending = 'Pending')
FROM pods WHERE waited_ns IS NOT NULL OR ending = 'Pending'
GROUP BY priority ORDER BY priority DESC LIMIT 100
"""
_LATENCIES = """
SELECT step, count, p50_ns, p90_ns, p99_ns, max_ns FROM latencies WHERE count > 0
ORDER BY sum_ns DESC
"""
_SYMBOLS = ("circle", "diamond", "triangle", "rect")
_ROW_PX = 34


def utilisation(source: ReportTables) -> ReportSection:
    """Return the section with the requests of bound pods as a percentage of allocatable."""
    named = source.rows(RESOURCES.format(limit=_RESOURCES_MAX))
    resources = [name.replace("'", "''") for name, _ in named]
    kinds = {"bound": BOUND, "capacity": CAPACITY}
    values = stepped(
        source,
        {(kind, name): kinds[kind].format(resource=name) for kind in kinds for name in resources},
    )
    charts: dict[str, Option] = {}
    rows: list[list[Cell]] = []
    for resource in resources:
        used, have = values["bound", resource], values["capacity", resource].get("all")
        if have is None or not used:
            continue
        shares = {name: percentages(steps.means, have.means) for name, steps in used.items()}
        series = [
            line(_label(name), points(source, shares[name]), stack="all")
            for name in by_priority(shares)
        ]
        top = max(map(sum, zip(*shares.values(), strict=True)))
        y_max = 100 if top <= 100 else None
        charts[resource] = over_time(series, end_s=source.end_s, y_format="@percent", y_max=y_max)
        rows += _rows(source, shares, resource)
    return ReportSection(
        key="utilisation",
        title="Utilisation by priority",
        note="Requests of bound pods as a share of the nodes' allocatable: the mean over "
        f"each {durations.simulated(round(bucket_s(source) * 1e9))} of simulated time.",
        empty="No bound pod requests anything.",
        charts=charts,
        choice="Resource",
        columns=("Resource", "From", "Priority", "Requested, % of allocatable"),
        rows=rows,
        left_out=f"all but every {BUCKETS // _TABLE_ROWS}th interval of the chart",
    )


def pending(source: ReportTables) -> ReportSection:
    """Return the section with the number of pods without a node, by priority."""
    by_priority_ = stepped(source, {"": PENDING})[""]
    peaks = {name: steps.peaks for name, steps in by_priority_.items()}
    series = [line(_label(name), points(source, peaks[name])) for name in by_priority(peaks)]
    chart = over_time(series, end_s=source.end_s, y_format="@count", y_max=None)
    return ReportSection(
        key="pending",
        title="Pending pods by priority",
        note="Pods without a node: the maximum within each "
        f"{durations.simulated(round(bucket_s(source) * 1e9))} of simulated time.",
        empty="Every pod was created with its node.",
        charts={"": chart} if series else {},
        columns=("From", "Priority", "Most pending pods"),
        rows=[row[1:] for row in _rows(source, peaks, "")],
        left_out=f"all but every {BUCKETS // _TABLE_ROWS}th interval of the chart",
    )


def by_priority(names: Mapping[str, object]) -> list[str]:
    """Sort names of priorities, the highest first, OTHER last."""
    return sorted(names, key=lambda name: (name == OTHER, -int(name) if name != OTHER else 0))


def _label(name: str) -> str:
    return name if name == OTHER else f"priority {name}"


def _rows(
    source: ReportTables, values: Mapping[str, Sequence[float]], what: str
) -> list[list[Cell]]:
    width = bucket_s(source)
    return [
        [what, durations.simulated(round(i * width * 1e9)), name, values[name][i]]
        for i in range(0, BUCKETS, BUCKETS // _TABLE_ROWS)
        for name in by_priority(values)
    ]


def waiting(source: ReportTables) -> ReportSection:
    """Return the section with the distribution of waits until the binding, by priority."""
    counts: dict[str, list[tuple[int, int]]] = {}
    for name, bucket, pods in source.rows(_WAITS):
        counts.setdefault(name, []).append((bucket, pods))
    series = [_distribution(name, counts[name]) for name in by_priority(counts)]
    longest_s = max((curve["data"][-1][0] for curve in series), default=1.0)
    for curve in series:
        curve["data"].append([longest_s * 1.2, 100.0])
    rows = [
        [str(priority), bound, *_simulated([*(quantiles or [None] * 3), longest]), pending_pods]
        for priority, bound, quantiles, longest, pending_pods in source.rows(_QUANTILES)
    ]
    return ReportSection(
        key="waiting",
        title="Waiting time by priority",
        note="The share of bound pods that were bound within this time; simulated time from the "
        "first entry into the queue to the binding.",
        empty="No pod was bound.",
        charts={"": _cumulative(series, longest_s * 1.2)} if series else {},
        columns=("Priority", "Bound", "P50", "P90", "P99", "Max", "Pending at the end"),
        rows=rows,
    )


def _distribution(name: str, counts: Sequence[tuple[int, int]]) -> Option:
    total, seen = sum(pods for _, pods in counts), 0
    curve = []
    for bucket, pods in counts:
        seen += pods
        upto_s = _FIRST_NS * 10 ** (bucket / _PER_DECADE) / 1e9
        curve.append([float(f"{upto_s:.4g}"), round(100 * seen / total, 2)])
    return {
        "type": "line",
        "name": _label(name),
        "step": "end",
        "symbol": "circle",
        "symbolSize": 5,
        "data": curve,
    }


def _cumulative(series: Sequence[Option], x_max: float) -> Option:
    lowest = min(curve["data"][0][1] for curve in series)
    return {
        "grid": grid(right=24),
        "legend": {"type": "scroll", "top": 0},
        "tooltip": {"trigger": "axis", "valueFormatter": "@percent"},
        "xAxis": {
            "type": "log",
            "min": _FIRST_NS / 1e9,
            "max": x_max,
            "axisLabel": {"formatter": "@duration", "hideOverlap": True, "showMaxLabel": False},
            "axisPointer": {"label": {"formatter": "@pointer"}},
        },
        "yAxis": {
            "type": "value",
            "min": lowest // 10 * 10,
            "max": 100,
            "axisLabel": {"formatter": "@percent"},
        },
        "series": list(series),
    }


def _simulated(values: Sequence[int | None]) -> list[Cell]:
    return ["-" if value is None else durations.simulated(value) for value in values]


def latencies(source: ReportTables) -> ReportSection:
    """Return the section with the wall time of each step."""
    steps = list(source.rows(_LATENCIES))
    shown = list(reversed(steps))
    series = [
        {
            "type": "scatter",
            "name": name,
            "symbol": symbol,
            "symbolSize": 12,
            "data": [[max(1, row[column]), row[0]] for row in shown],
        }
        for column, (name, symbol) in enumerate(
            zip(("median", "90th percentile", "99th percentile", "maximum"), _SYMBOLS, strict=True),
            2,
        )
    ]
    chart: Option = {
        "grid": grid(right=24),
        "legend": {"type": "scroll", "top": 0},
        "tooltip": {"trigger": "item", "formatter": "@wallPoint"},
        "xAxis": {"type": "log", "axisLabel": {"formatter": "@wall", "hideOverlap": True}},
        "yAxis": {
            "type": "category",
            "data": [row[0] for row in shown],
            "splitLine": {"show": True},
        },
        "series": series,
    }
    return ReportSection(
        key="latencies",
        title="Latency of each step",
        note="Wall time of the replay's steps on the machine that ran it, by total time.",
        empty="Nothing was measured: the run was aborted.",
        charts={"": chart} if steps else {},
        columns=("Step", "Count", "P50", "P90", "P99", "Max"),
        rows=[[row[0], row[1], *map(durations.wall, row[2:])] for row in steps],
        height=110 + _ROW_PX * len(steps),
    )
