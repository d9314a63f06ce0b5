"""`reprieve resume`: continues an interrupted run by repeating the command that started it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from replay.cli.checks import Checks, check_options
from replay.cli.errors import REFUSED, ExitError, refusing
from replay.errors import RunError
from replay.options import FOLDER
from replay.results.run.directory import RunDirectory
from replay.results.run.files import REPORT
from replay.results.run.resume_point import ASKED, ResumePoint, RunCommand
from services.terminal import echo, one_line


@click.command(name="resume")
@click.argument("run", type=FOLDER)
@click.option(
    "--repeat-command",
    "repeats_any",
    is_flag=True,
    help="Repeat the run's command although the run was not begun here by this user.",
)
@check_options
@click.pass_context
def command(context: click.Context, *, run: Path, repeats_any: bool, checks: Checks) -> None:
    """Resume an interrupted run: killed, stopped by a signal, or out of disk space.

    RUN is the folder of the run. The command that began it is repeated in its working directory,
    from the run's last checkpoint on; without a checkpoint from the beginning. The decision log is
    then byte for byte that of a run that was never interrupted. Trace, configuration and version
    must be those of the beginning. Bounds and timeouts of the environment are taken from then, too;
    set REPRIEVE_ACCESS and REPRIEVE_PLUGINS again. A run whose services are lost goes on by itself,
    see --reconnect of `reprieve replay`. If the run is complete, only a missing report is written.

    The command writes the files and connects to the addresses that it has. It is repeated if your
    own replays on this machine have signed the run; else it is shown, and --repeat-command repeats
    it.

    The checks of the command are made, and its --junit and --summary are written. The options of
    these names add checks, and name other files.

    \b
    Examples:
      reprieve resume runs/today
      reprieve resume runs/today --junit junit.xml
    """
    from replay.cli.commands import replay  # noqa: PLC0415 - loaded when needed

    more = checks.arguments()
    with refusing(RunError):
        directory = RunDirectory.open(run)
        manifest, doubt = directory.signed_manifest()
        if manifest.finished:
            if not repeats_any:
                _refuse_unsigned(run, RunCommand(argv=manifest.argv, folder=os.curdir), doubt)
            _complete(directory, context, more)
            return
        point, doubt = ResumePoint.read_signed(run)
    begun = point.command
    if not repeats_any:
        _refuse_unsigned(run, begun, doubt)
    if not begun.argv or begun.argv[0] != "replay":
        problem = f"{run} was not made by `reprieve replay`: repeat the command that made it"
        raise ExitError(REFUSED, problem)
    missing = sorted(ASKED & {*begun.asked} - os.environ.keys())
    if missing:
        problem = f"{' and '.join(missing)} was set when the run began, and is not taken from it"
        raise ExitError(REFUSED, f"{run}: {problem}: set it again")
    here = run.resolve()
    try:
        os.chdir(begun.folder)
    except OSError as error:
        raise ExitError(REFUSED, f"{begun.folder}: {error.strerror or error}") from error
    for name, text in begun.environment.items():
        os.environ.setdefault(name, text)
    named = Path(begun.run)
    path = named if named.exists() and named.samefile(here) else here
    request = replay.command.request([*begun.argv[1:], *more])
    settings = replace(request.settings, argv=tuple(begun.argv), run_path=path, resumes=True)
    replay.run(replace(request, settings=settings))


def _refuse_unsigned(run: Path, begun: RunCommand, doubt: str) -> None:
    """Raise ExitError that shows the run's command if `doubt` says why it is not this user's."""
    if doubt:
        set_there = [f"{name}={shlex.quote(value)}" for name, value in begun.environment.items()]
        repeated = " ".join([*set_there, shlex.join(["reprieve", *begun.argv])])
        lines = (
            f"{run} was not begun here by you: {doubt}",
            f"its command, which would run in {begun.folder}: {repeated}",
            "add --repeat-command if you trust all that it reads, writes and connects to",
        )
        raise ExitError(REFUSED, "\n".join(map(one_line, lines)))


def _complete(run: RunDirectory, context: click.Context, more: Sequence[str]) -> None:
    """Finish a command whose run is complete: write the report and make the checks."""
    from replay.cli.commands import replay  # noqa: PLC0415 - loaded when needed
    from replay.report.page import write_report  # noqa: PLC0415 - loaded when needed

    run.complete()
    echo(f"{run.path} has its end; there is nothing to resume", err=True)
    name, *begun = run.manifest().argv or [""]
    repeated = replay.command if name == "replay" else context.command
    arguments = [*(begun if name == "replay" else [str(run.path)]), *more]
    options = repeated.make_context(name, arguments, resilient_parsing=True).params
    if options.get("reports") is not False and not (run.path / REPORT).exists():
        echo(f"report: {write_report(run)}", err=True)
    Checks(
        assertions=tuple(options["assertions"] or ()),
        junit=options["junit"],
        summary=options["summary"],
    ).conclude_run(run)
    if name == "replay" and not options["tolerates_refusals"]:
        replay.refuse_mistakes(run)
