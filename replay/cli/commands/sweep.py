"""`reprieve sweep`: a grid of replays, with a table and a plot."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from replay.cli.console import TerminalConsole
from replay.cli.errors import FAILED, REFUSED, ExitError, refusing
from replay.cli.parameters import FOLDER
from replay.cli.progress import counted
from replay.errors import RunError
from replay.results.summary.figures import FIGURES
from replay.results.summary.table import plain_table, right_aligned
from replay.whatif.sweep import (
    FinishedCell,
    GridError,
    SweepAxis,
    SweepCell,
    cells,
    parse_axis,
    run_sweep,
)
from replay.whatif.sweep_table import SweepRow, cells_csv, plot, table, table_csv

_SHOWN = ("bound", "pending", "preempted", "evicted", "waited_p99")
_PROBLEMS_SHOWN = 3


@click.command(name="sweep", context_settings={"ignore_unknown_options": False})
@click.argument("replay", metavar="TRACE... [-- REPLAY OPTIONS]", nargs=-1, required=True)
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
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@refusing(GridError, RunError)
def command(
    *,
    replay: tuple[str, ...],
    axes: tuple[str, ...],
    output: Path,
    figures: tuple[str, ...],
    workers: int,
    dask: str,
    quiet: bool,
) -> None:
    """Replay a trace at every point of a grid and compare the figures.

    Options after `--` are passed to each replay. A sweep that was interrupted, or got more values,
    runs only the missing replays. Figures are averaged over seeds, where seed is an axis. The
    folder gets table.csv, cells.csv, plot.svg, and each run directory under cells/.

    \b
    Examples:
      reprieve sweep cluster.ktr --over seed=1..10 -o out
      reprieve sweep cluster.ktr --over set:priorityClass.batch.value=0,50,100 -o out
      reprieve sweep nodes.csv pods.csv --over scheduler-config=a.yaml,b.yaml --over seed=1..10 \\
          -o out --figure allocated{resource=cpu} -- --no-eviction --until 1h
    """
    shown = figures or _SHOWN
    for name in shown:
        if name.partition("{")[0] not in FIGURES:
            raise click.UsageError(f"{name!r} is not a figure; figures are {', '.join(FIGURES)}")
    grid = _grid([parse_axis(each) for each in axes], replay)
    finished = _run(output, grid, workers, dask, quiet=quiet)
    rows = table(finished)
    _refuse_unknown(shown, rows)
    (output / "cells.csv").write_text(cells_csv(finished), encoding="utf-8")
    (output / "table.csv").write_text(table_csv(rows), encoding="utf-8")
    unit = FIGURES[shown[0].partition("{")[0]].unit
    (output / "plot.svg").write_text(plot(rows, shown[0], unit), encoding="utf-8")
    _print(rows, shown, TerminalConsole())
    _report_problems(finished)


def _grid(axes: Sequence[SweepAxis], replay: Sequence[str]) -> list[SweepCell]:
    """Return the cells; every command line is parsed before any replay runs."""
    from replay.cli.commands.replay import command as replay_command  # noqa: PLC0415 - when needed

    grid = list(cells(axes, replay))
    for cell in grid:
        replay_command.make_context("replay", list(cell.arguments))
    return grid


def _run(
    output: Path, grid: Sequence[SweepCell], workers: int, dask: str, *, quiet: bool
) -> list[FinishedCell]:
    with counted("replays", quiet=quiet) as shown:
        return run_sweep(
            output,
            grid,
            workers=workers,
            dask=dask,
            report=lambda _finished, ended, total: shown(ended, total),
        )


def _refuse_unknown(shown: Sequence[str], rows: Sequence[SweepRow]) -> None:
    present = dict.fromkeys(name for row in rows for name in row.figures)
    for name in shown:
        if present and name not in present:
            raise ExitError(REFUSED, f"{name!r} is not a figure; figures are {', '.join(present)}")


def _print(rows: Sequence[SweepRow], shown: Sequence[str], console: Console) -> None:
    axes = [axis.removeprefix("set:") for axis, _ in rows[0].place]
    grid = plain_table(*axes, *right_aligned("RUNS", *shown))
    for row in rows:
        runs = max((each.count for each in row.figures.values()), default=0)
        cells_ = [
            f"{row.figures[name].mean:,.5g} ± {row.figures[name].deviation:,.2g}"
            if name in row.figures
            else "-"
            for name in shown
        ]
        grid.add_row(*(value for _, value in row.place), str(runs), *cells_)
    console.print(grid)


def _report_problems(finished: Sequence[FinishedCell]) -> None:
    failed = [each for each in finished if each.problem]
    if not failed:
        return
    problems = [
        f"{', '.join(f'{axis}={value}' for axis, value in each.cell.place)}: {each.problem}"
        for each in failed[:_PROBLEMS_SHOWN]
    ]
    more = len(failed) - len(problems)
    problems += [f"and {more:,} more"] if more > 0 else []
    raise ExitError(
        FAILED, f"{len(failed):,} of {len(finished):,} replays failed\n" + "\n".join(problems)
    )
