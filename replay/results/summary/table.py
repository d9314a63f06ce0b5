"""The summary for people: tables that fit 80 columns, and more of each list where there is room."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import orjson
import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from replay.results import durations
from replay.results.run.manifest import EMBEDDED
from replay.results.summary.histogram import Quantiles
from replay.results.summary.summary import Count, Decided, Summary
from replay.results.summary.tally import Loop

_SHOWN = 5
FORMATS = ("table", "wide", "json", "yaml")


def print_summary(summary: Summary, console: Console, *, wide: bool = False) -> None:
    """Print a summary. `wide` shows every preemptor, message and note, else the first five."""
    shown = None if wide else _SHOWN
    _print_head(summary, console)
    _print_decided(summary, console, shown)
    _print_unbound(summary, console, shown)
    _print_times(summary, console)
    if wide:
        _print_windows(summary, console)
    _print_notes(summary, console, shown)
    _print_spans(summary, console)


def _print_head(summary: Summary, console: Console) -> None:
    console.print(f"[bold]{escape(summary.run)}[/]: {escape(summary.end)}", highlight=False)
    console.print(
        f"{summary.pods:,} pods, {durations.simulated(summary.simulated_ns)} simulated in "
        f"{durations.wall(summary.wall_ns)}{_where(summary)}\n"
        f"{summary.attempts:,} scheduling attempts ({summary.attempts_per_s:,.0f}/s) in "
        f"{summary.rounds:,} rounds{_windows(summary)}{_batches(summary)}",
        highlight=False,
    )


def _evicted_note(decided: Decided) -> str:
    if decided.eviction_not_judged:
        return f"not judged: {decided.eviction_not_judged}"
    return _listed(decided.evicted)


def _where(summary: Summary) -> str:
    """Return how the services ran where that was not as usual: processes of their own."""
    ran = sorted(set(summary.services.values()) - {EMBEDDED})
    return f" ({', '.join(ran)})" if ran else ""


def _batches(summary: Summary) -> str:
    """Return how many pods shared an exchange with the queue, "" for schedulers that ask none."""
    return f", {summary.batch_size_mean:.2f} a batch" if summary.batch_size_mean else ""


def _windows(summary: Summary) -> str:
    """Return how many messages told the rounds where some told several."""
    return f" ({summary.messages:,} messages)" if summary.windows else ""


def _print_decided(summary: Summary, console: Console, shown: int | None) -> None:
    decided = summary.decided
    violations = decided.budget_violations
    count = len(decided.preemptors)
    preempted_note = f"by {count:,} pod{'s' if count > 1 else ''}" if count else ""
    if violations:
        preempted_note += f", {violations:,} against a disruption budget"
    evicted = sum(each.count for each in decided.evicted)
    rows = [
        ("bound", decided.bound, ""),
        ("preempted", decided.preempted, preempted_note),
        ("evicted", evicted, _evicted_note(decided)),
        ("unschedulable at the end", summary.unbound.pods - summary.unbound.untried, ""),
        ("ended", sum(each.count for each in decided.ended), _listed(decided.ended)),
    ]
    optional = [
        ("never tried", summary.unbound.untried, "gated, of another scheduler, or too late"),
        ("failed attempts", decided.failed_attempts, ""),
        ("refused decisions", decided.refused, "given back to the scheduler"),
    ]
    _print_rows(
        console,
        ("DECIDED", *_right("PODS"), ""),
        [*rows, *(row for row in optional if row[1])],
        lambda row: (row[0], f"{row[1]:,}", row[2]),
    )
    _print_rows(
        console,
        ("PREEMPTOR", *_right("PRIORITY", "VICTIMS")),
        decided.preemptors,
        lambda each: (escape(each.pod), str(each.priority), f"{each.victims:,}"),
        shown,
    )
    _print_rows(
        console,
        _right("PREEMPTOR'S PRIORITY", "VICTIM'S PRIORITY", "VICTIMS"),
        decided.displacements,
        lambda each: (str(each.priority), str(each.victim_priority), f"{each.victims:,}"),
    )
    _print_rows(
        console,
        ("OWNER", *_right("EVICTIONS"), "SIGNAL", *_right("EVERY"), "NODES"),
        decided.loops,
        _loop_cells,
        shown,
        title="Evicted, made anew and evicted again",
    )


def _loop_cells(loop: Loop) -> tuple[str, ...]:
    nodes = ", ".join(loop.nodes[:3]) + (", ..." if len(loop.nodes) > 3 else "")
    every = durations.simulated(loop.every_ns)
    return escape(loop.owner), f"{loop.evictions:,}", loop.signal, every, escape(nodes)


def _print_unbound(summary: Summary, console: Console, shown: int | None) -> None:
    unbound = summary.unbound
    still = {each.name: each.count for each in unbound.reasons}
    _print_rows(
        console,
        (*_right("PODS"), "UNSCHEDULABLE AT THE END"),
        unbound.messages,
        lambda each: (f"{each.count:,}", escape(each.name)),
        shown,
    )
    _print_rows(
        console,
        (*_right("ATTEMPTS", "PODS AT THE END"), "REASON OF A NODE'S REFUSAL"),
        summary.decided.failed_reasons,
        lambda each: (f"{each.count:,}", f"{still.get(each.name, 0):,}", escape(each.name)),
        shown,
    )


def _print_times(summary: Summary, console: Console) -> None:
    _print_rows(
        console,
        _right("PRIORITY", "BOUND", "P50", "P90", "P99", "MAX", "STILL WAITING"),
        summary.waits,
        lambda each: (
            str(each.priority),
            *_quantiles(each.waited, durations.simulated),
            f"{each.still_waiting:,}",
        ),
        title="Simulated time in the queue until the binding",
    )
    _print_rows(
        console,
        ("STEP", *_right("COUNT", "P50", "P90", "P99", "MAX")),
        summary.latencies,
        lambda each: (escape(each.step), *_quantiles(each.wall, durations.wall)),
        title="Wall time of each step",
    )


def _print_windows(summary: Summary, console: Console) -> None:
    _print_rows(
        console,
        (*_right("WINDOWS"), "ENDED SINCE"),
        summary.windows,
        lambda each: (f"{each.count:,}", escape(each.name)),
        title="Rounds told ahead",
    )


def _print_notes(summary: Summary, console: Console, shown: int | None) -> None:
    _print_rows(
        console,
        (*_right("COUNT"), "KIND", "NOTE"),
        summary.notes,
        lambda each: (f"{each.count:,}", escape(each.kind), escape(each.text)),
        shown,
    )


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
        console.print(f"[bold red]spans were lost:[/] {escape(spans.problem)}", highlight=False)


_Column = str | tuple[str, str]
_Item = TypeVar("_Item")


def _table(*columns: _Column) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
    for column in columns:
        name, side = column if isinstance(column, tuple) else (column, "left")
        table.add_column(name, justify="right" if side == "right" else "left", overflow="fold")
    return table


def _right(*names: str) -> list[_Column]:
    return [(name, "right") for name in names]


def _print_rows(
    console: Console,
    columns: Iterable[_Column],
    items: Sequence[_Item],
    cells: Callable[[_Item], Iterable[str]],
    shown: int | None = None,
    *,
    title: str = "",
) -> None:
    """Print a table of `items`, the first `shown` of them (None: all), unless there are none."""
    if not items:
        return
    table = _table(*columns)
    for each in items[:shown]:
        table.add_row(*cells(each))
    console.print()
    if title:
        console.print(title, highlight=False)
    console.print(table)
    left = 0 if shown is None else len(items) - shown
    if left > 0:
        console.print(f"and {left:,} more: -o wide shows them", highlight=False)


def _quantiles(quantiles: Quantiles, shown: Callable[[int], str]) -> list[str]:
    if not quantiles.count:
        return ["0", "-", "-", "-", "-"]
    times = (quantiles.p50_ns, quantiles.p90_ns, quantiles.p99_ns, quantiles.max_ns)
    return [f"{quantiles.count:,}", *map(shown, times)]


def _listed(counts: Sequence[Count]) -> str:
    return ", ".join(f"{each.count:,} {each.name}" for each in counts)


def render(summary: Summary, output: str, console: Console) -> None:
    """Print `summary` as one of FORMATS. Raises ValueError for another."""
    match output:
        case "table" | "wide":
            print_summary(summary, console, wide=output == "wide")
        case "json":
            text = orjson.dumps(summary.to_mapping(), option=orjson.OPT_INDENT_2)
            _plain(console, text.decode())
        case "yaml":
            mapping = orjson.loads(orjson.dumps(summary.to_mapping()))
            _plain(console, yaml.safe_dump(mapping, sort_keys=False, allow_unicode=True).rstrip())
        case _:
            raise ValueError(f"{output!r} is none of {', '.join(FORMATS)}")


def _plain(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
