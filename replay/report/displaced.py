"""Preemptions by preemptor and victim, evictions by signal, eviction loops, and OOM kills."""

from __future__ import annotations

from collections import Counter

from replay.report.section import (
    BUCKETS,
    Cell,
    Option,
    ReportSection,
    ReportTables,
    line,
    over_time,
)
from replay.results import durations
from replay.results.summary.eviction_loops import LOOP_EVICTIONS_MIN, EvictionLoops

_GROUPS_MAX = 12
_PREEMPTORS_MAX = 50
_VICTIMS_NAMED = 8
_BARS = 60
_LOOPS_MAX = 50
_REST = "others"

_DISPLACED = """
SELECT coalesce(by_owner, by_namespace || ': pods without a controller'), by_priority,
    coalesce(owner, namespace || ': pods without a controller'), priority, count(*) AS victims
FROM preemptions GROUP BY ALL ORDER BY victims DESC, 1, 2, 3, 4
"""
_PREEMPTORS = f"""
SELECT by_namespace || '/' || by_name, any_value(by_priority), count(*) AS victims,
    count(*) FILTER (violates_budget), min(at_ns),
    list(namespace || '/' || name ORDER BY sequence)[:{_VICTIMS_NAMED}]
FROM preemptions GROUP BY by_namespace, by_name, by_uid
ORDER BY victims DESC, min(sequence) LIMIT {_PREEMPTORS_MAX}
"""  # noqa: S608 - made of this module's own constants
_EVICTED_OVER_TIME = """
SELECT coalesce(signal, 'local storage limit'),
    CAST(least($bars - 1, floor((at_ns - $start) / $width)) AS INTEGER) AS i, count(*)
FROM evictions GROUP BY ALL
"""
_THRESHOLDS = """
SELECT coalesce(signal, 'local storage limit'), coalesce(threshold, '-'), count(*),
    count(DISTINCT node_name), coalesce(arg_min(available, available_amount), '-'),
    coalesce(arg_max(available, available_amount), '-'), min(at_ns), max(at_ns)
FROM evictions GROUP BY ALL ORDER BY 3 DESC, 1, 2 LIMIT 100
"""
_EVICTED_OWNED = """
SELECT at_ns, uid, owner, coalesce(signal, 'local storage limit'), node_name
FROM evictions WHERE owner IS NOT NULL ORDER BY sequence
"""

_OOM_KILLS_MAX = 50
_OOM_KILLS = f"""
SELECT coalesce(owner, namespace || '/' || name), container, limit_of, limit_bytes, count(*),
    count(DISTINCT uid), min(at_ns), max(at_ns)
FROM oom_kills GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC, 1, 2, 3, 4 LIMIT {_OOM_KILLS_MAX}
"""  # noqa: S608 - made of this module's own constants
_OOM_KILLS_OVER_TIME = """
SELECT limit_of, CAST(least($bars - 1, floor((at_ns - $start) / $width)) AS INTEGER), count(*)
FROM oom_kills GROUP BY ALL
"""


def preemptions(source: ReportTables) -> ReportSection:
    """Return the preemption graph: from preemptors to victims, by controller and priority."""
    flows: Counter[tuple[str, str]] = Counter()
    for preemptor, by_priority, victim, priority, victims in source.rows(_DISPLACED):
        sides = (preemptor, by_priority), (victim, priority)
        source_label, target_label = (
            f"{who} ({'?' if rank is None else rank})" for who, rank in sides
        )
        flows[source_label, target_label] += victims
    flows = _merged(flows)
    height = 120 + 34 * max(
        len({preemptor for preemptor, _ in flows}), len({victim for _, victim in flows})
    )
    rows: list[list[Cell]] = []
    for pod, priority, victims, violations, at_ns, named in source.rows(_PREEMPTORS):
        more = f" and {victims - len(named)} more" if victims > len(named) else ""
        at = durations.simulated(at_ns - source.start_ns)
        rows.append([pod, str(priority), victims, violations, at, ", ".join(named) + more])
    return ReportSection(
        key="preemptions",
        title="Preemptors and victims",
        note="From preemptors on the left to victims on the right, by controller, with the "
        "priority in parentheses; the width of a band is the number of victims.",
        empty="No pod was preempted.",
        charts={"": _sankey(flows)} if flows else {},
        columns=("Preemptor", "Priority", "Victims", "Budget violations", "First at", "Pods"),
        rows=rows,
        left_out=(
            f"preemptors beyond the {_PREEMPTORS_MAX} with most victims"
            if len(rows) == _PREEMPTORS_MAX
            else ""
        ),
        height=min(900, height),
        wide=True,
    )


def _merged(flows: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Keep the largest groups of each side and merge the others."""
    sources: Counter[str] = Counter()
    targets: Counter[str] = Counter()
    for (preemptor, victim), victims in flows.items():
        sources[preemptor] += victims
        targets[victim] += victims
    kept_left = {name for name, _ in sources.most_common(_GROUPS_MAX)}
    kept_right = {name for name, _ in targets.most_common(_GROUPS_MAX)}
    merged: Counter[tuple[str, str]] = Counter()
    for (preemptor, victim), victims in flows.items():
        key = (
            preemptor if preemptor in kept_left else _REST,
            victim if victim in kept_right else _REST,
        )
        merged[key] += victims
    return merged


def _sankey(flows: Counter[tuple[str, str]]) -> Option:
    """Return the graph; a hidden prefix distinguishes equal names on the two sides."""
    preemptors = dict.fromkeys(f"<{preemptor}" for preemptor, _ in flows)
    right = dict.fromkeys(f">{victim}" for _, victim in flows)
    return {
        "tooltip": {"trigger": "item", "formatter": "@flow"},
        "series": [
            {
                "type": "sankey",
                "left": 8,
                "right": 8,
                "top": 8,
                "bottom": 8,
                "nodeGap": 12,
                "nodeWidth": 14,
                "draggable": False,
                "label": {"formatter": "@side", "overflow": "truncate", "position": "inside"},
                "lineStyle": {"color": "source", "opacity": 0.35, "curveness": 0.5},
                "emphasis": {"focus": "adjacency"},
                "data": [
                    *({"name": name, "label": {"position": "right"}} for name in preemptors),
                    *({"name": name, "label": {"position": "left"}} for name in right),
                ],
                "links": [
                    {"source": f"<{preemptor}", "target": f">{victim}", "value": victims}
                    for (preemptor, victim), victims in flows.items()
                ],
            }
        ],
    }


def evictions(source: ReportTables) -> ReportSection:
    """Return evictions over time by signal, with the thresholds that were met."""
    width = source.end_s * 1e9 / _BARS
    bars: dict[str, list[int]] = {}
    places = {"start": source.start_ns, "width": width, "bars": _BARS}
    for signal, place, count in source.rows(_EVICTED_OVER_TIME, places):
        bars.setdefault(signal, [0] * _BARS)[place] = count
    rows: list[list[Cell]] = []
    thresholds: dict[str, list[str]] = {}
    for signal, threshold, count, nodes, least, most, first, last in source.rows(_THRESHOLDS):
        thresholds.setdefault(signal, []).append(threshold)
        times = [durations.simulated(at_ns - source.start_ns) for at_ns in (first, last)]
        rows.append([signal, threshold, count, nodes, least, most, *times])
    series: list[Option] = [
        {
            "type": "bar",
            "name": _signal_name(signal, thresholds.get(signal, [])),
            "stack": "all",
            "data": [
                [round((place + 0.5) * width / 1e9, 3), count] for place, count in enumerate(counts)
            ],
        }
        for signal, counts in sorted(bars.items())
    ]
    chart = over_time(series, end_s=source.end_s, y_format="@count", y_max=None)
    span = durations.simulated(round(width))
    return ReportSection(
        key="evictions",
        title="Evictions by signal",
        note=f"Pods that kubelets evicted in each {span} of simulated time, by signal and by the "
        "threshold that was met.",
        empty="No pod was evicted.",
        charts={"": chart} if series else {},
        columns=(
            *("Signal", "Threshold", "Evicted", "Nodes"),
            *("Lowest available", "Highest available", "First", "Last"),
        ),
        rows=rows,
    )


def _signal_name(signal: str, thresholds: list[str]) -> str:
    named = [threshold for threshold in thresholds if threshold != "-"]
    match named:
        case []:
            return signal
        case [only]:
            return f"{signal} < {only}"
    return f"{signal} ({len(named)} thresholds)"


def loops(source: ReportTables) -> ReportSection:
    """Return the eviction loops and the times of their evictions."""
    follower = EvictionLoops()
    times: dict[tuple[str, str], list[float]] = {}
    for at_ns, uid, owner, signal, node_name in source.rows(_EVICTED_OWNED):
        follower.pod_added(uid, owner)
        follower.evicted(at_ns, uid, signal, node_name)
        follower.pod_removed(uid)
        times.setdefault((owner, signal), []).append(source.seconds(at_ns))
    repeated = follower.found()[:_LOOPS_MAX]
    series = []
    for group in repeated[:_GROUPS_MAX]:
        points = enumerate(times[group.owner, group.signal], 1)
        option = line(group.owner, [[at_s, count] for count, at_s in points][: 4 * BUCKETS])
        series.append(option | {"symbol": "circle", "symbolSize": 5})
    rows: list[list[Cell]] = [
        [
            *(group.owner, group.signal, group.evictions, durations.simulated(group.every_ns)),
            f"{len(group.nodes)}: {', '.join(group.nodes[:_VICTIMS_NAMED])}",
        ]
        for group in repeated
    ]
    return ReportSection(
        key="loops",
        title="Eviction loops",
        note=f"Controllers of which {LOOP_EVICTIONS_MIN} or more pods were evicted by one signal, "
        "and how many so far: a line that keeps rising is a loop.",
        empty="No controller's pods were evicted again and again.",
        charts={"": over_time(series, end_s=source.end_s, y_format="@count", y_max=None)}
        if series
        else {},
        columns=("Controller", "Signal", "Evictions", "Every", "Nodes"),
        rows=rows,
        left_out=(
            f"loops beyond the {_LOOPS_MAX} with most evictions" if len(rows) == _LOOPS_MAX else ""
        ),
    )


def oom_kills(source: ReportTables) -> ReportSection:
    """Return OOM kills over time by the kind of limit, and by controller and container."""
    width = source.end_s * 1e9 / _BARS
    bars: dict[str, list[int]] = {}
    places = {"start": source.start_ns, "width": width, "bars": _BARS}
    for limit_of, place, count in source.rows(_OOM_KILLS_OVER_TIME, places):
        bars.setdefault(limit_of, [0] * _BARS)[place] = count
    rows: list[list[Cell]] = []
    for owner, container, limit_of, limit, count, pods, first, last in source.rows(_OOM_KILLS):
        times = [durations.simulated(at_ns - source.start_ns) for at_ns in (first, last)]
        rows.append([owner, container, limit_of, f"{limit / 2**20:,.0f}Mi", count, pods, *times])
    series: list[Option] = [
        {
            "type": "bar",
            "name": f"limit of the {limit_of}",
            "stack": "all",
            "data": [
                [round((place + 0.5) * width / 1e9, 3), count] for place, count in enumerate(counts)
            ],
        }
        for limit_of, counts in sorted(bars.items())
    ]
    chart = over_time(series, end_s=source.end_s, y_format="@count", y_max=None)
    return ReportSection(
        key="oom-kills",
        title="OOM kills",
        note="Containers that the kernel killed at a memory limit: their own, that of their pod, "
        "of all pods of the node (kubepods) or of the node.",
        empty="No container was OOM-killed.",
        charts={"": chart} if series else {},
        columns=(
            *("Controller or pod", "Container", "Limit of", "Limit"),
            *("Kills", "Pods", "First", "Last"),
        ),
        rows=rows,
        left_out=f"rows beyond the {_OOM_KILLS_MAX} with most kills"
        if len(rows) == _OOM_KILLS_MAX
        else "",
    )
