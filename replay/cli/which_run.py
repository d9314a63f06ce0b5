"""Finds the run that a command about objects reads: `get`, `describe` and `explain`.

They share one order of arguments, kubectl's followed by the run: TYPE [NAME]... [RUN]. An argument
that is the path of a folder with a run cannot be an object's name, so the run is recognised among
the arguments. It may be left out; then the latest run is read.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from replay.cli.parameters import open_run
from replay.errors import RunError
from replay.results.kubectl.resources import is_type
from replay.results.run.directory import RunDirectory
from replay.results.run.files import MANIFEST, RUNS, latest_run
from services.terminal import echo

_HERE = frozenset({".", ".."})

run_option = click.option(
    "--run",
    "run",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The same as RUN; for an object with the name of a run's folder.",
)


def complete_name(_ctx: click.Context, _param: click.Parameter, text: str) -> list[CompletionItem]:
    """Complete the folder of a run; names of objects are not completed."""
    return [CompletionItem(text, type="dir")]


def which_run(arguments: Sequence[str], option: Path | None) -> tuple[RunDirectory, list[str]]:
    """Open the run that `option` or an argument names; return it with the other arguments.

    If neither names a run, the latest run under runs/ is opened, and a line on standard error, if
    that is a terminal, names it. Raises RunError if the run cannot be read, or there is no run.
    """
    if option is not None:
        return open_run(option), list(arguments)
    runs = [
        argument
        for argument in arguments
        if argument in _HERE or (Path(argument) / MANIFEST).is_file()
    ]
    if len(runs) > 1:
        raise click.UsageError(f"give one run: {runs[0]} and {runs[1]} are two")
    if runs:
        names = list(arguments)
        names.remove(runs[0])
        return open_run(Path(runs[0])), names
    if paths := [argument for argument in arguments[1:] if _is_path(argument)]:
        return open_run(Path(paths[-1])), []  # raises: the folder has no run
    latest = latest_run()
    if latest is None:
        raise RunError(
            f"{RUNS}/ has no run: name the folder of one, or make one with `reprieve replay TRACE`"
        )
    if sys.stderr.isatty():
        echo(f"run: {latest}, the latest", err=True)
    return open_run(latest), list(arguments)


def _is_path(argument: str) -> bool:
    """Return whether an argument can only be a path: it is neither NAME nor TYPE/NAME."""
    type_, slash, name = argument.partition("/")
    return bool(slash) and ("/" in name or not name or not is_type(type_))
