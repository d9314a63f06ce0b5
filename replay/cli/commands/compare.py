"""`reprieve compare`: two runs, or one trace with two configurations."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from replay.cli.console import TerminalConsole
from replay.cli.errors import refusing
from replay.cli.parameters import (
    FOLDER,
    assert_option,
    check_all,
    echo_json,
    open_run,
    output_option,
)
from replay.errors import RunError
from replay.explain.table import counted
from replay.results.durations import simulated
from replay.results.run.files import MANIFEST, next_folder
from replay.results.summary.figures import FIGURES
from replay.results.summary.table import escape, plain_table, print_left_out, right_aligned
from replay.whatif.assertions import Assertion, FigureError
from replay.whatif.comparison import (
    EFFECTS,
    FigureChange,
    PodGroup,
    RunComparison,
    RunFacts,
    compare,
    read_facts,
)
from replay.whatif.divergence import (
    ComparedRun,
    Divergence,
    divergence_reasons,
    first_divergence,
    sentence_of,
)
from replay.whatif.sweep import CellError, run_into
from reprieve.trace.v1beta1 import trace_pb2

_GROUPS_SHOWN = 12
_REASONS_SHOWN = 5


@click.command(name="compare")
@click.argument("paths", metavar="RUN_A RUN_B | TRACE... [-- REPLAY OPTIONS]", nargs=-1)
@click.option("--a", "options_a", default="", metavar="OPTIONS", help="Replay options of A.")
@click.option("--b", "options_b", default="", metavar="OPTIONS", help="Replay options of B.")
@click.option(
    "--run",
    "folder",
    type=FOLDER,
    help="Folder for the two runs of a trace, as a and b. Default: runs/compare-N.",
)
@click.option("--no-explain", is_flag=True, help="Do not replay the runs to find why they diverge.")
@assert_option
@output_option("table", "wide", "json", meaning="For people, with names of pods, or for programs.")
@refusing(RunError, FigureError)
def command(
    *,
    paths: tuple[str, ...],
    options_a: str,
    options_b: str,
    folder: Path | None,
    no_explain: bool,
    assertions: tuple[Assertion, ...],
    output: str,
) -> None:
    """Compare two runs: the first decision that differs and why, the pods affected, every figure.

    Give two run directories, or a trace and the options of A and B. Pods pair by namespace and
    name. --assert checks B; `preempted.change` is B's figure less A's.

    \b
    Examples:
      reprieve compare runs/today-1 runs/today-2
      reprieve compare cluster.ktr --b '--set priorityClass.batch.value=50'
      reprieve compare cluster.ktr --a '--seed 1' --b '--seed 2' -- --until 1h
      reprieve compare runs/a runs/b --assert 'preempted{class=web}.change <= 0'
    """
    if options_a or options_b:
        path_a, path_b = _runs(paths, options_a, options_b, folder)
    elif len(paths) == 2 and all((Path(each) / MANIFEST).is_file() for each in paths):
        path_a, path_b = map(Path, paths)
    else:
        raise click.UsageError("give two run directories, or a trace with --a or --b")
    compared = _compared(path_a, path_b, explains=not no_explain)
    show(compared, output)
    check_all(assertions, compared.facts_b, compared.facts_a)


def _runs(
    paths: tuple[str, ...], options_a: str, options_b: str, folder: Path | None
) -> tuple[Path, Path]:
    """Replay the trace twice and return the paths of the two runs."""
    from replay.cli.commands.replay import command as replay_command  # noqa: PLC0415 - when needed

    chosen = []
    for options in (options_a, options_b):
        try:
            chosen.append([*paths, *shlex.split(options)])
        except ValueError as error:
            raise click.UsageError(f"{options!r}: {error}") from error
        replay_command.make_context("replay", list(chosen[-1]))
    with refusing(RunError, CellError, OSError):
        base = folder or next_folder("compare")
        for name, arguments in zip("ab", chosen, strict=True):
            run_into(base / name, arguments, base / f"{name}.log")
    return base / "a", base / "b"


def _compared(path_a: Path, path_b: Path, *, explains: bool) -> Compared:
    run_a, run_b = open_run(path_a), open_run(path_b)
    facts_a, facts_b = read_facts(run_a), read_facts(run_b)
    divergence = first_divergence(run_a, run_b)
    reasons: list[str] = []
    if divergence is not None and explains:
        a = ComparedRun(name="A", run=run_a, facts=facts_a, decision=divergence.a)
        b = ComparedRun(name="B", run=run_b, facts=facts_b, decision=divergence.b)
        reasons = divergence_reasons(divergence, a, b)
    return Compared(
        path_a=str(path_a),
        path_b=str(path_b),
        facts_a=facts_a,
        facts_b=facts_b,
        divergence=divergence,
        reasons=tuple(reasons),
        comparison=compare(facts_a, facts_b),
        not_judged={
            name: why
            for name, run in (("A", run_a), ("B", run_b))
            if (why := run.eviction_not_judged())
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The result of a comparison; `reasons` are sentences.

    not_judged: why a run could decide no eviction, by "A" and "B"; a run that could is absent.
    """

    path_a: str
    path_b: str
    facts_a: RunFacts
    facts_b: RunFacts
    divergence: Divergence | None
    reasons: tuple[str, ...]
    comparison: RunComparison
    not_judged: Mapping[str, str]


def show(compared: Compared, output: str) -> None:
    """Print a comparison: table, wide (with names of pods) or json."""
    if output == "json":
        echo_json(_mapping(compared))
        return
    console = TerminalConsole()
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
        console.print("All decisions are identical.\n", highlight=False)
        return
    first = found.a or found.b
    assert first is not None  # noqa: S101 - a divergence has a decision
    facts = compared.facts_a if found.a is not None else compared.facts_b
    at = simulated(first.at_ns - facts.start_ns)
    after = counted(found.same, "identical decision")
    console.print(f"Runs diverge at {at}, after {after}:", highlight=False)
    for name, decision in (("A", found.a), ("B", found.b)):
        text = sentence_of(decision) if decision is not None else "has no further decision"
        console.print(f"  {name} {escape(text)}", highlight=False)
    for reason in compared.reasons[: None if wide else _REASONS_SHOWN]:
        console.print(f"  {escape(reason)}", highlight=False)
    console.print()


def _print_groups(groups: tuple[PodGroup, ...], console: Console, *, wide: bool) -> None:
    changed = [group for group in groups if group.counts]
    if not changed:
        console.print("No pod was affected.\n", highlight=False)
        return
    table = plain_table("PRIORITY CLASS", "NAMESPACE", *right_aligned("PODS"), "EFFECT IN B")
    shown = None if wide else _GROUPS_SHOWN
    for group in changed[:shown]:
        cells = (group.priority_class or "-", group.namespace, f"{group.pods:,}")
        table.add_row(*map(escape, cells), "\n".join(map(escape, _effects(group, wide=wide))))
    console.print(table)
    print_left_out(len(changed), shown, console)
    console.print()


def _effects(group: PodGroup, *, wide: bool) -> Iterator[str]:
    for kind in EFFECTS:
        count = group.counts.get(kind)
        if not count:
            continue
        total = f", {simulated(group.totals_ns[kind])} in total" if kind in group.totals_ns else ""
        names = f": {', '.join(group.samples[kind])}" if wide else ""
        yield f"{count:,} {kind}{total}{names}"


def _print_figures(figures: tuple[FigureChange, ...], console: Console, *, wide: bool) -> None:
    table = plain_table("FIGURE", *right_aligned("A", "B", "CHANGE", ""))
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
        console.print(f"{counted(same, 'figure')} identical.", highlight=False)


def _mapping(compared: Compared) -> dict[str, Any]:
    found = compared.divergence
    divergence = None
    if found is not None:
        divergence = {
            "same": found.same,
            "a": _decision(found.a, compared.facts_a),
            "b": _decision(found.b, compared.facts_b),
            "flipped_by": list(compared.reasons),
        }
    return {
        "a": compared.path_a,
        "b": compared.path_b,
        "eviction_not_judged": {name.lower(): why for name, why in compared.not_judged.items()},
        "divergence": divergence,
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
        "text": sentence_of(decision),
    }
