"""Runs what a search asks for: replays of a sweep's cells, each with its checks.

A folder is that of a sweep (replay/whatif/sweep.py): the same command continues in it. A cell has
`checks.json` beside its figures, with the values that the checks are of, so that an outcome
outlives a run that is not kept. A run is read once for both.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

import orjson

from replay.results.run.directory import RunDirectory
from replay.search.front import Point
from replay.search.knobs import Knob
from replay.search.line import Outcome
from replay.whatif.assertions import (
    Assertion,
    CheckedAssertion,
    FigureError,
    figure_value,
    judged,
    unknown_figure,
)
from replay.whatif.facts import RunFacts, read_facts
from replay.whatif.removals import removed_nodes
from replay.whatif.replay_processes import ReplayProcesses
from replay.whatif.selectors import refuse_unmatched
from replay.whatif.sweep import (
    CELLS,
    FIGURES,
    RUN,
    SEED,
    CellReport,
    FinishedCell,
    SweepCell,
    finished_figures,
    run_sweep,
)
from services.folder import read_file, write_file

CHECKS = "checks.json"


class SearchError(RuntimeError):
    """A replay of a search that failed; the text is for users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A point that was tried.

    shown: the values there, as people read them. checks: of each check the result with the first
    seed with which it fails, or with the first seed. figures: means over the seeds, None where a
    run has none. runs: a folder for each seed; `shows` is the place of the one that shows the
    outcome: the first with a failing check, or the first. removed: the nodes that its overrides
    removed, in order.
    """

    point: Point
    shown: tuple[str, ...]
    checks: tuple[CheckedAssertion, ...]
    figures: Mapping[str, float | None]
    runs: tuple[Path, ...]
    shows: int = 0
    removed: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Return whether each check holds with each seed."""
        return all(result.holds for result in self.checks)

    @property
    def failing(self) -> CheckedAssertion | None:
        """Return the first check that fails."""
        return next((result for result in self.checks if not result.holds), None)


class Strategy(Protocol):
    """A search without its runs: it asks for points and receives their outcomes."""

    def ask(self) -> list[Point]:
        """Return the points to try next; [] at the end."""

    def tell(self, point: Point, outcome: Outcome) -> None:
        """Receive the outcome at a point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much a search may run; None: no limit. max_ns: of wall-clock time."""

    max_runs: int | None = None
    max_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRuns:
    """How points become runs.

    arguments: of every replay. seeds: () for the arguments' own. objectives: figures to minimise.
    place: changes the command line of a cell, as by a moment at which its what-ifs begin. finish:
    completes new cells before they are run: refuses what a replay would, finds shared beginnings.
    workers, dask: as of a sweep. replays: the processes on this machine.
    """

    folder: Path
    knobs: Sequence[Knob]
    arguments: Sequence[str]
    assertions: Sequence[Assertion]
    objectives: Sequence[str] = ()
    seeds: Sequence[int] = ()
    allows_no_effect: bool = False
    workers: int = 1
    dask: str = ""
    replays: ReplayProcesses | None = None
    place: Callable[[SweepCell], SweepCell] = lambda cell: cell
    finish: Callable[[Sequence[SweepCell]], Sequence[SweepCell]] = lambda cells: cells
    report: CellReport = lambda _finished, _ended, _total: None
    _cells: dict[str, SweepCell] = field(default_factory=dict)
    _unmatched: dict[str, str] = field(default_factory=dict)
    _points: dict[Point, list[SweepCell]] = field(default_factory=dict)

    def missing(self, points: Sequence[Point]) -> int:
        """Return how many replays some points need that have not been made yet."""
        return sum(
            finished_figures(self._folder(cell)) is None
            for point in points
            for cell in self._of(point)
        )

    def run(self, points: Sequence[Point]) -> list[Tried]:
        """Run the replays of some points, all at once, and return these.

        Raises SearchError for a replay that fails, RunError where files cannot be used, and
        FigureError for a check that has no meaning in a run.
        """
        baselines = self._baselines()
        cells = [*baselines, *(cell for point in points for cell in self._of(point))]
        new = [cell for cell in cells if cell.name not in self._cells]
        for cell in new:
            self._reopen(cell)
        self._cells.update((cell.name, self._shareable(cell)) for cell in self.finish(new))
        finished = {
            ended.cell.name: ended
            for ended in run_sweep(
                self.folder,
                list(self._cells.values()),
                workers=self.workers,
                dask=self.dask,
                report=self.report,
                replays=self.replays,
                measure=self._measure,
            )
        }
        for cell in cells:
            if problem := finished[cell.name].problem:
                raise SearchError(f"the replay at {cell.label or 'the baseline'} failed: {problem}")
        by_seed = {cell.seed: cell for cell in baselines}
        return [self._tried(point, finished, by_seed) for point in points]

    def restored(self, tried: Tried) -> Tried:
        """Return a point whose runs are there: those that were not kept are made once more."""
        for cell in self._of(tried.point):
            folder = self._folder(cell)
            if not (folder / RUN).exists():
                (folder / FIGURES).unlink(missing_ok=True)
        return self.run([tried.point])[0]

    def close(self) -> None:
        """End the processes of replays; later ones are started again."""
        if self.replays is not None:
            self.replays.close()

    def refuse_unmatched(self) -> None:
        """Raise FigureError for a check that chose nothing in any run, unless that is allowed."""
        problem = next(filter(None, self._unmatched.values()), "")
        if problem and not self.allows_no_effect:
            raise FigureError(problem)

    def discard(self, kept: Sequence[Tried]) -> int:
        """Remove all runs but those of some points and the baselines; return how many."""
        paths = {run for tried in kept for run in tried.runs}
        paths |= {self._folder(cell) / RUN for cell in self._baselines()}
        removed = 0
        for cell in self._cells.values():
            run = self._folder(cell) / RUN
            if run not in paths and run.exists():
                shutil.rmtree(run)
                removed += 1
        return removed

    def _of(self, point: Point) -> list[SweepCell]:
        """Return the cells of a point, one for each seed."""
        if point not in self._points:
            chosen = list(zip(self.knobs, point, strict=True))
            place = tuple((knob.axis, knob.values[position]) for knob, position in chosen)
            added = [text for knob, position in chosen for text in knob.arguments(position)]
            cell = SweepCell(place=place, arguments=(*self.arguments, *added))
            self._points[point] = self._seeded(place, self.place(cell).arguments)
        return self._points[point]

    def _baselines(self) -> list[SweepCell]:
        """Return the cells without any knob, where a check is of a change."""
        if not any(assertion.is_change for assertion in self.assertions):
            return []
        return self._seeded((), tuple(self.arguments))

    def _seeded(
        self, place: tuple[tuple[str, str], ...], arguments: tuple[str, ...]
    ) -> list[SweepCell]:
        if not self.seeds:
            return [SweepCell(place=place, arguments=arguments)]
        return [
            SweepCell(
                place=(*place, (SEED, str(seed))), arguments=(*arguments, f"--{SEED}", str(seed))
            )
            for seed in self.seeds
        ]

    def _folder(self, cell: SweepCell) -> Path:
        return self.folder / CELLS / cell.name

    def _reopen(self, cell: SweepCell) -> None:
        """Let a cell be run once more where its run was not kept and a check needs it."""
        folder = self._folder(cell)
        if (folder / RUN).exists() or finished_figures(folder) is None:
            return
        if not self._is_measured(folder):
            (folder / FIGURES).unlink()

    def _shareable(self, cell: SweepCell) -> SweepCell:
        """Return a cell that shares nothing with a run that was not kept."""
        origin = self.folder / CELLS / cell.shares
        is_kept = (origin / RUN).exists() or finished_figures(origin) is None
        return cell if is_kept else replace(cell, shares="")

    def _tried(
        self, point: Point, finished: Mapping[str, FinishedCell], baselines: Mapping[str, SweepCell]
    ) -> Tried:
        cells = self._of(point)
        results = [self._checked(cell, baselines.get(cell.seed)) for cell in cells]
        failing = [any(not r.holds for r in of_seed) for of_seed in results]
        figures = [finished[cell.name].figures for cell in cells]
        return Tried(
            point=point,
            shown=tuple(
                knob.shown[position] for knob, position in zip(self.knobs, point, strict=True)
            ),
            checks=tuple(
                next((result for result in of_seeds if not result.holds), of_seeds[0])
                for of_seeds in zip(*results, strict=True)
            ),
            figures={name: _mean([values.get(name) for values in figures]) for name in figures[0]},
            runs=tuple(self._folder(cell) / RUN for cell in cells),
            shows=failing.index(True) if any(failing) else 0,
            removed=tuple(_stored(self._folder(cells[0]) / CHECKS)["removed"]),
        )

    def outcome(self, tried: Tried) -> Outcome:
        """Return a point's outcome for a strategy. Raises FigureError for an unknown figure."""
        for name in self.objectives:
            if name not in tried.figures:
                raise FigureError(unknown_figure(name, tried.figures))
        return Outcome(
            holds=tried.holds, objectives=tuple(tried.figures[name] for name in self.objectives)
        )

    def _checked(self, cell: SweepCell, baseline: SweepCell | None) -> list[CheckedAssertion]:
        values = self._values(cell)
        others = values if baseline is None else self._values(baseline)
        results = []
        for assertion in self.assertions:
            value, other = values[assertion.measured], others[assertion.measured]
            before = other["value"] if assertion.is_change else None
            results.append(judged(assertion, value["value"], before))
            former = self._unmatched.get(assertion.text, value["unmatched"])
            problem = former and value["unmatched"] and other["unmatched"]
            self._unmatched[assertion.text] = problem
        return results

    def _values(self, cell: SweepCell) -> Mapping[str, Any]:
        """Return what a cell's run has of the checks; a run that was not measured is read."""
        folder = self._folder(cell)
        if not self._is_measured(folder):
            self._measure(folder, read_facts(RunDirectory.open(folder / RUN)))
        values: Mapping[str, Any] = _stored(folder / CHECKS)["values"]
        return values

    def _is_measured(self, folder: Path) -> bool:
        values = _stored(folder / CHECKS)["values"]
        return all(assertion.measured in values for assertion in self.assertions)

    def _measure(self, folder: Path, facts: RunFacts) -> None:
        """Write the values of the checks' figures in a run. Raises FigureError."""
        stored = _stored(folder / CHECKS)
        stored["removed"] = removed_nodes(folder / RUN)
        for assertion in self.assertions:
            stored["values"][assertion.measured] = {
                "value": figure_value(facts, assertion.figure, assertion.conditions),
                "unmatched": _unmatched(assertion, facts),
            }
        write_file(folder / CHECKS, orjson.dumps(stored, option=orjson.OPT_INDENT_2))


def searched(
    strategy: Strategy,
    runs: SearchRuns,
    budget: Budget,
    trying: Callable[[Sequence[Point]], None],
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> Iterator[Tried]:
    """Yield each point that a strategy asks for, as it was tried, to the end or to the budget's.

    `trying` receives the points that are run next. Raises as SearchRuns.run.
    """
    began_ns, made = clock_ns(), 0
    while points := strategy.ask():
        # With a limit on time a round is split, so that it is kept to within some replays.
        size = len(points) if budget.max_ns is None else max(1, runs.workers)
        for start in range(0, len(points), size):
            some = points[start : start + size]
            if budget.max_runs is not None:
                some = _affordable(some, runs, budget.max_runs - made)
            is_late = budget.max_ns is not None and clock_ns() - began_ns > budget.max_ns
            if not some or (is_late and runs.missing(some)):
                return
            trying(some)
            made += runs.missing(some)
            for tried in runs.run(some):
                strategy.tell(tried.point, runs.outcome(tried))
                yield tried


def _affordable(points: Sequence[Point], runs: SearchRuns, replays: int) -> list[Point]:
    """Return the first points that need at most `replays` further replays."""
    some: list[Point] = []
    for point in points:
        replays -= runs.missing([point])
        if replays < 0:
            break
        some.append(point)
    return some


def _stored(path: Path) -> dict[str, Any]:
    """Return the values of a cell's figures that are checked, and the nodes that it removed."""
    stored: dict[str, Any] = {"values": {}, "removed": []}
    with contextlib.suppress(OSError, orjson.JSONDecodeError):
        stored.update(orjson.loads(read_file(path)))
    return stored


def _unmatched(assertion: Assertion, facts: RunFacts) -> str:
    try:
        refuse_unmatched(assertion, [facts])
    except FigureError as error:
        return str(error)
    return ""


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if len(numbers) == len(values) else None
