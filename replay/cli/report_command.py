"""`reprieve report`: a run as one page to look at."""

from __future__ import annotations

from pathlib import Path

import click

from replay.cli.errors import refusing
from replay.cli.parameters import run_argument
from replay.report.page import write_report
from replay.results.errors import RunError
from replay.results.run_directory import RunDirectory


@click.command(name="report")
@run_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write it. Default: report.html in RUN.",
)
@refusing(RunError)
def command(*, run: Path, output: Path | None) -> None:
    """Write a run's report: one HTML file that opens in any browser, without a network.

    It shows utilisation and pending pods over time by priority, waiting times, why pods were
    unschedulable, who displaced whom, each node's pods, evictions and loops of them, what was free
    but could not be used, and what each step took.

    \b
    Examples:
      reprieve report runs/today
      reprieve report runs/today -o today.html
    """
    path = write_report(RunDirectory.open(run), output)
    click.echo(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
