"""Nodes over time: their pods, free capacity, and why waiting pods could not use that capacity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

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
    time_axis,
)
from replay.results import durations
from replay.results.spans.chrome_trace import Lanes

NODES_MAX = 40
PODS_MAX = 200
_ROWS_PER_NODE = 50
_LANES_MIN = 7
"""Minimum number of rows; with fewer, the bars of a node with few pods would be too high."""
_ENDINGS = (
    "Running",
    "Succeeded",
    "Failed",
    "Preempted",
    "Evicted",
    "Deleted",
    "NodeLost",
    "Pending",
)
_INTERVALS = f"""
WITH bound AS (
    SELECT *, coalesce(scheduled_ns, created_ns) AS from_ns,
        coalesce(ended_ns, $end) AS to_ns,
        ending IN ('Preempted', 'Evicted', 'NodeLost') AS displaced
    FROM pods WHERE node_name IS NOT NULL
),
chosen AS (
    SELECT node_name, row_number() OVER (ORDER BY count(*) FILTER (displaced) DESC, count(*) DESC,
        node_name) AS place, count(*) AS pods
    FROM bound GROUP BY node_name QUALIFY place <= {NODES_MAX}
),
kept AS (
    SELECT chosen.place, chosen.pods, bound.* FROM bound JOIN chosen USING (node_name)
    QUALIFY row_number() OVER (PARTITION BY node_name
        ORDER BY displaced DESC, to_ns - from_ns DESC, uid) <= {PODS_MAX}
)
SELECT node_name, pods, namespace || '/' || name, priority, from_ns, to_ns, ending,
    coalesce('by ' || preempted_by, evicted_signal, '')
FROM kept ORDER BY place, from_ns, uid
"""  # noqa: S608 - made of this module's own constants
_Interval = tuple[str, int, float, float, str, str]


def node_timeline(source: ReportTables) -> ReportSection:
    """Return the section with the pods over time on the nodes with the most displaced pods."""
    nodes: dict[str, list[_Interval]] = {}
    counts: dict[str, int] = {}
    for node, pods, pod, priority, from_ns, to_ns, ending, why in source.rows(
        _INTERVALS, {"end": source.start_ns + source.length_ns}
    ):
        times = source.seconds(from_ns), source.seconds(to_ns)
        nodes.setdefault(node, []).append((pod, priority, *times, ending, why))
        counts[node] = pods
    rows: list[list[Cell]] = []
    for node, intervals in nodes.items():
        for pod, priority, from_s, to_s, ending, why in intervals[:_ROWS_PER_NODE]:
            begun, ended = (durations.simulated(round(at_s * 1e9)) for at_s in (from_s, to_s))
            rows.append([node, pod, str(priority), begun, ended, f"{ending} {why}".strip()])
    left_out = sum(counts[node] - len(nodes[node]) for node in nodes)
    total = next(source.rows("SELECT count(DISTINCT node_name) FROM nodes"))[0]
    note = "A bar is a pod, from its binding to its end; overlapping pods are in separate rows."
    if total > len(nodes):
        note += f" Shown are the {len(nodes)} of {total:,} nodes with most displaced pods."
    if left_out:
        note += f" Of a node's pods, {PODS_MAX} are shown: the displaced and the longest ones."
    return ReportSection(
        key="timeline",
        title="Pods on a node",
        note=note,
        empty="No pod got a node.",
        charts={node: _chart(source, intervals) for node, intervals in nodes.items()},
        choice="Node",
        columns=("Node", "Pod", "Priority", "From", "To", "Ended"),
        rows=rows,
        left_out=(
            f"pods beyond the first {_ROWS_PER_NODE} of a node"
            if max(counts.values(), default=0) > _ROWS_PER_NODE
            else ""
        ),
        height=420,
        wide=True,
    )


def _chart(source: ReportTables, intervals: Sequence[_Interval]) -> Option:
    rows = Lanes()
    lanes = [rows.take(from_s, to_s) for _, _, from_s, to_s, _, _ in intervals]
    series = []
    for ending in _ENDINGS:
        data = [
            {"value": [from_s, to_s, lane, priority], "name": pod, "why": why}
            for (pod, priority, from_s, to_s, how, why), lane in zip(intervals, lanes, strict=True)
            if how == ending
        ]
        if data:
            series.append(
                {
                    "type": "custom",
                    "name": ending,
                    "renderItem": "@interval",
                    "encode": {"x": [0, 1], "y": 2},
                    "clip": True,
                    "data": data,
                }
            )
    return {
        "grid": grid(bottom=40),
        "legend": {"type": "scroll", "top": 0},
        "tooltip": {"trigger": "item", "formatter": "@pod"},
        "dataZoom": [
            {"type": "inside", "filterMode": "weakFilter"},
            {
                "type": "slider",
                "filterMode": "weakFilter",
                "height": 20,
                "bottom": 8,
                "labelFormatter": "@duration",
            },
        ],
        "xAxis": time_axis(source.end_s),
        "yAxis": {
            "type": "value",
            "min": 0,
            "max": max(_LANES_MIN, *lanes) + 1,
            "inverse": True,
            "show": False,
        },
        "series": series,
    }


_RESOURCES_MAX = 6
_REASONS_MAX = 12
_REASONS_LISTED = 100
_ROW_PX = 46
_FREE = """
SELECT resource, reason, at_ns, 100 * free / allocatable FROM free_capacity
WHERE allocatable > 0 AND resource IN (
    SELECT resource FROM free_capacity WHERE waiting_pods > 0 GROUP BY resource
    ORDER BY resource NOT IN ('cpu', 'memory'), resource LIMIT $limit)
ORDER BY resource NOT IN ('cpu', 'memory'), resource, at_ns, reason
"""
_STRANDED = """
FROM (
    SELECT resource, reason,
        round(favg(100 * free / allocatable) * count(*) / any_value(moments), 2) AS share, count(*)
    FROM free_capacity JOIN (
        SELECT resource, count(DISTINCT at_ns) AS moments FROM free_capacity
        WHERE waiting_pods > 0 GROUP BY resource) USING (resource)
    WHERE waiting_pods > 0 AND allocatable > 0 GROUP BY ALL
)
ORDER BY resource NOT IN ('cpu', 'memory'), resource, share DESC, reason LIMIT 100
"""
_MESSAGES = """
SELECT message, count(*), 0 FROM attempts WHERE message IS NOT NULL GROUP BY ALL
UNION ALL
SELECT last_message, 0, count(*) FROM pods
WHERE ending = 'Pending' AND last_message IS NOT NULL GROUP BY ALL
"""
_NO_POD = "no pod waits"


def fragmentation(source: ReportTables) -> ReportSection:
    """Return the section with free capacity while pods waited, by why they could not use it."""
    points: dict[str, dict[int, dict[str, float]]] = {}
    for resource, reason, at_ns, share in source.rows(_FREE, {"limit": _RESOURCES_MAX}):
        at = points.setdefault(resource, {}).setdefault(at_ns, {})
        at[reason or _NO_POD] = share
    charts = {resource: _free_chart(source, at) for resource, at in points.items()}
    rows: list[list[Cell]] = [
        [resource, reason, share, moments]
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
        return sum(share for key, share in shares.items() if key not in kept and key != _NO_POD)
    return shares.get(name, 0.0)


def reasons(source: ReportTables) -> ReportSection:
    """Return the section with the most frequent reasons of failed attempts."""
    attempts: Counter[str] = Counter()
    nodes_left: Counter[str] = Counter()
    for message, tried, pods in source.rows(_MESSAGES):
        for reason in refusals(message):
            attempts[reason] += tried
            nodes_left[reason] += pods
    ranked = sorted(attempts, key=lambda reason: (-attempts[reason], -nodes_left[reason], reason))
    shown = list(reversed(ranked[:_REASONS_MAX]))
    chart: Option = {
        "grid": grid(right=40),
        "legend": {"top": 0},
        "tooltip": {"trigger": "axis", "axisPointer": {"type": "shadow"}},
        "xAxis": {"type": "value", "minInterval": 1, "axisLabel": {"hideOverlap": True}},
        "yAxis": {"type": "category", "data": shown},
        "series": [
            {"type": "bar", "name": name, "data": [counts[name_] for name_ in shown]}
            for name, counts in (
                ("failed attempts", attempts),
                ("pods pending at the end", nodes_left),
            )
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
        rows=[
            [reason, attempts[reason], nodes_left[reason]] for reason in ranked[:_REASONS_LISTED]
        ],
        left_out=(
            f"reasons beyond the first {_REASONS_LISTED}" if len(ranked) > _REASONS_LISTED else ""
        ),
        height=110 + _ROW_PX * len(shown),
    )


def refusals(message: str) -> list[str]:
    """Return the distinct reasons in a FitError's message; any other message is one reason.

    Parts about preemption and resource claims are left out.
    Source: kubernetes v1.34 pkg/scheduler/framework/types.go, FitError.Error.
    """
    reasons = counted_reasons(message.partition(PREEMPTION_MARK)[0])
    return list(dict.fromkeys(reason for reason, _ in reasons))
