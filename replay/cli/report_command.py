"""`reprieve report`: a run as one page to look at."""

from __future__ import annotations

from pathlib import Path

import click

from replay.cli.errors import REFUSED, ExitError
from replay.report.report import write_report
from replay.results.errors import RunError
from replay.results.run_directory import RunDirectory


@click.command(name="report")
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write it. Default: report.html in RUN.",
)
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
    try:
        path = write_report(RunDirectory.open(run), output)
    except RunError as error:
        raise ExitError(REFUSED, str(error)) from error
    click.echo(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
