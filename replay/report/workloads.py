"""Tables of workloads that lacked ready pods at times, and of those whose pods waited most."""

from __future__ import annotations

from replay.explain.waits import workloads_that_waited
from replay.report.section import Cell, ReportSection, ReportTables
from replay.results.durations import simulated
from replay.results.workloads.verdict import Shortfall

_SHOWN_MAX = 200
_WAITING_MAX = 10
_CAUSES_MAX = 4
_WORKLOADS = """
SELECT kind || ' ' || namespace || '/' || name, ready, desired, least_ready, least_desired,
    coalesce(budgets, ''), refused, below_budget_times, below_budget_ns,
    coalesce(below_budget_longest_from_ns, 0), below_budget_longest_ns,
    below_times, below_ns, coalesce(below_longest_from_ns, 0), below_longest_ns
FROM workloads WHERE below_times > 0 OR ready < desired ORDER BY place
"""


def workloads(source: ReportTables) -> ReportSection:
    """Return the verdict on each workload that had too few ready pods at some time."""
    rows: list[list[Cell]] = []
    hidden = 0
    for name, ready, desired, least, of, budgets, refused, *times in source.rows(_WORKLOADS):
        if len(rows) == _SHOWN_MAX:
            hidden += 1
            continue
        budget, below = _text(source, *times[:4]), _text(source, *times[4:])
        counts = f"{ready:,} of {desired:,}", f"{least:,} of {of:,}"
        rows.append([name, *counts, budget, budgets or "-", below, refused])
    return ReportSection(
        key="workloads",
        title="Workloads that were not whole",
        note="Ready pods of those desired, at the end and when most were missing, and how long "
        "fewer were ready than the workload or its disruption budget requires. Worst first.",
        empty="Every workload had its desired pods all the time.",
        columns=(
            "Workload",
            "Ready",
            "Least ready",
            "Below its budget",
            "Budget",
            "Below desired",
            "Refused pods",
        ),
        rows=rows,
        left_out=f"{hidden:,} more workloads" if hidden else "",
        wide=True,
        tabular=True,
        search="Find workloads",
    )


def waits(source: ReportTables) -> ReportSection:
    """Return the workloads whose pods waited most for nodes, with the causes."""
    waited = workloads_that_waited(source.rows, source.end_ns, _WAITING_MAX)
    rows: list[list[Cell]] = []
    for workload in waited:
        totals = [f"{simulated(length_ns)} {cause}" for cause, length_ns in workload.totals()]
        more = len(totals) - _CAUSES_MAX
        causes = "; ".join(totals[:_CAUSES_MAX]) + (f"; {more} more" if more > 0 else "")
        rows.append([workload.key, len(workload.pods), simulated(workload.length_ns), causes])
    return ReportSection(
        key="waits",
        title="Workloads that waited most",
        note="How long their pods waited for nodes, all together, and what each attempt lacked "
        "until the next one: the parts add up to the whole. `reprieve explain POD --wait` has the "
        "timeline of a pod.",
        empty="No pod of a workload waited for a node.",
        columns=("Workload", "Pods", "Waited", "For"),
        rows=rows,
        wide=True,
        tabular=True,
    )


def _text(source: ReportTables, times: int, total: int, longest_from: int, longest: int) -> str:
    """Return a text for `times` periods below a number of pods; the other arguments are in ns."""
    shortfall = Shortfall(
        times=times,
        total_ns=total,
        longest_from_ns=longest_from,
        longest_ns=longest,
        lasts=times == 1 and longest_from + longest >= source.end_ns,
    )
    return shortfall.text(source.start_ns) or "-"
