"""What the commands share that search: their options, the runs, and how an answer is shown."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.live import Live
from rich.text import Text

from replay.cli.checks import Checks
from replay.cli.console import TerminalConsole
from replay.cli.errors import FAILED, ExitError
from replay.cli.grids import (
    Sharing,
    allowing_no_effect,
    begun_at,
    inputs_of,
    print_shared,
    sharing_with,
)
from replay.cli.parameters import DATA, echo_data, open_run, shows
from replay.errors import RunError
from replay.options import DURATION, FOLDER, option
from replay.overrides.inventory import TraceInventory, take_inventory
from replay.results.run.files import MANIFEST, next_folder
from replay.results.summary.figures import FIGURES
from replay.results.summary.table import escape, plain_table, right_aligned
from replay.search.answer import Answer, FoundBorder, KnobSearch, figure_shown
from replay.search.front import Point
from replay.search.knobs import Knob
from replay.search.runs import Budget, SearchError, SearchRuns, Tried, searched
from replay.whatif.assertions import Assertion, unknown_figure
from replay.whatif.ci import figure_name
from replay.whatif.compared import Compared, compare_runs
from replay.whatif.replay_processes import ReplayProcesses
from replay.whatif.sweep import SweepCell, refuse_folder
from services.terminal import counted, echo

_TRYING_SHOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """How a search is made and shown; folder: None for the next free one."""

    figures: tuple[str, ...] = option(
        "--figure",
        multiple=True,
        metavar="FIGURE",
        help="A further figure to show of each value that is tried, such as preempted or "
        "allocated{resource=cpu}. Repeatable.",
    )
    seeds: int = option(
        "--seeds",
        default=1,
        show_default=True,
        type=click.IntRange(1, 1000),
        metavar="N",
        help="Replay each value with N seeds, from 0 on; the checks must hold with each of them.",
    )
    max_runs: int | None = option(
        "--max-runs",
        default=None,
        type=click.IntRange(1),
        metavar="N",
        help="Stop after so many replays. The same command with the same --run goes on.",
    )
    max_ns: int | None = option(
        "--max-time",
        default=None,
        type=DURATION,
        help="Begin no further replay after this time (10m), of the wall clock.",
    )
    keep: str = option(
        "--keep",
        type=click.Choice(["all", "best"]),
        default="all",
        show_default=True,
        help="Keep every run, or at the end only those of the answer.",
    )
    folder: Path | None = option(  # noqa: RUF009 - a field
        "--run",
        type=FOLDER,
        default=None,
        help="Folder for the runs; a search that is in it already is continued. "
        "Default: runs/COMMAND-N.",
    )
    workers: int = option(
        "--workers",
        default=os.cpu_count() or 1,
        show_default="one per core",
        type=click.IntRange(1, 1024),
        help="Number of parallel replays on this machine.",
    )
    dask: str = option(
        "--dask",
        default="",
        metavar="ADDRESS",
        help="Run on the Dask cluster of this scheduler, such as tcp://host:8786 "
        '("reprieve[sweep]").',
    )
    no_explain: bool = option(
        "--no-explain",
        is_flag=True,
        help="Do not replay the two runs at the border once more to find why they diverge.",
    )

    @property
    def budget(self) -> Budget:
        """Return the limits of the search."""
        return Budget(max_runs=self.max_runs, max_ns=self.max_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of a trace.

    command: its name. arguments: of each replay. run: the run whose states are shared; None for a
    trace. moment: when the knobs' what-ifs begin, "" for the beginning.
    """

    command: str
    arguments: Sequence[str]
    assertions: Sequence[Assertion]
    run: Path | None = None
    moment: str = ""
    allows_no_effect: bool = False


def asked(
    command: str,
    replay: Sequence[str],
    assertions: Sequence[Assertion],
    *,
    moment: str = "",
    allows_no_effect: bool = False,
) -> Question:
    """Return a question about `TRACE...` or `RUN`, with options of replay. Raises ExitError."""
    run = Path(replay[0]) if (Path(replay[0]) / MANIFEST).is_file() else None
    return Question(
        command=command,
        arguments=tuple(replay) if run is None else tuple(inputs_of(run, replay[1:])),
        assertions=assertions,
        run=run,
        moment=moment,
        allows_no_effect=allows_no_effect,
    )


def with_options(question: Question, *options: str) -> Question:
    """Return a question whose replays have further options; those of its own arguments win."""
    return dataclasses.replace(question, arguments=(*options, *question.arguments))


def inventory_of(question: Question) -> TraceInventory:
    """Return the names in the trace of a question. Raises ExitError."""
    from replay.cli.commands.replay import command as replay_command  # noqa: PLC0415 - when needed

    return take_inventory(replay_command.request(question.arguments).trace.records())


def runs_for(
    question: Question,
    knobs: Sequence[Knob],
    options: SearchOptions,
    objectives: Sequence[str] = (),
) -> SearchRuns:
    """Return the runs of a question about some knobs, in their folder. Raises RunError."""
    for name in (*options.figures, *objectives):
        if name.partition("{")[0] not in FIGURES:
            raise click.UsageError(unknown_figure(name, FIGURES))
    if options.folder is not None:
        refuse_folder(options.folder)
    checks = Checks(
        assertions=tuple(question.assertions), allows_no_effect=question.allows_no_effect
    )
    sharing = Sharing()

    def place(cell: SweepCell) -> SweepCell:
        return begun_at([cell], question.moment, question.arguments)[0]

    def finish(new: Sequence[SweepCell]) -> Sequence[SweepCell]:
        looked_at = allowing_no_effect(new, checks, question.arguments)
        if options.dask:
            return looked_at
        if question.run is not None:
            return sharing_with(question.run, looked_at)
        return sharing.of(looked_at)

    return SearchRuns(
        folder=options.folder or next_folder(question.command),
        knobs=knobs,
        arguments=question.arguments,
        assertions=question.assertions,
        objectives=objectives,
        seeds=tuple(range(options.seeds)) if options.seeds > 1 else (),
        allows_no_effect=question.allows_no_effect,
        workers=options.workers,
        dask=options.dask,
        replays=ReplayProcesses(),
        place=place,
        finish=finish,
    )


def conducted(
    search: KnobSearch,
    runs: SearchRuns,
    options: SearchOptions,
    *,
    quiet: bool,
    saw: Callable[[Tried], None] = lambda _tried: None,
) -> Answer:
    """Search to the end or to the budget's; `saw` receives each point that was tried.

    Raises ExitError for a replay that fails, and as SearchRuns.run.
    """
    tried: dict[Point, Tried] = {}
    with _status(quiet=quiet) as show:

        def trying(points: Sequence[Point]) -> None:
            show(_status_text(runs.knobs, tried, points))

        try:
            for one in searched(search, runs, options.budget, trying):
                tried[one.point] = one
                saw(one)
        except SearchError as error:
            raise ExitError(FAILED, f"{error}\nthe runs so far are in {runs.folder}") from error
        finally:
            runs.close()
            if not tried and runs.folder.is_dir() and not any(runs.folder.iterdir()):
                runs.folder.rmdir()  # What is asked is refused: nothing was run.
    if not tried:
        raise RunError("the budget is less than a single value needs; nothing was tried")
    runs.refuse_unmatched()
    return search.answer(tried)


def border_compared(
    answer: Answer, runs: SearchRuns, options: SearchOptions
) -> tuple[FoundBorder, Compared] | None:
    """Return the border of an answer with its two runs compared; None without one."""
    border = answer.border
    if border is None:
        return None
    try:
        border = dataclasses.replace(
            border, holds=runs.restored(border.holds), fails=runs.restored(border.fails)
        )
    finally:
        runs.close()
    run_a, run_b = map(open_run, border.runs)
    return border, compare_runs(run_a, run_b, explains=not options.no_explain)


def keep_runs(answer: Answer, runs: SearchRuns, options: SearchOptions) -> None:
    """Remove the runs that are not of the answer, where that is asked for."""
    if options.keep != "best":
        return
    kept = [answer.best] if answer.best is not None else []
    if answer.border is not None:
        kept += [answer.border.holds, answer.border.fails]
    removed = runs.discard(kept)
    if removed:
        echo(f"{counted(removed, 'run')} removed; figures and checks are kept", err=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """How an answer is shown: a form of --output, and a page; None for no page.

    kind: of the question, in the page's head.
    """

    kind: str
    output: str
    html: Path | None
    quiet: bool


def conclude(
    answer: Answer,
    runs: SearchRuns,
    options: SearchOptions,
    shown: Shown,
    *,
    sentences: Sequence[str] = (),
    more: Mapping[str, Any] | None = None,
) -> None:
    """Show an answer with the runs at its border compared, then remove runs that are not kept.

    `sentences` are in place of the general ones, `more` is further JSON.
    """
    border = border_compared(answer, runs, options)
    lines = list(sentences or answer.sentences())
    if not shown.quiet:
        runs_made = [run for tried in answer.tried for run in tried.runs]
        print_shared([run for run in runs_made if (run / MANIFEST).is_file()])
    if shows(shown.output, quiet=shown.quiet):
        if shown.output in DATA:
            mapping = answer.to_mapping() | {"answer": lines, "folder": str(runs.folder)}
            mapping |= {"compare": border[1].to_mapping()} if border is not None else {}
            echo_data({**mapping, **(more or {})}, shown.output)
        else:
            _print(answer, lines, border, runs, options)
    if shown.html is not None:
        from replay.report.page import write_page  # noqa: PLC0415 - loaded when needed
        from replay.report.searched import searched_page  # noqa: PLC0415 - loaded when needed

        figures = figures_shown(answer, options)
        text = searched_page(shown.kind, answer, lines, figures, border)
        write_page(shown.html, text)
    keep_runs(answer, runs, options)


def _print(
    answer: Answer,
    sentences: Sequence[str],
    border: tuple[FoundBorder, Compared] | None,
    runs: SearchRuns,
    options: SearchOptions,
) -> None:
    console = TerminalConsole()
    for sentence in sentences:
        console.print(escape(sentence), highlight=False)
    console.print()
    _print_tried(answer, options, console)
    if border is not None:
        _print_border(answer, *border, console)
    else:
        console.print(f"\nThe runs are in {escape(str(runs.folder))}.", highlight=False)


def figures_shown(answer: Answer, options: SearchOptions) -> list[str]:
    """Return the figures of the table: the objectives, and those of --figure."""
    return list(dict.fromkeys((*answer.objectives, *options.figures)))


def tried_rows(answer: Answer, figures: Sequence[str]) -> Iterator[list[str]]:
    """Yield a row for each value that was tried: the values, the outcome, checks, figures."""
    for tried in answer.tried:
        yield [
            *tried.shown,
            "holds" if tried.holds else "fails",
            *(figure_shown(result.value) for result in tried.checks),
            *(figure_shown(tried.figures.get(name)) for name in figures),
        ]


def tried_columns(answer: Answer, figures: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the columns of tried_rows: those of text, and those of numbers."""
    checks = [result.assertion.text for result in answer.tried[0].checks]
    for at, result in enumerate(answer.tried[0].checks):
        checks[at] = checks[at].rpartition(result.assertion.operator)[0].strip()
    knobs = [knob.label for knob in answer.knobs] if len(answer.knobs) > 1 else ["VALUE"]
    return [*knobs, "checks"], [*checks, *map(figure_name, figures)]


def _print_tried(answer: Answer, options: SearchOptions, console: TerminalConsole) -> None:
    figures = figures_shown(answer, options)
    texts, numbers = tried_columns(answer, figures)
    table = plain_table(*right_aligned(*texts[:-1]), "CHECKS", *right_aligned(*numbers))
    for row in tried_rows(answer, figures):
        table.add_row(*map(escape, row))
    console.print(table)


def _print_border(
    answer: Answer, border: FoundBorder, compared: Compared, console: TerminalConsole
) -> None:
    from replay.cli.commands.compare import print_divergence, print_groups  # noqa: PLC0415 - when needed

    run_a, run_b = map(str, border.runs)
    console.print()
    for name, what, tried, run in (
        ("A", "holds", border.holds, run_a),
        ("B", "fails", border.fails, run_b),
    ):
        console.print(escape(f"{name} {what} at {answer.at(tried)}: {run}"), highlight=False)
    print_divergence(compared, console, wide=False)
    print_groups(compared.comparison.groups, console, wide=False)
    command = shlex.join(["reprieve", "compare", run_a, run_b])
    console.print()
    console.print(escape(f"All of it: {command}"), highlight=False, soft_wrap=True)


@contextlib.contextmanager
def _status(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a line on standard error; only on a terminal."""
    console = TerminalConsole(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _text: None
        return
    with Live(Text(""), console=console, transient=True) as live:
        yield lambda text: live.update(Text(text, no_wrap=True, overflow="ellipsis"))


def _status_text(
    knobs: Sequence[Knob], tried: Mapping[Point, Tried], points: Sequence[Point]
) -> str:
    """Return what is tried next, and how many values hold and fail so far."""
    holds = sum(one.holds for one in tried.values())
    next_up = [
        ",".join(knob.shown[place] for knob, place in zip(knobs, point, strict=True))
        for point in points[:_TRYING_SHOWN]
    ]
    more = ", ..." if len(points) > _TRYING_SHOWN else ""
    so_far = f"{holds:,} hold, {len(tried) - holds:,} fail · " if tried else ""
    return f"{so_far}trying {', '.join(next_up)}{more}"
