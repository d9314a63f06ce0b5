"""`reprieve sweep`: a grid of replays, with a table and a plot."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.console import Console

from replay.cli.checks import Checks, check_options, no_effect_option, write_whole
from replay.cli.console import TerminalConsole
from replay.cli.errors import FAILED, REFUSED, ExitError, refusing
from replay.cli.grids import (
    Sharing,
    begun_at,
    completed,
    inputs_of,
    look_at,
    print_shared,
    sharing_with,
)
from replay.cli.parameters import html_option, quiet_option
from replay.cli.progress import counted
from replay.errors import RunError
from replay.options import FOLDER
from replay.results.run.directory import RunDirectory
from replay.results.run.files import MANIFEST
from replay.results.summary.figures import FIGURES
from replay.results.summary.table import escape, plain_table, print_rows, right_aligned
from replay.whatif.assertions import FigureError, unknown_figure
from replay.whatif.ci import CheckResult, figure_name, plain
from replay.whatif.facts import RunFacts, read_facts
from replay.whatif.removals import Removal, removals, sentence
from replay.whatif.selectors import MatchedChecks
from replay.whatif.sweep import (
    CELLS,
    RUN,
    FinishedCell,
    GridError,
    SweepAxis,
    SweepCell,
    cells,
    parse_axis,
    refuse_folder,
    run_sweep,
)
from replay.whatif.sweep_table import SweepRow, cells_csv, columns, markdown, plot, table, table_csv

_SHOWN = ("bound", "pending", "preempted", "evicted", "waited_p99")
_PROBLEMS_SHOWN = 3


@click.command(name="sweep", context_settings={"ignore_unknown_options": False})
@click.argument("replay", metavar="TRACE...|RUN [-- REPLAY OPTIONS]", nargs=-1, required=True)
@click.option(
    "--over",
    "axes",
    required=True,
    multiple=True,
    metavar="NAME=VALUES",
    help="An axis: an option of replay, as in seed=1..10 or scheduler-config=a.yaml,b.yaml, or an "
    "override, as in set:priorityClass.batch.value=0,50,100. Repeatable.",
)
@click.option(
    "--at",
    "moment",
    default="",
    metavar="DURATION|TIME",
    help="Let the what-ifs of the axes begin at this moment of the trace.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=FOLDER,
    help="The sweep's folder; an existing sweep in it is continued.",
)
@click.option(
    "--figure",
    "figures",
    multiple=True,
    metavar="FIGURE",
    help="A figure to print, such as preempted or allocated{resource=cpu}; the first is plotted. "
    "The tables in the folder have all figures.",
)
@click.option(
    "--workers",
    default=os.cpu_count() or 1,
    show_default="one per core",
    type=click.IntRange(1, 1024),
    help="Number of parallel replays on this machine; each starts its own services.",
)
@click.option(
    "--dask",
    default="",
    metavar="ADDRESS",
    help='Run on the Dask cluster of this scheduler, such as tcp://host:8786 ("reprieve[sweep]").',
)
@click.option(
    "--force", is_flag=True, help="Replay the points of a former sweep in the folder again, too."
)
@check_options
@no_effect_option
@html_option
@quiet_option
@refusing(GridError, RunError, FigureError)
def command(
    *,
    replay: tuple[str, ...],
    axes: tuple[str, ...],
    moment: str,
    output: Path,
    figures: tuple[str, ...],
    workers: int,
    dask: str,
    force: bool,
    checks: Checks,
    allows_no_effect: bool,
    html: Path | None,
    quiet: bool,
) -> None:
    """Replay a trace at every point of a grid and compare the figures.

    Options after `--` are passed to each replay. A sweep that was interrupted, or has new values,
    runs only the missing replays. Figures are averaged over seeds, where seed is an axis. The
    folder gets table.csv, cells.csv, plot.svg, and each run directory under cells/. A point whose
    values are those of the replay without axes is the baseline. --assert checks each run;
    `preempted.change` is its figure minus that of the baseline with the same seed. Where points
    remove nodes, these are named, with those that can go while each check holds. Replays that begin
    in the same way are played from a state of the first of them. RUN in place of TRACE repeats the
    command of a run, from its states.

    \b
    Examples:
      reprieve sweep cluster.ktr --over seed=1..10 -o out
      reprieve sweep cluster.ktr --over set:priorityClass.batch.value=0,50,100 -o out
      reprieve sweep nodes.csv pods.csv --over scheduler-config=a.yaml,b.yaml --over seed=1..10 \\
          -o out --figure allocated{resource=cpu} -- --no-eviction --until 1h
      reprieve sweep cluster.ktr --over scale-nodes=0.9,1.0 -o out --assert 'pending.change == 0'
      reprieve sweep cluster.yaml --over scale-nodes=pool=gpu:-0..-3 -o out \\
          --assert 'pending == 0' -- --scale-order least-used
      reprieve sweep runs/today --at 2h --over fail=node-1,node-2,node-3 -o out
    """
    shown = figures or _SHOWN
    for name in shown:
        if name.partition("{")[0] not in FIGURES:
            raise click.UsageError(unknown_figure(name, FIGURES))
    checks = dataclasses.replace(checks, allows_no_effect=allows_no_effect)
    run = Path(replay[0]) if (Path(replay[0]) / MANIFEST).is_file() else None
    common = replay if run is None else inputs_of(run, replay[1:])
    grid = _grid([parse_axis(axis) for axis in axes], common, moment)
    refuse_folder(output)
    look_at(grid, checks)
    if not dask:
        grid = Sharing().of(grid) if run is None else sharing_with(run, grid)
    finished = _run(output, grid, workers, dask, quiet=quiet, force=force)
    rows = table(finished)
    _refuse_unknown(shown, finished)
    unit = FIGURES[shown[0].partition("{")[0]].unit
    write_whole(output / "cells.csv", cells_csv(finished).encode())
    write_whole(output / "table.csv", table_csv(rows).encode())
    write_whole(output / "plot.svg", plot(rows, shown[0], unit).encode())
    if html is not None:
        from replay.report.page import write_page  # noqa: PLC0415 - loaded when needed
        from replay.report.swept import sweep_page  # noqa: PLC0415 - loaded when needed

        write_page(html, sweep_page(output.resolve().name, rows, shown))
    if not quiet:
        _print(rows, shown, TerminalConsole())
        made = [ended.cell.name for ended in finished if not ended.problem]
        print_shared([output / CELLS / name / RUN for name in made])
    results = list(_checked(output, finished, checks))
    removed = removals(output, finished, results)
    if not quiet:
        _print_removals(removed, TerminalConsole())
    try:
        checks.conclude(
            "reprieve sweep",
            results,
            lambda: "\n".join(filter(None, [markdown(rows, shown), plain(sentence(removed))])),
        )
    finally:
        _report_problems(finished)


def _grid(axes: Sequence[SweepAxis], replay: Sequence[str], moment: str) -> list[SweepCell]:
    """Return the cells; every command line is parsed before any replay runs.

    moment: when the what-ifs of the axes take effect, "" for the beginning.
    """
    return completed(begun_at(cells(axes, replay), moment, replay), axes, replay)


def _run(
    output: Path, grid: Sequence[SweepCell], workers: int, dask: str, *, quiet: bool, force: bool
) -> list[FinishedCell]:
    with counted("replays", quiet=quiet) as shown:
        return run_sweep(
            output,
            grid,
            workers=workers,
            dask=dask,
            report=lambda _finished, ended, total: shown(ended, total),
            force=force,
        )


def _refuse_unknown(shown: Sequence[str], finished: Sequence[FinishedCell]) -> None:
    present = dict.fromkeys(name for ended in finished for name in ended.figures)
    for name in shown:
        if present and name not in present:
            raise ExitError(REFUSED, unknown_figure(name, present))


def _checked(
    folder: Path, finished: Sequence[FinishedCell], checks: Checks
) -> Iterator[CheckResult]:
    """Yield the check results of each cell; if a cell failed, its results are errors.

    Raises FigureError for a check that selects nothing in any cell.
    """
    baselines = {ended.cell.seed: ended.cell for ended in finished if ended.cell.is_baseline}
    compares = any(assertion.is_change for assertion in checks.assertions)
    if compares and not baselines:
        raise FigureError(".change needs the baseline in the grid, such as scale-nodes=1.0")

    @functools.lru_cache(1)
    def facts(cell: SweepCell) -> RunFacts:
        return read_facts(RunDirectory.open(folder / CELLS / cell.name / RUN))

    matches = MatchedChecks()
    ordered = sorted(finished, key=lambda ended: ended.cell.seed) if compares else finished
    for ended in ordered if checks.assertions else ():
        if ended.problem:
            for assertion in checks.assertions:
                yield CheckResult(name=assertion.text, place=ended.cell.label, error=ended.problem)
            continue
        facts_here = read_facts(RunDirectory.open(folder / CELLS / ended.cell.name / RUN))
        other = facts(baselines[ended.cell.seed]) if compares else None
        matches.look(checks.assertions, [facts_here] if other is None else [facts_here, other])
        yield from checks.results_at(ended.cell.label, facts_here, other)
    checks.refuse_unmatched(matches)


def _print(rows: Sequence[SweepRow], shown: Sequence[str], console: Console) -> None:
    axes = len(rows[0].place)
    names = columns(rows, list(map(figure_name, shown)))
    names[axes] = names[axes].upper()
    marks = [""] if any(row.is_baseline for row in rows) else []
    grid = plain_table(*names[:axes], *right_aligned(*names[axes:]), *marks)
    for row in rows:
        mark = ["baseline" if row.is_baseline else ""] if marks else []
        grid.add_row(*map(escape, (*row.cells(shown), *mark)))
    console.print(grid)


def _print_removals(removed: Sequence[Removal], console: Console) -> None:
    print_rows(
        console,
        ("AT", "REMOVED NODES", "CHECKS" if any(removal.is_checked for removal in removed) else ""),
        removed,
        lambda removal: map(
            escape, (removal.place, ", ".join(removal.nodes) or "-", _checks_text(removal))
        ),
    )
    if text := sentence(removed):
        console.print(f"\n{escape(text)}", highlight=False)


def _checks_text(removal: Removal) -> str:
    return "; ".join(dict.fromkeys(removal.failures)) or ("hold" if removal.is_checked else "")


def _report_problems(finished: Sequence[FinishedCell]) -> None:
    failed = [ended for ended in finished if ended.problem]
    if not failed:
        return
    problems = [f"{ended.cell.label}: {ended.problem}" for ended in failed[:_PROBLEMS_SHOWN]]
    more = len(failed) - len(problems)
    problems += [f"and {more:,} more"] if more > 0 else []
    raise ExitError(
        FAILED, f"{len(failed):,} of {len(finished):,} replays failed\n" + "\n".join(problems)
    )
