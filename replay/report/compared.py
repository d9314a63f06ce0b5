"""The page that compares two runs: inputs, first different decision, pods, figures, time series."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from replay.report.load import BOUND, CAPACITY, PENDING, RESOURCES
from replay.report.node_groups import ALL_NODES, OF_GROUP
from replay.report.notes import notes_of_two
from replay.report.page import ReportHead, page
from replay.report.section import (
    BUCKETS,
    BucketedValue,
    Cell,
    Option,
    ReportSection,
    ReportTables,
    bucket_s,
    line,
    open_source,
    over_time,
    percentages,
    points,
    stepped,
)
from replay.results import durations
from replay.results.tables.query import RunTables
from replay.whatif.ci import figure_text
from replay.whatif.compared import WAIT_COLUMNS, Compared, figure_cells, wait_cells
from replay.whatif.comparison import PodEffect, pod_effects
from replay.whatif.facts import PodFacts, RunFacts
from replay.whatif.inputs import input_changes

_Part = TypeVar("_Part")
_PODS_MAX = 2_000
_WORKLOADS_MAX = 500
_PRIORITIES_MAX = 8
_RESOURCES_MAX = 6
_ROWS = 40
_ALL = "all"
_SHOWN = {
    "pods": "pods",
    "bound": "bound",
    "pending": "pending",
    "unavailable": "unavailable",
    "invalid_placements": "invalid placements",
    "refusals": "refused decisions",
    "preempted": "preempted",
    "evicted": "evicted",
    "work_lost": "work lost, s",
    "waited_so_far_p95": "p95 of waits so far, s",
    "allocated_mean{resource=cpu}": "CPU requested, mean %",
    "empty_node_hours": "empty node-hours",
    "cost": "cost",
}
"""The figures at the top of the page, with their labels."""
_GROUPS_MAX = 40
_GROUPS = f"""
SELECT node_group FROM nodes WHERE node_group IS NOT NULL GROUP BY node_group
ORDER BY count(*) DESC, node_group LIMIT {_GROUPS_MAX}
"""  # noqa: S608 - made of this module's own constants
_TOTAL = "SELECT 'all' AS name, t, d FROM ({deltas})"
_PRIORITIES = f"""
SELECT priority FROM pods GROUP BY priority ORDER BY count(*) DESC, priority LIMIT {_PRIORITIES_MAX}
"""  # noqa: S608 - made of this module's own constants
_OF_PRIORITY = "SELECT name, t, d FROM ({deltas}) WHERE name = '{priority}'"


def compared_page(compared: Compared) -> str:
    """Return the page. Raises as `compared_sections`."""
    return page(_head(compared), compared_sections(compared))


def compared_sections(compared: Compared) -> list[ReportSection]:
    """Return the sections. Missing tables of either run are built first.

    Raises RunError if a run cannot be read.
    """
    with RunTables(compared.run_a) as tables_a, RunTables(compared.run_b) as tables_b:
        sides = Sides(A=open_source(tables_a), B=open_source(tables_b))
        return [
            _inputs(compared),
            _divergence(compared),
            _workloads(compared),
            _waits(compared),
            _figures(compared),
            notes_of_two(compared.run_a, compared.run_b),
            _pods(compared),
            _pending(sides),
            _utilisation(sides),
            _nodes(sides),
        ]


def _head(compared: Compared) -> ReportHead:
    names = [run.path.resolve().name for run in (compared.run_a, compared.run_b)]
    facts = [
        (_SHOWN[figure.name], f"{figure_text(figure.a)} → {figure_text(figure.b)}")
        for figure in compared.comparison.figures
        if figure.name in _SHOWN and (figure.a, figure.b) != (None, None)
    ]
    paths = [("A", str(compared.run_a.path)), ("B", str(compared.run_b.path))]
    return ReportHead(
        kind="two runs compared", title=f"{names[0]} and {names[1]}", facts=facts, described=paths
    )


def _inputs(compared: Compared) -> ReportSection:
    return ReportSection(
        key="inputs",
        title="What was changed",
        note="Inputs of the runs that differ: traces (with their SHA-256), options, overrides, "
        "configuration. Of files, the lines that only one has.",
        empty="Both runs have the same inputs.",
        columns=("Input", "A", "B"),
        rows=input_changes(compared.run_a.manifest(), compared.run_b.manifest()),
        tabular=True,
    )


def _divergence(compared: Compared) -> ReportSection:
    moment, *decisions = compared.divergence_lines()
    rows: list[Sequence[Cell]] = [
        [decision[:1], decision[2:3].upper() + decision[3:]] for decision in decisions
    ]
    rows += [["Why" if not index else "", reason] for index, reason in enumerate(compared.reasons)]
    rows += [
        ["First decision", first_decision_line]
        for first_decision_line in compared.first_decision_lines()
    ]
    rows += [["Note" if not index else "", note] for index, note in enumerate(compared.notes())]
    return ReportSection(
        key="divergence",
        title="The first different decision",
        note=f"{moment.removesuffix(':').removesuffix('.')}.",
        empty="The decision logs agree in pods, times and outcomes.",
        columns=("Run", "Decision"),
        rows=rows,
        tabular=True,
    )


def _workloads(compared: Compared) -> ReportSection:
    workloads = compared.comparison.workloads
    hidden = len(workloads) - _WORKLOADS_MAX
    return ReportSection(
        key="workloads",
        title="Workloads",
        note="Ready pods of those desired at each run's end, and when fewer were ready than the "
        "workload or its disruption budget requires. Changed workloads first, the worst in B "
        "first; workloads that were whole in both runs are left out.",
        empty="Every workload had its desired pods all the time, in both runs.",
        columns=("Workload", "Ready in A", "Ready in B"),
        rows=[
            (workload.key, workload.text_a, workload.text_b)
            for workload in workloads[:_WORKLOADS_MAX]
        ],
        left_out=f"{hidden:,} more" if hidden > 0 else "",
        wide=True,
        tabular=True,
        search="Find workloads",
    )


def _waits(compared: Compared) -> ReportSection:
    return ReportSection(
        key="waits",
        title="Time without a node by priority class",
        note="From a pod's creation, or from when its last scheduling gate went, until its "
        "binding. Pods that still wait count with their time so far, and pods that ended without "
        "a node with the time until then.",
        empty="No pod waited for a node in either run.",
        columns=("Priority class", "Run", *(name.capitalize() for name in WAIT_COLUMNS)),
        rows=[
            (of_class.name, name, *wait_cells(side))
            for of_class in compared.comparison.waits
            for name, side in (("A", of_class.a), ("B", of_class.b))
        ],
        wide=True,
        tabular=True,
    )


def _figures(compared: Compared) -> ReportSection:
    return ReportSection(
        key="figures",
        title="Figures side by side",
        note="Every figure of --assert; the change is B's minus A's.",
        empty="The runs have no figures.",
        columns=("Figure", "A", "B", "Change", "Change, %"),
        rows=[
            [name, *map(_rounded, (figure.a, figure.b, figure.change)), share]
            for figure in compared.comparison.figures
            for name, *_, share in [figure_cells(figure)]
        ],
        wide=True,
        tabular=True,
    )


def _rounded(value: float | None) -> Cell:
    return None if value is None else float(f"{value:.5g}")


def _pods(compared: Compared) -> ReportSection:
    a, b = compared.facts_a, compared.facts_b
    affected = [
        (key, effects)
        for key in dict.fromkeys([*a.pods, *b.pods])
        if (effects := list(pod_effects(key, a, b, one_policy=not compared.policy_differences)))
    ]
    rows = [_pod_row(key, effects, a, b) for key, effects in affected[:_PODS_MAX]]
    return ReportSection(
        key="pods",
        title="Affected pods by change",
        note=f"Affected pods: {len(affected):,}. Pods pair by namespace and name.",
        empty="No pod was affected.",
        columns=("Effect in B", "Pod", "Priority class", "Priority", "Node in A", "Node in B"),
        rows=sorted(rows, key=lambda row: str(row[0])),
        left_out=(
            f"{len(affected) - _PODS_MAX:,} further pods" if len(affected) > _PODS_MAX else ""
        ),
        wide=True,
        tabular=True,
        search="Search",
    )


def _pod_row(key: str, effects: Sequence[PodEffect], a: RunFacts, b: RunFacts) -> list[Cell]:
    one, other = a.pods.get(key), b.pods.get(key)
    either = one or other
    assert either is not None  # noqa: S101 - the key is one of theirs
    texts = [
        f"{effect.kind} ({durations.simulated(effect.by_ns)})" if effect.by_ns else effect.kind
        for effect in effects
    ]
    priorities = dict.fromkeys(str(pod.priority) for pod in (one, other) if pod is not None)
    return [
        *(", ".join(texts), key, either.priority_class or "-", " → ".join(priorities)),
        *(_node(one), _node(other)),
    ]


def _node(pod: PodFacts | None) -> str:
    return "(not in this run)" if pod is None else pod.node or "-"


class Sides(dict[str, ReportTables]):
    """The tables of the runs "A" and "B", with a common time axis."""

    @property
    def end_s(self) -> float:
        """Return the length of the longer run, simulated seconds."""
        return max(tables.end_s for tables in self.values())


def _pending(sides: Sides) -> ReportSection:
    priorities = {row[0] for tables in sides.values() for row in tables.rows(_PRIORITIES)}
    deltas = {"all priorities": _TOTAL.format(deltas=PENDING)}
    for priority in (
        sorted(priorities, reverse=True)[:_PRIORITIES_MAX] if len(priorities) > 1 else ()
    ):
        deltas[f"priority {priority}"] = _OF_PRIORITY.format(deltas=PENDING, priority=int(priority))
    charts, rows = _counted(sides, deltas)
    return ReportSection(
        key="pending",
        title="Pending pods in both runs",
        note="Pods without a node: the maximum within each interval of simulated time, counted "
        "from each run's beginning.",
        empty="Every pod was created with its node.",
        charts=charts,
        choice="Pods of",
        columns=("Pods of", "From", "A", "B"),
        rows=rows,
        left_out=f"all but every {BUCKETS // _ROWS}th interval of the chart",
    )


def _utilisation(sides: Sides) -> ReportSection:
    named = RESOURCES.format(limit=_RESOURCES_MAX)
    resources = dict.fromkeys(row[0] for tables in sides.values() for row in tables.rows(named))
    quoted = {name: name.replace("'", "''") for name in resources}
    used = {
        name: _TOTAL.format(deltas=BOUND.format(resource=text)) for name, text in quoted.items()
    }
    have = {name: CAPACITY.format(resource=text) for name, text in quoted.items()}
    values = _values(
        sides,
        {
            **{("used", name): sql for name, sql in used.items()},
            **{("have", name): sql for name, sql in have.items()},
        },
    )
    charts: dict[str, Option] = {}
    rows: list[list[Cell]] = []
    for resource in resources:
        by_side = {
            side: percentages(_means(of["used", resource]), _means(of["have", resource]))
            for side, of in values.items()
        }
        if any(by_side.values()):
            top = max(itertools.chain.from_iterable(by_side.values()))
            charts[resource] = _chart(sides, by_side, "@percent", 100 if top <= 100 else None)
            rows += _rows(sides, by_side, resource)
    return ReportSection(
        key="utilisation",
        title="Utilisation in both runs",
        note="Requests of bound pods as a share of the nodes' allocatable: the mean over each "
        "interval of simulated time.",
        empty="No bound pod requests anything.",
        charts=charts,
        choice="Resource",
        columns=("Resource", "From", "A, %", "B, %"),
        rows=rows,
        left_out=f"all but every {BUCKETS // _ROWS}th interval of the chart",
    )


def _nodes(sides: Sides) -> ReportSection:
    groups = dict.fromkeys(row[0] for tables in sides.values() for row in tables.rows(_GROUPS))
    deltas = {"all nodes": ALL_NODES}
    for group in groups:
        deltas[f"node group {group}"] = OF_GROUP.format(group=group.replace("'", "''"))
    charts, rows = _counted(sides, deltas)
    return ReportSection(
        key="nodes",
        title="Nodes in both runs",
        note="Nodes of the cluster, and of each node group that is scaled: the maximum within each "
        "interval of simulated time.",
        empty="There is no node.",
        charts=charts,
        choice="Nodes of",
        columns=("Nodes of", "From", "A", "B"),
        rows=rows,
        left_out=f"all but every {BUCKETS // _ROWS}th interval of the chart",
    )


def _counted(sides: Sides, deltas: Mapping[str, str]) -> tuple[dict[str, Option], list[list[Cell]]]:
    """Return the charts of counts over time in both runs, and the rows of the table beside them."""
    charts: dict[str, Option] = {}
    rows: list[list[Cell]] = []
    values = _values(sides, deltas)
    for name in deltas:
        by_side = {side: _peaks(values[side][name]) for side in sides}
        if any(by_side.values()):
            charts[name] = _chart(sides, by_side, "@count", None)
            rows += _rows(sides, by_side, name)
    return charts, rows


def _values(
    sides: Sides, deltas: Mapping[_Part, str]
) -> Mapping[str, Mapping[_Part, BucketedValue | None]]:
    """Return the value of the only name in each of the `deltas`, by side; None without rows."""
    return {
        side: {
            part: next(iter(values.values()), None)
            for part, values in stepped(source, deltas).items()
        }
        for side, source in sides.items()
    }


def _means(value: BucketedValue | None) -> Sequence[float]:
    return value.means if value else ()


def _peaks(value: BucketedValue | None) -> Sequence[float]:
    return value.peaks if value else ()


def _chart(
    sides: Sides, values_by_side: Mapping[str, Sequence[float]], y_format: str, y_max: float | None
) -> Option:
    series = [
        line(side, points(sides[side], values)) for side, values in values_by_side.items() if values
    ]
    for dashed in series[1:]:
        dashed["lineStyle"] = {"width": 2, "type": "dashed"}
    return over_time(series, end_s=sides.end_s, y_format=y_format, y_max=y_max)


def _rows(
    sides: Sides, values_by_side: Mapping[str, Sequence[float]], what: str
) -> Iterator[list[Cell]]:
    """Yield both runs' values at moments of the common time axis; None after a run's end."""
    for step in range(_ROWS):
        at_s = step * sides.end_s / _ROWS
        cells: list[Cell] = [what, durations.simulated(round(at_s * 1e9))]
        for side in ("A", "B"):
            place = int(at_s / bucket_s(sides[side]))
            values = values_by_side[side]
            cells.append(values[place] if place < len(values) else None)
        yield cells
