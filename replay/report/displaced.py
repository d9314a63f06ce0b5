"""Who displaced whom, whom kubelets evicted, and which of these go on and on."""

from __future__ import annotations

from collections import Counter

from replay.report.figure import BUCKETS, Cell, Figure, Option, Source, line, over_time
from replay.results import durations
from replay.results.summary.tally import LEAST, Loops

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


def preemptions(source: Source) -> Figure:
    """Return the preemption graph: from preemptors to victims, by controller and priority."""
    flows: Counter[tuple[str, str]] = Counter()
    for by, by_priority, whom, priority, victims in source.rows(_DISPLACED):
        sides = (by, by_priority), (whom, priority)
        left, right = (f"{who} ({'?' if rank is None else rank})" for who, rank in sides)
        flows[left, right] += victims
    flows = _merged(flows)
    height = 120 + 34 * max(len({by for by, _ in flows}), len({whom for _, whom in flows}))
    rows: list[list[Cell]] = []
    for pod, priority, victims, violations, at_ns, named in source.rows(_PREEMPTORS):
        more = f" and {victims - len(named)} more" if victims > len(named) else ""
        at = durations.simulated(at_ns - source.start_ns)
        rows.append([pod, str(priority), victims, violations, at, ", ".join(named) + more])
    return Figure(
        key="preemptions",
        title="Who displaced whom",
        note="From the preemptors on the left to their victims on the right, by controller, with "
        "the priority in parentheses; a band is as wide as it has victims.",
        empty="No pod was preempted.",
        charts={"": _sankey(flows)} if flows else {},
        columns=("Preemptor", "Priority", "Victims", "Against a budget", "First at", "Whom"),
        rows=rows,
        left_out=(
            f"preemptors beyond the {_PREEMPTORS_MAX} of most victims"
            if len(rows) == _PREEMPTORS_MAX
            else ""
        ),
        height=min(900, height),
        wide=True,
    )


def _merged(flows: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Keep the largest groups of each side and put the others together."""
    left: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for (by, whom), victims in flows.items():
        left[by] += victims
        right[whom] += victims
    kept_left = {name for name, _ in left.most_common(_GROUPS_MAX)}
    kept_right = {name for name, _ in right.most_common(_GROUPS_MAX)}
    merged: Counter[tuple[str, str]] = Counter()
    for (by, whom), victims in flows.items():
        key = by if by in kept_left else _REST, whom if whom in kept_right else _REST
        merged[key] += victims
    return merged


def _sankey(flows: Counter[tuple[str, str]]) -> Option:
    """Return the graph; names of the two sides are kept apart by a mark that is not shown."""
    left = dict.fromkeys(f"<{by}" for by, _ in flows)
    right = dict.fromkeys(f">{whom}" for _, whom in flows)
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
                    *({"name": name, "label": {"position": "right"}} for name in left),
                    *({"name": name, "label": {"position": "left"}} for name in right),
                ],
                "links": [
                    {"source": f"<{by}", "target": f">{whom}", "value": victims}
                    for (by, whom), victims in flows.items()
                ],
            }
        ],
    }


def evictions(source: Source) -> Figure:
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
        times = [durations.simulated(each - source.start_ns) for each in (first, last)]
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
    each = durations.simulated(round(width))
    return Figure(
        key="evictions",
        title="Evictions by signal",
        note=f"Pods that kubelets evicted in each {each} of simulated time, by the signal and the "
        "threshold that it was below.",
        empty="No pod was evicted.",
        charts={"": chart} if series else {},
        columns=(
            *("Signal", "Threshold", "Evicted", "Nodes"),
            *("Least available", "Most available", "First", "Last"),
        ),
        rows=rows,
    )


def _signal_name(signal: str, thresholds: list[str]) -> str:
    known = [each for each in thresholds if each != "-"]
    match known:
        case []:
            return signal
        case [only]:
            return f"{signal} < {only}"
    return f"{signal} ({len(known)} thresholds)"


def loops(source: Source) -> Figure:
    """Return the evict-reschedule loops that were found, and when each went round."""
    follower = Loops()
    times: dict[tuple[str, str], list[float]] = {}
    for at_ns, uid, owner, signal, node_name in source.rows(_EVICTED_OWNED):
        follower.pod_added(uid, owner)
        follower.evicted(at_ns, uid, signal, node_name)
        follower.pod_gone(uid)
        times.setdefault((owner, signal), []).append(source.seconds(at_ns))
    found = follower.found()[:_LOOPS_MAX]
    series = []
    for each in found[:_GROUPS_MAX]:
        points = enumerate(times[each.owner, each.signal], 1)
        option = line(each.owner, [[at_s, count] for count, at_s in points][: 4 * BUCKETS])
        series.append(option | {"symbol": "circle", "symbolSize": 5})
    rows: list[list[Cell]] = [
        [
            *(each.owner, each.signal, each.evictions, durations.simulated(each.every_ns)),
            f"{len(each.nodes)}: {', '.join(each.nodes[:_VICTIMS_NAMED])}",
        ]
        for each in found
    ]
    return Figure(
        key="loops",
        title="Evicted, made anew and evicted again",
        note=f"Controllers of which {LEAST} or more pods were evicted by one signal, and how many "
        "so far: a line that goes on rising is a loop.",
        empty="No controller lost pods again and again.",
        charts={"": over_time(series, end_s=source.end_s, y_format="@count", y_max=None)}
        if series
        else {},
        columns=("Controller", "Signal", "Evictions", "Every", "Nodes"),
        rows=rows,
        left_out=(
            f"loops beyond the {_LOOPS_MAX} of most evictions" if len(rows) == _LOOPS_MAX else ""
        ),
    )
