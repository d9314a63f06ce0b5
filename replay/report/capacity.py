"""Capacity that waiting pods could not use, and why pods were unschedulable."""

from __future__ import annotations

from collections import Counter

from replay.compare.verdict import PREEMPTION_MARK, counted_reasons
from replay.report.section import (
    GROUPS_MAX,
    OTHER,
    Cell,
    Option,
    ReportSection,
    ReportTables,
    grid,
    line,
    over_time,
)

_RESOURCES_MAX = 6
_REASONS_MAX = 12
_REASONS_LISTED = 100
_ROW_PX = 46
_FREE = """
SELECT resource, reason, at_ns, 100 * free / allocatable FROM free_capacity
WHERE allocatable > 0 AND resource IN (
    SELECT resource FROM free_capacity WHERE waiting_pods > 0 GROUP BY resource
    ORDER BY resource NOT IN ('cpu', 'memory'), resource LIMIT $limit)
ORDER BY resource NOT IN ('cpu', 'memory'), resource, at_ns
"""
_STRANDED = """
FROM (
    SELECT resource, reason,
        avg(100 * free / allocatable) * count(*) / any_value(moments) AS share, count(*)
    FROM free_capacity JOIN (
        SELECT resource, count(DISTINCT at_ns) AS moments FROM free_capacity
        WHERE waiting_pods > 0 GROUP BY resource) USING (resource)
    WHERE waiting_pods > 0 AND allocatable > 0 GROUP BY ALL
)
ORDER BY resource NOT IN ('cpu', 'memory'), resource, share DESC LIMIT 100
"""
_MESSAGES = """
SELECT message, count(*), 0 FROM attempts WHERE message IS NOT NULL GROUP BY ALL
UNION ALL
SELECT last_message, 0, count(*) FROM pods
WHERE ending = 'Pending' AND last_message IS NOT NULL GROUP BY ALL
"""
_NO_POD = "no pod waits"


def fragmentation(source: ReportTables) -> ReportSection:
    """Return the free capacity while pods waited, by why they could not use it."""
    points: dict[str, dict[int, dict[str, float]]] = {}
    for resource, reason, at_ns, share in source.rows(_FREE, {"limit": _RESOURCES_MAX}):
        at = points.setdefault(resource, {}).setdefault(at_ns, {})
        at[reason or _NO_POD] = share
    charts = {resource: _free_chart(source, at) for resource, at in points.items()}
    rows: list[list[Cell]] = [
        [resource, reason, round(share, 2), moments]
        for resource, reason, share, moments in source.rows(_STRANDED)
    ]
    return ReportSection(
        key="fragmentation",
        title="Free capacity that waiting pods could not use",
        note="Capacity that no pod requested, as a share of allocatable, by why the average "
        "waiting pod could not use it: judged by taints, node affinity and requests. Where the "
        "pod fits, another rule refused it or it was not its turn.",
        empty="No pod waited at any sampled moment.",
        charts=charts,
        choice="Resource",
        columns=("Resource", "Reason", "Free while pods waited, % of allocatable", "Moments"),
        rows=rows,
    )


def _free_chart(source: ReportTables, at: dict[int, dict[str, float]]) -> Option:
    weight: Counter[str] = Counter()
    for shares in at.values():
        weight.update(shares)
    kept = [name for name, _ in weight.most_common() if name != _NO_POD][: GROUPS_MAX - 1]
    names = [*kept, *([OTHER] if len(weight) - (_NO_POD in weight) > len(kept) else [])]
    series = []
    for name in [*names, _NO_POD]:
        data = [
            [source.seconds(at_ns), round(_part(shares, name, kept), 2)]
            for at_ns, shares in sorted(at.items())
        ]
        series.append(line(name, data, stack="all"))
    return over_time(series, end_s=source.end_s, y_format="@percent", y_max=100)


def _part(shares: dict[str, float], name: str, kept: list[str]) -> float:
    if name == OTHER:
        return sum(each for key, each in shares.items() if key not in kept and key != _NO_POD)
    return shares.get(name, 0.0)


def reasons(source: ReportTables) -> ReportSection:
    """Return the reasons that refused most attempts."""
    attempts: Counter[str] = Counter()
    left: Counter[str] = Counter()
    for message, tried, pods in source.rows(_MESSAGES):
        for reason in refusals(message):
            attempts[reason] += tried
            left[reason] += pods
    ranked = sorted(attempts, key=lambda each: (-attempts[each], -left[each], each))
    shown = list(reversed(ranked[:_REASONS_MAX]))
    chart: Option = {
        "grid": grid(right=40),
        "legend": {"top": 0},
        "tooltip": {"trigger": "axis", "axisPointer": {"type": "shadow"}},
        "xAxis": {"type": "value", "minInterval": 1, "axisLabel": {"hideOverlap": True}},
        "yAxis": {"type": "category", "data": shown},
        "series": [
            {"type": "bar", "name": name, "data": [counts[each] for each in shown]}
            for name, counts in (("failed attempts", attempts), ("pods pending at the end", left))
        ],
    }
    return ReportSection(
        key="reasons",
        title="Why pods were unschedulable",
        note="Failed scheduling attempts by each reason that refused at least one node, and the "
        "pods without a node at the end whose last attempt had it.",
        empty="No scheduling attempt failed.",
        charts={"": chart} if ranked else {},
        columns=("Reason", "Failed attempts", "Pods pending at the end"),
        rows=[[each, attempts[each], left[each]] for each in ranked[:_REASONS_LISTED]],
        left_out=(
            f"reasons beyond the first {_REASONS_LISTED}" if len(ranked) > _REASONS_LISTED else ""
        ),
        height=110 + _ROW_PX * len(shown),
    )


def refusals(message: str) -> list[str]:
    """Return the reasons in a FitError's message, each once; any other message is itself a reason.

    Parts on preemption and resource claims are left out.
    Source: kubernetes v1.34 pkg/scheduler/framework/types.go, FitError.Error.
    """
    found = counted_reasons(message.partition(PREEMPTION_MARK)[0])
    return list(dict.fromkeys(reason for reason, _ in found))
