"""`reprieve verify`: checks that the files of runs are unchanged since the runs ended."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click
from rich.markup import escape

from replay.cli.console import TerminalConsole
from replay.cli.errors import DIFFERS, ExitError, refusing
from replay.cli.parameters import DATA, echo_data, output_option
from replay.errors import RunError
from replay.options import FOLDER
from replay.results.run.directory import RunDirectory
from replay.results.run.verification import FAULTS, verify
from replay.results.summary.table import plain_table


@click.command(name="verify")
@click.argument("paths", metavar="RUN...", nargs=-1, required=True, type=FOLDER)
@output_option("table", "json", "yaml", meaning="For people or for programs.")
@refusing(RunError)
def command(*, paths: tuple[Path, ...], output: str) -> None:
    """Check the files of runs against the sizes and SHA-256 digests in their manifests.

    Each file is ok, changed, missing, extra (the run did not write it, and its readers would use
    it) or unchecked (the run broke off; up to its last checkpoint its files are checked, too). So
    are tables and report, and the traces that were replayed; one that is no longer at its path is
    gone, which is not a fault. Exports are not checked.

    Exit code 0 where all files are ok, 1 where one is not, 2 for a folder that is not a run's.

    \b
    Examples:
      reprieve verify runs/today
      reprieve verify runs/* -o json
    """
    files = [file for path in paths for file in verify(RunDirectory.open(path))]
    faults = sum(file.verdict in FAULTS for file in files)
    if output in DATA:
        echo_data([asdict(file) for file in files], output)
    else:
        table = plain_table("FILE", "STATUS", "REASON")
        for file in files:
            table.add_row(escape(file.path), file.verdict, escape(file.problem))
        TerminalConsole().print(table)
    if faults:
        runs = ", ".join(map(str, paths))
        counts = f"{faults:,} of {len(files):,} files"
        raise ExitError(DIFFERS, f"{runs}: {counts} are not those of the run's end, see STATUS")
