"""The summary as tables of 80 columns, as JSON or as YAML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import orjson
from rich import markup
from rich.console import Console
from rich.table import Table

from replay.results import durations
from replay.results.durations import Quantiles
from replay.results.run.manifest import EMBEDDED, IN_PROCESS
from replay.results.summary.drains import DrainedNode
from replay.results.summary.eviction_loops import EvictionLoop
from replay.results.summary.scaling import ScaledGroup
from replay.results.summary.summary import Decided, NamedCount, PriorityWait, Summary
from replay.results.workloads.verdict import WorkloadVerdict
from services.kube.yaml_scalars import written
from services.terminal import counted, json_text, one_line

_HOUR = 3600e9
_SHOWN, _DRAINS_SHOWN = 5, 20
WORKLOADS_SHOWN = 10
FORMATS = ("table", "wide", "json", "yaml")


def escape(text: str) -> str:
    """Return a text as one line, escaped for rich's markup, with control characters escaped."""
    return markup.escape(one_line(text))


def print_summary(summary: Summary, console: Console, *, wide: bool = False) -> None:
    """Print a summary.

    wide: print every preemptor, message and note instead of the first five of each, and also the
    wall times of the replay's steps and its windows.
    """
    _print_head(summary, console)
    for listing in _LISTINGS:
        if wide or not listing.is_wide:
            print_rows(
                console,
                listing.columns,
                listing.items(summary),
                partial(listing.cells, summary),
                None if wide else listing.shown,
                title=listing.title,
            )
    _print_spans(summary, console)


def _print_head(summary: Summary, console: Console) -> None:
    console.print(f"[bold]{escape(summary.run)}[/]: {escape(summary.end)}", highlight=False)
    console.print(
        f"{counted(summary.pods, 'pod')}, {durations.simulated(summary.simulated_ns)} simulated in "
        f"{durations.wall(summary.wall_ns)}{_where(summary)}\n"
        f"{counted(summary.attempts, 'scheduling attempt')} ({summary.attempts_per_s:,.0f}/s) in "
        f"{counted(summary.rounds, 'round')}{_windows(summary)}{_batches(summary)}",
        highlight=False,
    )


def _evicted_note(decided: Decided) -> str:
    if decided.eviction_not_judged:
        return f"not judged: {decided.eviction_not_judged}"
    return _listed(decided.evicted)


def mistakes_query(run: str) -> str:
    """Return the command that lists decisions refused because of the scheduler's mistakes."""
    return f"reprieve query {run} 'FROM decisions WHERE refusal_cause IS NOT NULL'"


def _refused_note(summary: Summary) -> str:
    """Return the scheduler's mistakes by cause, with the command that lists them."""
    mistakes = summary.decided.refusals
    if not mistakes:
        return "not carried out; reported back to the scheduler"
    return f"the scheduler's mistakes: {_listed(mistakes)}; see {mistakes_query(summary.run)}"


def _where(summary: Summary) -> str:
    """Return the addresses of services that the replay did not start; "" if it started all."""
    ran = sorted(set(summary.services.values()) - {EMBEDDED, IN_PROCESS})
    return f" ({', '.join(ran)})" if ran else ""


def _batches(summary: Summary) -> str:
    """Return the mean number of pods in an exchange with the queue; "" if there was none."""
    return f", {summary.batch_size_mean:.2f} a batch" if summary.batch_size_mean else ""


def _windows(summary: Summary) -> str:
    """Return the number of messages for all rounds; "" if each round had a message."""
    return f" ({counted(summary.messages, 'message')})" if summary.windows else ""


def _group_cells(_: Summary, group: ScaledGroup) -> Iterable[str]:
    failed = f" ({group.failed:,} failed)" if group.failed else ""
    return (
        escape(group.group),
        f"{group.first:,} -> {group.last:,}",
        f"{group.peak:,}",
        f"{group.min:,}-{group.max:,}",
        f"{group.added:,}{failed}",
        f"{group.removed:,}",
        f"{group.node_ns / _HOUR:,.2f}",
        "-" if group.cost is None else f"{group.cost:,.2f}",
    )


def _decided(summary: Summary) -> list[tuple[str, int, str]]:
    """Return rows of (decision, number of pods, note); optional rows are left out if 0."""
    decided, unbound = summary.decided, summary.unbound
    preemptors = len(decided.preemptors)
    preempted_note = f"by {counted(preemptors, 'pod')}" if preemptors else ""
    if decided.budget_violations:
        preempted_note += f", {decided.budget_violations:,} violated a disruption budget"
    evicted = sum(signal.count for signal in decided.evicted)
    invalid = (decided.invalid_placement_causes, decided.invalid_preemption_causes)
    placement_causes, preemption_causes = map(_listed, invalid)
    rejected = sum(reason.count for reason in decided.rejected)
    optional = [
        ("rejected by kubelets", rejected, _listed(decided.rejected)),
        ("invalid placements", decided.invalid_placements, placement_causes),
        ("invalid preemptions", decided.invalid_preemptions, preemption_causes),
        ("OOM-killed", decided.oom_killed, "containers at a memory limit; each kill counts"),
        ("never tried", unbound.untried, "gated, another scheduler's, or created too late"),
        ("refused by admission", decided.refused_pods, _missing_note(summary)),
        ("not ready at the end", summary.unavailable, "desired by their workloads"),
        ("failed attempts", decided.failed_attempts, ""),
        ("refused decisions", decided.refused, _refused_note(summary)),
    ]
    return [
        ("bound", decided.bound, ""),
        ("preempted", decided.preempted, preempted_note),
        ("evicted", evicted, _evicted_note(decided)),
        ("unschedulable at the end", unbound.pods - unbound.untried, ""),
        ("ended", sum(phase.count for phase in decided.ended), _listed(decided.ended)),
        *(row for row in optional if row[1]),
    ]


def _drain_cells(summary: Summary, drain: DrainedNode) -> tuple[str, ...]:
    after = durations.simulated(drain.cordoned_ns - summary.start_ns)
    is_over = drain.step not in ("Cordoned", "Blocked")
    took = durations.simulated(drain.took_ns) if is_over else "-"
    cells = (drain.node, after, drain.step, took, f"{drain.evicted:,}", drain.message)
    return tuple(map(escape, cells))


def _missing_note(summary: Summary) -> str:
    missing = summary.unbound.not_created
    return f"{missing:,} of them not created by the end" if missing else ""


def _loop_cells(_: Summary, loop: EvictionLoop) -> tuple[str, ...]:
    nodes = ", ".join(loop.nodes[:3]) + (", ..." if len(loop.nodes) > 3 else "")
    every = durations.simulated(loop.every_ns)
    return escape(loop.owner), f"{loop.evictions:,}", escape(loop.signal), every, escape(nodes)


def workload_cells(verdict: WorkloadVerdict, start_ns: int) -> tuple[str, ...]:
    """Return a verdict as a row: name, ready, least ready, and the times below budget and desired.

    `start_ns` is the run's start; times are printed relative to it.
    """
    return (
        verdict.key,
        f"{verdict.ready:,} of {verdict.desired:,}",
        f"{verdict.least_ready:,} of {verdict.least_desired:,}",
        verdict.below_budget.text(start_ns) or "-",
        verdict.below.text(start_ns) or "-",
    )


def _failed_cells(summary: Summary, reason: NamedCount) -> tuple[str, ...]:
    at_the_end = (last.count for last in summary.unbound.reasons if last.name == reason.name)
    return f"{reason.count:,}", f"{next(at_the_end, 0):,}", escape(reason.name)


def _wait_cells(_: Summary, wait: PriorityWait) -> tuple[str, ...]:
    times = _quantiles(wait.waited, durations.simulated)
    return str(wait.priority), *times, f"{wait.still_waiting:,}"


def _print_spans(summary: Summary, console: Console) -> None:
    spans = summary.spans
    console.print()
    if spans.choice == "off":
        console.print("spans: off", highlight=False)
        return
    text = f"spans: {spans.ended:,} ended, {spans.delivered:,} delivered to {spans.target}"
    if spans.choice != "all":
        text += f" ({spans.choice} of the pods)"
    console.print(escape(text), highlight=False, soft_wrap=True)
    if spans.problem:
        console.print(f"[bold red]Spans were lost:[/] {escape(spans.problem)}", highlight=False)


_Column = str | tuple[str, str]
_Item = TypeVar("_Item")


def plain_table(*columns: _Column) -> Table:
    """Return a table without rules; a column is its name, or (name, "right")."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
    for column in columns:
        name, side = column if isinstance(column, tuple) else (column, "left")
        table.add_column(name, justify="right" if side == "right" else "left", overflow="fold")
    return table


def right_aligned(*names: str) -> list[_Column]:
    """Return right-aligned columns, for numbers."""
    return [(name, "right") for name in names]


def print_rows(
    console: Console,
    columns: Iterable[_Column],
    items: Sequence[_Item],
    cells: Callable[[_Item], Iterable[str]],
    shown: int | None = None,
    *,
    title: str = "",
) -> None:
    """Print a table of the first `shown` items (None: all); print nothing if there are no items."""
    if not items:
        return
    table = plain_table(*columns)
    for item in items[:shown]:
        table.add_row(*cells(item))
    console.print()
    if title:
        console.print(title, highlight=False)
    console.print(table)
    print_left_out(len(items), shown, console)


def print_left_out(count: int, shown: int | None, console: Console) -> None:
    """Print how many of `count` rows were left out, if any; `shown` as in print_rows."""
    if shown is not None and count > shown:
        console.print(f"and {count - shown:,} more; -o wide shows them", highlight=False)


def _quantiles(quantiles: Quantiles, shown: Callable[[int], str]) -> list[str]:
    times = (quantiles.p50_ns, quantiles.p90_ns, quantiles.p99_ns, quantiles.max_ns)
    return [f"{quantiles.count:,}", *("-" if ns is None else shown(ns) for ns in times)]


def _listed(counts: Sequence[NamedCount]) -> str:
    return ", ".join(f"{count.count:,} {count.name}" for count in counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """A table of the summary; without `-o wide` the first `shown` items (None: all).

    is_wide: whether the table is printed only with `-o wide`.
    """

    columns: Sequence[_Column]
    items: Callable[[Summary], Sequence[Any]]
    cells: Callable[[Summary, Any], Iterable[str]]
    shown: int | None = None
    title: str = ""
    is_wide: bool = False


_LISTINGS = (
    _Listing(
        columns=("DECIDED", *right_aligned("PODS"), ""),
        items=_decided,
        cells=lambda _, row: (row[0], f"{row[1]:,}", escape(row[2])),
    ),
    _Listing(
        columns=("PREEMPTOR", *right_aligned("PRIORITY", "VICTIMS")),
        items=lambda summary: summary.decided.preemptors,
        cells=lambda _, pod: (escape(pod.pod), str(pod.priority), f"{pod.victims:,}"),
        shown=_SHOWN,
    ),
    _Listing(
        columns=right_aligned("PREEMPTOR'S PRIORITY", "VICTIM'S PRIORITY", "VICTIMS"),
        items=lambda summary: summary.decided.displacements,
        cells=lambda _, row: (str(row.priority), str(row.victim_priority), f"{row.victims:,}"),
    ),
    _Listing(
        columns=("OWNER", *right_aligned("EVICTIONS"), "SIGNAL", *right_aligned("EVERY"), "NODES"),
        items=lambda summary: summary.decided.loops,
        cells=_loop_cells,
        shown=_SHOWN,
        title="Eviction loops",
    ),
    _Listing(
        columns=(
            "DRAINED NODE",
            *right_aligned("CORDONED AFTER"),
            "STATE",
            *right_aligned("TOOK", "EVICTED"),
            "",
        ),
        items=lambda summary: summary.decided.drains,
        cells=_drain_cells,
        shown=_DRAINS_SHOWN,
    ),
    _Listing(
        columns=(
            "NODE GROUP",
            *right_aligned("NODES", "PEAK", "MIN-MAX", "ADDED", "REMOVED", "NODE-HOURS", "COST"),
        ),
        items=lambda summary: summary.node_groups,
        cells=_group_cells,
    ),
    _Listing(
        columns=("WORKLOAD", "READY", "LEAST", "BELOW ITS BUDGET", "BELOW DESIRED"),
        items=lambda summary: summary.workloads,
        cells=lambda summary, verdict: map(escape, workload_cells(verdict, summary.start_ns)),
        shown=WORKLOADS_SHOWN,
        title="Workloads that were not whole",
    ),
    _Listing(
        columns=(*right_aligned("PODS"), "UNSCHEDULABLE AT THE END"),
        items=lambda summary: summary.unbound.messages,
        cells=lambda _, message: (f"{message.count:,}", escape(message.name)),
        shown=_SHOWN,
    ),
    _Listing(
        columns=(*right_aligned("ATTEMPTS", "PODS AT THE END"), "REASON FOR REFUSING A NODE"),
        items=lambda summary: summary.decided.failed_reasons,
        cells=_failed_cells,
        shown=_SHOWN,
    ),
    _Listing(
        columns=right_aligned("PRIORITY", "BOUND", "P50", "P90", "P99", "MAX", "STILL WAITING"),
        items=lambda summary: summary.waits,
        cells=_wait_cells,
        title="Simulated time in the queue until the binding",
    ),
    _Listing(
        columns=("STEP", *right_aligned("COUNT", "P50", "P90", "P99", "MAX")),
        items=lambda summary: summary.latencies,
        cells=lambda _, step: (escape(step.step), *_quantiles(step.wall, durations.wall)),
        title="Wall time of each step",
        is_wide=True,
    ),
    _Listing(
        columns=(*right_aligned("WINDOWS"), "ENDED BECAUSE"),
        items=lambda summary: summary.windows,
        cells=lambda _, reason: (f"{reason.count:,}", escape(reason.name)),
        title="Windows of rounds sent ahead",
        is_wide=True,
    ),
    _Listing(
        columns=(*right_aligned("COUNT"), "KIND", "NOTE"),
        items=lambda summary: summary.notes,
        cells=lambda _, note: (f"{note.count:,}", escape(note.kind), escape(note.text)),
        shown=_SHOWN,
    ),
)
"""The tables of a summary, in order; one without items is left out."""


def render(summary: Summary, output: str, console: Console) -> None:
    """Print `summary` as one of FORMATS. Raises ValueError for an unknown format."""
    match output:
        case "table" | "wide":
            print_summary(summary, console, wide=output == "wide")
        case "json":
            text = orjson.dumps(summary.to_mapping(), option=orjson.OPT_INDENT_2)
            _plain(console, json_text(text.decode()))
        case "yaml":
            mapping = orjson.loads(orjson.dumps(summary.to_mapping()))
            _plain(console, written(mapping).rstrip())
        case _:
            raise ValueError(f"{output!r} is not a format; formats are {', '.join(FORMATS)}")


def _plain(console: Console, text: str) -> None:
    console.file.write(f"{text}\n")
