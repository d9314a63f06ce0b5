"""Two runs side by side, as tables of 80 columns or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from replay.cli.parameters import echo_json
from replay.results.durations import simulated
from replay.whatif.comparison import KINDS, Comparison, FigureChange, Group
from replay.whatif.facts import RunFacts
from replay.whatif.figures import FIGURES
from replay.whatif.flip import Divergence, told
from reprieve.trace.v1alpha1 import trace_pb2

_GROUPS_SHOWN = 12
_REASONS_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """All that a comparison found; `reasons` are sentences.

    not_judged: why a run could decide no eviction, by A and B; a run that could is absent.
    """

    path_a: str
    path_b: str
    facts_a: RunFacts
    facts_b: RunFacts
    divergence: Divergence | None
    reasons: tuple[str, ...]
    comparison: Comparison
    not_judged: Mapping[str, str]


def show(compared: Compared, output: str) -> None:
    """Print a comparison: table, wide (with names of pods) or json."""
    if output == "json":
        echo_json(_mapping(compared))
        return
    console = Console()
    console.print(f"A: {escape(compared.path_a)}\nB: {escape(compared.path_b)}\n", highlight=False)
    _print_not_judged(compared.not_judged, console)
    _print_divergence(compared, console, wide=output == "wide")
    _print_groups(compared.comparison.groups, console, wide=output == "wide")
    _print_figures(compared.comparison.figures, console, wide=output == "wide")


def _print_not_judged(not_judged: Mapping[str, str], console: Console) -> None:
    by_reason: dict[str, list[str]] = {}
    for name, why in not_judged.items():
        by_reason.setdefault(why, []).append(name)
    for why, names in by_reason.items():
        runs = " and ".join(names)
        console.print(f"Eviction was not judged in {runs}: {escape(why)}.", highlight=False)
    if by_reason:
        console.print()


def _print_divergence(compared: Compared, console: Console, *, wide: bool) -> None:
    found = compared.divergence
    if found is None:
        console.print("Every decision is the same.\n", highlight=False)
        return
    first = found.a or found.b
    assert first is not None  # noqa: S101 - a divergence has a decision
    facts = compared.facts_a if found.a is not None else compared.facts_b
    at = simulated(first.at_ns - facts.start_ns)
    console.print(f"After {found.same:,} equal decisions the runs part at {at}:", highlight=False)
    for name, decision in (("A", found.a), ("B", found.b)):
        console.print(f"  {name} {escape(_sentence(decision))}", highlight=False)
    for reason in compared.reasons[: None if wide else _REASONS_SHOWN]:
        console.print(f"  {escape(reason)}", highlight=False)
    console.print()


def _sentence(decision: trace_pb2.Decision | None) -> str:
    return told(decision) if decision is not None else "decides nothing more"


def _print_groups(groups: tuple[Group, ...], console: Console, *, wide: bool) -> None:
    changed = [group for group in groups if group.counts]
    if not changed:
        console.print("No pod fared otherwise.\n", highlight=False)
        return
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
    for name in ("PRIORITY CLASS", "NAMESPACE"):
        table.add_column(name, overflow="fold")
    table.add_column("PODS", justify="right")
    table.add_column("WHAT BEFELL THEM IN B", overflow="fold")
    for group in changed[: None if wide else _GROUPS_SHOWN]:
        cells = (group.priority_class or "-", group.namespace, f"{group.pods:,}")
        table.add_row(*map(escape, cells), escape("\n".join(_befell(group, wide=wide))))
    console.print(table)
    left = 0 if wide else len(changed) - _GROUPS_SHOWN
    if left > 0:
        console.print(f"and {left:,} more: -o wide shows them", highlight=False)
    console.print()


def _befell(group: Group, *, wide: bool) -> Iterator[str]:
    for kind in KINDS:
        count = group.counts.get(kind)
        if not count:
            continue
        total = f" by {simulated(group.totals_ns[kind])} in all" if kind in group.totals_ns else ""
        names = f": {', '.join(group.samples[kind])}" if wide else ""
        yield f"{count:,} {kind}{total}{names}"


def _print_figures(figures: tuple[FigureChange, ...], console: Console, *, wide: bool) -> None:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("FIGURE", overflow="fold")
    for name in ("A", "B", "CHANGE", ""):
        table.add_column(name, justify="right")
    same = 0
    for each in figures:
        if each.change or wide:
            share = "" if each.share is None or not each.change else f"{100 * each.share:+,.1f} %"
            name, unit = each.name, FIGURES[each.name.partition("{")[0]].unit
            unit = f", {unit}" if unit in {"s", "%"} else ""
            change = f"{each.change:+,.5g}" if each.change else "0"
            table.add_row(escape(name + unit), f"{each.a:,.5g}", f"{each.b:,.5g}", change, share)
        else:
            same += 1
    if table.row_count:
        console.print(table)
    if same:
        console.print(f"{same:,} figures are the same.", highlight=False)


def _mapping(compared: Compared) -> dict[str, Any]:
    found = compared.divergence
    parting = None
    if found is not None:
        parting = {
            "same": found.same,
            "a": _decision(found.a, compared.facts_a),
            "b": _decision(found.b, compared.facts_b),
            "flipped_by": list(compared.reasons),
        }
    return {
        "a": compared.path_a,
        "b": compared.path_b,
        "eviction_not_judged": {name.lower(): why for name, why in compared.not_judged.items()},
        "divergence": parting,
        **compared.comparison.to_mapping(),
    }


def _decision(decision: trace_pb2.Decision | None, facts: RunFacts) -> dict[str, Any] | None:
    if decision is None:
        return None
    named = decision.observed.object
    return {
        "sequence": decision.sequence,
        "offset_ns": decision.at_ns - facts.start_ns,
        "decision": decision.observed.WhichOneof("observed"),
        "object": f"{named.namespace}/{named.name}".lstrip("/"),
        "text": told(decision),
    }
