"""A node's pods over time, and how each ended."""

from __future__ import annotations

from collections.abc import Sequence

from replay.report.section import Cell, Option, ReportSection, ReportTables, grid, time_axis
from replay.results import durations
from replay.results.spans.chrome_trace import Lanes

NODES_MAX = 40
PODS_MAX = 200
_ROWS_PER_NODE = 50
_LANES_MIN = 7
"""Lowest number of rows, so that the bars of a node with few pods are not too high."""
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
    """Return the pods over time of the nodes with most displaced pods."""
    nodes: dict[str, list[_Interval]] = {}
    counts: dict[str, int] = {}
    for node, pods, pod, priority, from_ns, to_ns, ending, why in source.rows(
        _INTERVALS, {"end": source.end_ns}
    ):
        times = source.seconds(from_ns), source.seconds(to_ns)
        nodes.setdefault(node, []).append((pod, priority, *times, ending, why))
        counts[node] = pods
    rows: list[list[Cell]] = []
    for node, intervals in nodes.items():
        for pod, priority, from_s, to_s, ending, why in intervals[:_ROWS_PER_NODE]:
            begun, ended = (durations.simulated(round(each * 1e9)) for each in (from_s, to_s))
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
