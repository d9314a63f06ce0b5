"""`reprieve compare`: compares two runs, two configurations on one trace, or a changed run."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.padding import Padding

from replay.cli.checks import Checks, check_options, no_effect_option
from replay.cli.console import TerminalConsole
from replay.cli.early import refuse_folders
from replay.cli.errors import REFUSED, SERVICE, ExitError, refusing
from replay.cli.parameters import (
    DATA,
    echo_data,
    html_option,
    open_run,
    output_option,
    quiet_option,
    shows,
)
from replay.errors import RunError
from replay.options import FOLDER
from replay.results.durations import simulated
from replay.results.run.directory import RunDirectory
from replay.results.run.files import MANIFEST, next_folder
from replay.results.summary.table import escape, plain_table, print_rows, right_aligned
from replay.whatif.assertions import FigureError
from replay.whatif.compared import (
    CLASSES_SHOWN,
    GROUPS_SHOWN,
    NOTES_SHOWN,
    REASONS_SHOWN,
    WAIT_COLUMNS,
    WORKLOADS_SHOWN,
    Compared,
    compare_runs,
    figure_cells,
    group_effects,
    wait_cells,
)
from replay.whatif.comparison import ClassWaits, FigureChange, PodGroup
from replay.whatif.notes import compared_notes
from replay.whatif.replay_processes import CellError, ReplayProcesses
from replay.whatif.sweep import run_into
from services.terminal import counted, echo


@click.command(name="compare")
@click.argument("paths", metavar="RUN_A RUN_B | RUN | TRACE... [-- REPLAY OPTIONS]", nargs=-1)
@click.option("--a", "options_a", default="", metavar="OPTIONS", help="Replay options of A.")
@click.option("--b", "options_b", default="", metavar="OPTIONS", help="Replay options of B.")
@click.option(
    "--scheduler",
    "scheduler",
    default="",
    metavar="HOST:PORT",
    help="Another scheduler, which decides B.",
)
@click.option(
    "--at",
    "moment",
    default="",
    metavar="DURATION|TIME",
    help="With one run: what is different in B begins at this moment of the run.",
)
@click.option(
    "--run",
    "folder",
    type=FOLDER,
    help="Folder for the runs that are made, as a and b. Default: runs/compare-N.",
)
@click.option("--force", is_flag=True, help="Replace former runs in --run.")
@click.option("--no-explain", is_flag=True, help="Do not replay the runs to find why they diverge.")
@check_options
@no_effect_option
@output_option(
    *("table", "wide", "json", "yaml"), meaning="For people, with names of pods, or for programs."
)
@html_option
@quiet_option
@refusing(RunError, FigureError)
def command(
    *,
    paths: tuple[str, ...],
    options_a: str,
    options_b: str,
    scheduler: str,
    moment: str,
    folder: Path | None,
    force: bool,
    no_explain: bool,
    checks: Checks,
    allows_no_effect: bool,
    output: str,
    html: Path | None,
    quiet: bool,
) -> None:
    """Compare two runs: the first decision that differs and why, the pods affected, every figure.

    Give two run directories, or a trace and the options of A and B, or one run, which is A, and
    what is different in B, which repeats its command. B goes on from a state of A where both are
    the same up to it. Pods pair by namespace and name. --assert checks B; `preempted.change` is B's
    figure minus A's.

    \b
    Examples:
      reprieve compare runs/today-1 runs/today-2
      reprieve compare cluster.ktr --b '--set priorityClass.batch.value=50'
      reprieve compare cluster.ktr --a '--seed 1' --b '--seed 2' -- --until 1h
      reprieve compare runs/today --scheduler 127.0.0.1:50052
      reprieve compare runs/today --at 2h --b '--fail node-7'
      reprieve compare runs/a runs/b --assert 'preempted{class=web}.change <= 0'
      reprieve compare runs/a runs/b --html differences.html
      reprieve compare runs/a runs/b -q --assert 'pending == 0' --junit checks.xml
    """
    checks = replace(checks, allows_no_effect=allows_no_effect)
    if scheduler:
        options_b = f"{options_b} {shlex.join(('--scheduler', scheduler))}".strip()
    is_run = [(Path(path) / MANIFEST).is_file() for path in paths]
    if (options_a and any(is_run[:2])) or (options_b and any(is_run[1:2])):
        raise click.UsageError(
            f"{paths[is_run.index(True)]} is a run, which has its options already: give one run "
            "with --b or --scheduler, two runs without options, or a trace with --a or --b"
        )
    is_changed_run = is_run[:1] == [True] and bool(options_b) and not options_a
    if moment and not is_changed_run:
        raise click.UsageError("--at is a moment of a run: give one run with --b")
    if is_changed_run:
        path_a = Path(paths[0])
        options = _arguments(paths[1:], options_b)
        path_b = _changed_run(path_a, options, moment, folder, checks, force=force)
    elif options_a or options_b:
        chosen = {"a": _arguments(paths, options_a), "b": _arguments(paths, options_b)}
        _look_at(chosen, folder, checks, force=force)
        path_a, path_b = _runs(chosen, folder, force=force)
    elif is_run == [True, True]:
        path_a, path_b = map(Path, paths)
    else:
        no_run = next((path for path, is_one in zip(paths, is_run, strict=True) if not is_one), "")
        problem = "is no run" if Path(no_run).exists() else "does not exist"
        raise click.UsageError(
            (f"{no_run} {problem}: " if no_run else "")
            + "give two run directories, a trace with --a or --b, or a run with --b or --scheduler"
        )
    run_a, run_b = open_run(path_a), open_run(path_b)
    if not quiet:
        _print_shared(run_a, run_b)
    compared = compare_runs(run_a, run_b, explains=not no_explain)
    if shows(output, quiet=quiet):
        show(compared, output)
    if html is not None:
        from replay.report.compared import compared_page  # noqa: PLC0415 - loaded when needed
        from replay.report.page import write_page  # noqa: PLC0415 - loaded when needed

        write_page(html, compared_page(compared))
    results = checks.results(f"{path_a} and {path_b}", compared.facts_b, compared.facts_a)
    checks.conclude("reprieve compare", results, compared.to_markdown)


def _arguments(paths: tuple[str, ...], options: str) -> list[str]:
    try:
        return [*paths, *shlex.split(options)]
    except ValueError as error:
        raise click.UsageError(f"{options!r}: {error}") from error


def _changed_run(
    run: Path,
    options: Sequence[str],
    moment: str,
    folder: Path | None,
    checks: Checks,
    *,
    force: bool,
) -> Path:
    """Repeat a run's command with further options and return the path of the run.

    `moment`: when the options take effect, "" for the beginning. Raises ExitError.
    """
    from replay.cli.commands import replay  # noqa: PLC0415 - when needed

    changed = shlex.join(options)
    repeated = replay.inputs_of(open_run(run), lambda begun: ["compare", *begun, "--b", changed])
    later = replay.begun_at(options, moment, repeated) if moment else options
    chosen = {"b": [*repeated, *later]}
    _look_at(chosen, folder, checks, force=force)
    return _runs(chosen, folder, run, force=force)[0]


def _look_at(
    chosen: Mapping[str, Sequence[str]], folder: Path | None, checks: Checks, *, force: bool
) -> None:
    """Raise the errors that the replays would raise, also for folders that they could not use."""
    from replay.cli.commands import replay  # noqa: PLC0415 - when needed

    if folder is not None:
        refuse_folders((folder / name for name in chosen), force=force)
    for name, arguments in chosen.items():
        replay.look(arguments, checks, f"the replay of {name.upper()} is refused")


def _runs(
    chosen: Mapping[str, Sequence[str]],
    folder: Path | None,
    former: Path | None = None,
    *,
    force: bool,
) -> list[Path]:
    """Run the replays, one after the other, and return the paths of their runs.

    A replay takes as much of its beginning as possible from the run before it; the first replay
    takes it from the run `former`.

    A run is also compared if its replay refused decisions of the scheduler, and reports that by its
    exit code; the comparison has their number. If a replay fails, the files of all runs are
    removed, so that the folder can be used again.
    """
    with refusing(RunError, OSError), closing(ReplayProcesses()) as replays:
        base = folder or next_folder("compare")
        for name, arguments in chosen.items():
            shares = () if former is None else ("--share", str(former))
            try:
                command_line, log = [*shares, *arguments], base / f"{name}.log"
                run_into(base / name, command_line, log, replays, force=force)
            except CellError as error:
                if not (error.code == SERVICE and _is_complete(base / name)):
                    _remove(base, chosen)
                    raise _failed(name.upper(), error) from error
            former = base / name
    return [base / name for name in chosen]


def _print_shared(run_a: RunDirectory, run_b: RunDirectory) -> None:
    """Print how much of B was taken from A instead of being replayed."""
    shared = run_b.manifest().shared
    if shared is not None and Path(shared.run).resolve() == run_a.path.resolve():
        echo(f"B has its beginning from A: {simulated(shared.length_ns)}", err=True)


def _is_complete(path: Path) -> bool:
    return (path / MANIFEST).is_file() and RunDirectory.open(path).manifest().finished


def _remove(base: Path, names: Iterable[str]) -> None:
    """Remove the runs and their logs, and the folder if it is empty then."""
    for name in names:
        shutil.rmtree(base / name, ignore_errors=True)
        (base / f"{name}.log").unlink(missing_ok=True)
    if not any(base.iterdir()):
        base.rmdir()


def _failed(name: str, error: CellError) -> ExitError:
    """Return the command's ExitError: the replay's exit code, or SERVICE if it crashed."""
    if error.code >= REFUSED:
        return ExitError(error.code, f"the replay of {name} failed: {error}")
    return ExitError(SERVICE, f"the replay of {name} failed:\n{error}")


def show(compared: Compared, output: str) -> None:
    """Print a comparison: table, wide (with names of pods), json or yaml."""
    if output in DATA:
        echo_data(compared.to_mapping(), output)
        return
    console, wide = TerminalConsole(), output == "wide"
    paths = (escape(str(run.path)) for run in (compared.run_a, compared.run_b))
    console.print("A: {}\nB: {}\n".format(*paths), highlight=False)
    sentences = list(compared.notes())
    for sentence in sentences:
        console.print(escape(sentence), highlight=False)
    if sentences:
        console.print()
    print_divergence(compared, console, wide=wide)
    print_groups(compared.comparison.groups, console, wide=wide)
    print_rows(
        console,
        ("WORKLOAD", "READY IN A", "READY IN B"),
        compared.comparison.workloads,
        lambda workload: map(escape, (workload.key, workload.text_a, workload.text_b)),
        None if wide else WORKLOADS_SHOWN,
    )
    _print_waits(compared.comparison.waits, console, wide=wide)
    console.print()
    _print_figures(compared.comparison.figures, console, wide=wide)
    print_rows(
        console,
        (*right_aligned("A", "B"), "KIND", "NOTE"),
        list(compared_notes(compared.run_a, compared.run_b)),
        lambda note: (f"{note.a:,}", f"{note.b:,}", escape(note.kind), escape(note.text)),
        None if wide else NOTES_SHOWN,
    )


def print_divergence(compared: Compared, console: Console, *, wide: bool) -> None:
    """Print where two runs diverge, and why; `wide` with every reason."""
    moment, *decisions = compared.divergence_lines()
    console.print(escape(moment), highlight=False)
    reasons = compared.reasons[: None if wide else REASONS_SHOWN]
    for line in (*decisions, *reasons, *compared.first_decision_lines()):
        console.print(Padding.indent(console.render_str(escape(line), highlight=False), 2))


def print_groups(groups: tuple[PodGroup, ...], console: Console, *, wide: bool) -> None:
    """Print the effects on groups of pods; `wide` with names of pods."""

    def cells(group: PodGroup) -> Iterator[str]:
        names = (group.priority_class or "-", group.namespace, f"{group.pods:,}")
        yield from map(escape, names)
        yield "\n".join(map(escape, group_effects(group, named=wide)))

    changed = [group for group in groups if group.counts]
    columns = ("PRIORITY CLASS", "NAMESPACE", *right_aligned("PODS"), "EFFECT IN B")
    print_rows(console, columns, changed, cells, None if wide else GROUPS_SHOWN)
    if not changed:
        console.print("\nNo pod was affected.", highlight=False)


def _print_waits(waits: tuple[ClassWaits, ...], console: Console, *, wide: bool) -> None:
    def cells(of_class: ClassWaits) -> Iterator[str]:
        yield escape(of_class.name)
        yield "A\nB"
        yield from map("\n".join, zip(wait_cells(of_class.a), wait_cells(of_class.b), strict=True))

    shown = [of_class for of_class in waits if of_class.is_changed or wide]
    columns = ("PRIORITY CLASS", "RUN", *right_aligned(*WAIT_COLUMNS))
    print_rows(console, columns, shown, cells, None if wide else CLASSES_SHOWN)


def _print_figures(figures: tuple[FigureChange, ...], console: Console, *, wide: bool) -> None:
    shown = [figure for figure in figures if figure.is_changed or wide]
    if shown:
        table = plain_table("FIGURE", *right_aligned("A", "B", "CHANGE", ""))
        table.columns[0].no_wrap = True  # a wrapped name could not be copied to --assert
        for figure in shown:
            table.add_row(*map(escape, figure_cells(figure)))
        console.print(table)
    if same := len(figures) - len(shown):
        console.print(f"{counted(same, 'figure')} identical.", highlight=False)
