"""The workloads that were not whole all the time, worst first, as a table."""

from __future__ import annotations

from replay.report.section import Cell, ReportSection, ReportTables
from replay.results.workloads.verdict import Shortfall

_SHOWN_MAX = 200
_WORKLOADS = """
SELECT kind || ' ' || namespace || '/' || name, ready, desired, least_ready, least_desired,
    coalesce(budgets, ''), refused, below_budget_times, below_budget_ns,
    coalesce(below_budget_longest_from_ns, 0), below_budget_longest_ns,
    below_times, below_ns, coalesce(below_longest_from_ns, 0), below_longest_ns
FROM workloads WHERE below_times > 0 OR ready < desired ORDER BY place
"""


def workloads(source: ReportTables) -> ReportSection:
    """Return the verdict on each workload that was not whole all the time."""
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


def _text(source: ReportTables, times: int, total: int, longest_from: int, longest: int) -> str:
    """Return a row's times below a number of pods, ns, for users."""
    shortfall = Shortfall(
        times=times,
        total_ns=total,
        longest_from_ns=longest_from,
        longest_ns=longest,
        lasts=times == 1 and longest_from + longest >= source.end_ns,
    )
    return shortfall.text(source.start_ns) or "-"
