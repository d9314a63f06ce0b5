"""`reprieve resume`: goes on with a run that broke off, by the command that began it."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import click

from replay.cli.checks import Checks, raise_failed
from replay.cli.errors import REFUSED, ExitError, refusing
from replay.cli.parameters import FOLDER
from replay.errors import RunError
from replay.results.run.directory import RunDirectory
from replay.results.run.files import REPORT
from replay.results.run.resume_point import ResumePoint, RunCommand
from replay.runner import ReplaySettings
from replay.whatif.assertions import FigureError, parse_assertion
from replay.whatif.comparison import read_facts
from services.terminal import echo

_RESUMED = "replay.cli.commands.resume"
"""Key of the resumed run's command in click's context, which the replay command reads."""


@click.command(name="resume")
@click.argument("run", type=FOLDER)
@click.pass_context
def command(context: click.Context, run: Path) -> None:
    """Go on with a run that broke off: killed, interrupted, or out of disk space.

    RUN is the folder of the run. The command that began it is repeated in its working directory,
    from the run's last checkpoint on; without a checkpoint from the beginning. The decision log is
    then byte for byte that of a run that was never interrupted. Trace, configuration and version
    must be those of the beginning. A run whose services are lost goes on by itself, see --reconnect
    of `reprieve replay`. Of a run that has its end, a missing report is written, and --assert is
    checked.

    \b
    Examples:
      reprieve resume runs/today
    """
    with refusing(RunError, FigureError):
        if RunDirectory.open(run).manifest().finished:
            _complete(RunDirectory.open(run))
            return
        begun = ResumePoint.read(run).command
    if not begun.argv or begun.argv[0] != "replay":
        problem = f"{run} was not made by `reprieve replay`: repeat the command that made it"
        raise ExitError(REFUSED, problem)
    here = run.resolve()
    try:
        os.chdir(begun.folder)
    except OSError as error:
        raise ExitError(REFUSED, f"{begun.folder}: {error.strerror or error}") from error
    for name, text in begun.environment.items():
        os.environ.setdefault(name, text)
    named = Path(begun.run)
    path = named if named.exists() and named.samefile(here) else here
    begun = replace(begun, run=str(path))
    main = context.find_root().command

    with main.make_context("reprieve", list(begun.argv)) as repeated:
        repeated.meta[_RESUMED] = begun
        main.invoke(repeated)


def _complete(run: RunDirectory) -> None:
    """Do what is left of a command whose run has its end: its report and its checks."""
    from replay.report.page import write_report  # noqa: PLC0415 - loaded when needed

    run.complete()
    argv = run.manifest().argv
    echo(f"{run.path} has its end; there is nothing to resume", err=True)
    if "--no-report" not in argv and not (run.path / REPORT).exists():
        echo(f"report: {write_report(run)}", err=True)
    texts = [text for option, text in pairwise(argv) if option == "--assert"]
    texts += [each.partition("=")[2] for each in argv if each.startswith("--assert=")]
    if texts:
        checks = Checks(assertions=tuple(map(parse_assertion, texts)))
        raise_failed(checks.results(run.path.name, read_facts(run), None))


def resumed(settings: ReplaySettings) -> ReplaySettings:
    """Return the settings of a replay; those of the run where `reprieve resume` repeats it."""
    context = click.get_current_context(silent=True)
    begun: RunCommand | None = context.meta.get(_RESUMED) if context is not None else None
    if begun is None:
        return settings
    return replace(settings, argv=tuple(begun.argv), run_path=Path(begun.run), resumes=True)
