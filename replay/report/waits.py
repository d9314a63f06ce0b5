"""How long pods waited for a node, and how long each step of the replay took."""

from __future__ import annotations

from collections.abc import Sequence

from replay.report.figure import Cell, Figure, Option
from replay.report.source import GROUPS_MAX, OTHER, Source
from replay.results import durations

_FIRST_NS = 1_000_000
"""Shorter waits are drawn here: a logarithmic axis has no 0."""
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


def waiting(source: Source) -> Figure:
    """Return the share of pods that had a node after so long, by priority."""
    counts: dict[str, list[tuple[int, int]]] = {}
    for name, bucket, pods in source.rows(_WAITS):
        counts.setdefault(name, []).append((bucket, pods))
    names = sorted(counts, key=lambda name: (name == OTHER, -int(name) if name != OTHER else 0))
    series = [_distribution(name, counts[name]) for name in names]
    longest_s = max((each["data"][-1][0] for each in series), default=1.0)
    for each in series:
        each["data"].append([longest_s * 1.2, 100.0])
    rows = [
        [str(priority), bound, *_simulated([*(quantiles or [None] * 3), longest]), left]
        for priority, bound, quantiles, longest, left in source.rows(_QUANTILES)
    ]
    return Figure(
        key="waiting",
        title="Waiting time by priority",
        note="The share of the pods that had a node after so long in the queue, of those that got "
        "one; simulated time from the first entry into the queue to the binding.",
        empty="No pod was bound.",
        charts={"": _cumulative(series, longest_s * 1.2)} if series else {},
        columns=("Priority", "Bound", "P50", "P90", "P99", "Longest", "Pending at the end"),
        rows=rows,
    )


def _distribution(name: str, counts: Sequence[tuple[int, int]]) -> Option:
    total, seen = sum(pods for _, pods in counts), 0
    points = []
    for bucket, pods in counts:
        seen += pods
        upto_s = _FIRST_NS * 10 ** (bucket / _PER_DECADE) / 1e9
        points.append([float(f"{upto_s:.4g}"), round(100 * seen / total, 2)])
    return {
        "type": "line",
        "name": name if name == OTHER else f"priority {name}",
        "step": "end",
        "symbol": "circle",
        "symbolSize": 5,
        "data": points,
    }


def _cumulative(series: Sequence[Option], x_max: float) -> Option:
    lowest = min(each["data"][0][1] for each in series)
    return {
        "grid": {"left": 8, "right": 24, "top": 40, "bottom": 8, "containLabel": True},
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
    return ["-" if each is None else durations.simulated(each) for each in values]


def latencies(source: Source) -> Figure:
    """Return what each step took on the wall clock."""
    found = list(source.rows(_LATENCIES))
    shown = list(reversed(found))
    series = [
        {
            "type": "scatter",
            "name": name,
            "symbol": symbol,
            "symbolSize": 12,
            "data": [[max(1, row[column]), row[0]] for row in shown],
        }
        for column, (name, symbol) in enumerate(
            zip(("median", "90th percentile", "99th percentile", "longest"), _SYMBOLS, strict=True),
            2,
        )
    ]
    chart: Option = {
        "grid": {"left": 8, "right": 24, "top": 40, "bottom": 8, "containLabel": True},
        "legend": {"type": "scroll", "top": 0},
        "tooltip": {"trigger": "item", "formatter": "@wallPoint"},
        "xAxis": {
            "type": "log",
            "axisLabel": {"formatter": "@wall", "hideOverlap": True},
        },
        "yAxis": {
            "type": "category",
            "data": [row[0] for row in shown],
            "splitLine": {"show": True},
        },
        "series": series,
    }
    return Figure(
        key="latencies",
        title="Latency of each step",
        note="What the steps of the replay took on the wall clock of the machine that ran it, "
        "those that took most in total first.",
        empty="Nothing was measured: the run broke off.",
        charts={"": chart} if found else {},
        columns=("Step", "Count", "P50", "P90", "P99", "Longest"),
        rows=[[row[0], row[1], *map(durations.wall, row[2:])] for row in found],
        height=110 + _ROW_PX * len(found),
    )
