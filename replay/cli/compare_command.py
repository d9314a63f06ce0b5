"""`reprieve compare`: two runs side by side, or one trace with two configurations."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from replay.cli.compare_runs_output import Compared, show
from replay.cli.errors import refusing
from replay.cli.run_options import assert_option, check_all
from replay.cli.parameters import FOLDER, output_option
from replay.results.errors import RunError
from replay.results.run_directory import MANIFEST, RunDirectory
from replay.whatif.comparison import compare
from replay.whatif.facts import read_facts
from replay.whatif.figures import Assertion, FigureError
from replay.whatif.flip import Side, first_divergence, flipped_by
from replay.whatif.sweep import CellError, run_into


@click.command(name="compare")
@click.argument("paths", metavar="RUN_A RUN_B | TRACE... [-- REPLAY OPTIONS]", nargs=-1)
@click.option("--a", "options_a", default="", metavar="OPTIONS", help="Replay options of A.")
@click.option("--b", "options_b", default="", metavar="OPTIONS", help="Replay options of B.")
@click.option(
    "--run",
    "folder",
    type=FOLDER,
    help="Where to leave the two runs of a trace, as a and b. Default: runs/compare-N.",
)
@click.option("--no-explain", is_flag=True, help="Do not tell the runs again to find what flipped.")
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
    """Compare two runs: where they part and why, who it befell, and every figure.

    Give two run directories, or a trace and what differs. Pods pair by namespace and name. A check
    is of B; `preempted.change` is what B has more than A.

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
    """Replay the trace twice and return the two runs."""
    from replay.cli.replay_command import command as replay_command  # noqa: PLC0415 - when needed

    chosen = []
    for options in (options_a, options_b):
        try:
            chosen.append([*paths, *shlex.split(options)])
        except ValueError as error:
            raise click.UsageError(f"{options!r}: {error}") from error
        replay_command.make_context("replay", list(chosen[-1]))
    with refusing(RunError, CellError, OSError):
        base = folder or RunDirectory.create_next("compare").path
        for name, arguments in zip("ab", chosen, strict=True):
            run_into(base / name, arguments, base / f"{name}.log")
    return base / "a", base / "b"


def _compared(path_a: Path, path_b: Path, *, explains: bool) -> Compared:
    run_a, run_b = RunDirectory.open(path_a), RunDirectory.open(path_b)
    facts_a, facts_b = read_facts(run_a), read_facts(run_b)
    divergence = first_divergence(run_a, run_b)
    reasons: list[str] = []
    if divergence is not None and explains:
        a = Side(name="A", run=run_a, facts=facts_a, decision=divergence.a)
        b = Side(name="B", run=run_b, facts=facts_b, decision=divergence.b)
        reasons = flipped_by(divergence, a, b)
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
