"""A sweep: a grid of replays, spanned by axes.

An axis is `NAME=VALUES`: a replay option by its long name (`seed=1..10`,
`scheduler-config=a.yaml,b.yaml`), or `set:KEY=VALUES` for an override
(`set:priorityClass.batch.value=0,50,100`). Each combination of values is a cell, one replay. Cells
run in local processes or on a Dask cluster. A sweep that was interrupted, or got more values, runs
only the missing cells: a cell's folder holds `run/` (the run directory), `replay.log` (the replay's
messages) and `figures.json`, which is written last and so marks a finished cell.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from uuid import uuid4

import orjson

from replay.errors import RunError, unwritable
from replay.results.run.directory import RunDirectory
from replay.whatif.facts import RunFacts, all_figures, read_facts
from replay.whatif.replay_processes import CellError, ReplayProcesses
from services.folder import read_file, write_file

GRID = "sweep.json"
CELLS = "cells"
FIGURES = "figures.json"
RUN = "run"
LOG = "replay.log"
_MESSAGE_CHARS_MAX = 2_000
_LOOK_S = 1.0
SEED = "seed"
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")
_COUNTDOWN = re.compile(r"(.*:)?-(\d+)\.\.-(\d+)")
"""Such as "-0..-3", or "pool=gpu:-0..-3"."""
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_SET = "set:"
_VALUES_MAX = 100_000
_OURS = frozenset({"run", "force", "output", "quiet", "assert", "compare-recorded", "free-run"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedCell:
    """A cell with its figures, None for one without a value.

    `problem` is why it has no figures, "" if it has.
    """

    cell: SweepCell
    figures: Mapping[str, float | None]
    problem: str = ""


CellMeasure = Callable[[Path, RunFacts], None]
"""Receives the folder of each cell that was run on this machine, and the facts of its run."""
CellReport = Callable[[FinishedCell, int, int], None]
"""Receives each cell that has ended, the number of ended cells, and the number of all."""


def run_sweep(
    folder: Path,
    grid: Sequence[SweepCell],
    *,
    workers: int,
    dask: str,
    report: CellReport,
    force: bool = False,
    replays: ReplayProcesses | None = None,
    measure: CellMeasure = lambda _path, _facts: None,
) -> list[FinishedCell]:
    """Run the cells that are not finished and return all, in the grid's order.

    `dask` is the address of a Dask scheduler, "" for local processes; these are `replays`, which
    the caller closes, or others. `measure` is called by threads. `force` removes the runs of a
    former sweep in the folder first. Raises RunError if the folder cannot be written or is not a
    sweep's, and GridError if Dask is not available.
    """
    _prepare(folder, grid, force=force)
    ended: dict[str, FinishedCell] = {}
    missing = []
    for cell in grid:
        figures = finished_figures(folder / CELLS / cell.name)
        if figures is None:
            missing.append(cell)
        else:
            ended[cell.name] = FinishedCell(cell=cell, figures=figures)
            report(ended[cell.name], len(ended), len(grid))
    with contextlib.ExitStack() as stack:
        if dask:
            runner = _on_dask(folder, missing, dask)
        else:
            used = replays or stack.enter_context(contextlib.closing(ReplayProcesses()))
            runner = _locally(folder, missing, workers, used, measure)
        for finished in runner:
            ended[finished.cell.name] = finished
            report(finished, len(ended), len(grid))
    return [ended[cell.name] for cell in grid]


def _locally(
    folder: Path,
    missing: Sequence[SweepCell],
    workers: int,
    replays: ReplayProcesses,
    measure: CellMeasure,
) -> Iterator[FinishedCell]:
    # A signal interrupts its `get`; as_completed would wait for the next replay to end.
    done: SimpleQueue[Future[dict[str, float | None]]] = SimpleQueue()
    cells: dict[Future[dict[str, float | None]], SweepCell] = {}
    with ThreadPoolExecutor(max_workers=workers) as pool:

        def submit(cell: SweepCell) -> None:
            path = folder / CELLS / cell.name
            shares = ("--share", str(folder / CELLS / cell.shares / RUN)) if cell.shares else ()
            arguments = [*shares, *cell.command_line]
            future = pool.submit(run_cell, str(path), arguments, replays, measure)
            cells[future] = cell
            future.add_done_callback(done.put)

        try:
            running = {cell.name for cell in missing}
            waiting = [cell for cell in missing if cell.shares in running]
            for cell in missing:
                if cell not in waiting:
                    submit(cell)
            for _ in missing:
                future = done.get()
                ended = cells[future]
                for cell in [cell for cell in waiting if cell.shares == ended.name]:
                    waiting.remove(cell)
                    submit(cell)
                try:
                    yield FinishedCell(cell=ended, figures=future.result())
                except (CellError, RunError, OSError) as error:
                    yield FinishedCell(cell=ended, figures={}, problem=str(error))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            replays.stop()
            raise


def _on_dask(folder: Path, missing: Sequence[SweepCell], address: str) -> Iterator[FinishedCell]:
    """Run cells on a cluster; its machines need the same files and Reprieve installed."""
    try:
        distributed: Any = importlib.import_module("dask.distributed")
    except ImportError as error:
        raise GridError('--dask needs an extra: pip install "reprieve[sweep]"') from error
    try:
        client = distributed.Client(address)
    except OSError as error:
        raise GridError(f"--dask {address}: the Dask scheduler does not answer: {error}") from error
    with client:
        stop = distributed.Event(f"reprieve-{uuid4()}", client=client)
        futures = {
            client.submit(
                run_cell_remotely,
                str((folder / CELLS / cell.name).resolve()),
                cell.command_line,
                stop.name,
                key=f"reprieve-{cell.name}",
                pure=False,
            ): cell
            for cell in missing
        }
        try:
            for future in distributed.as_completed(futures):
                cell = futures[future]
                failure = future.exception()
                if failure is None:
                    yield FinishedCell(cell=cell, figures=future.result())
                else:
                    yield FinishedCell(cell=cell, figures={}, problem=str(failure))
        except BaseException:
            stop.set()
            raise


def refuse_folder(folder: Path) -> None:
    """Raise RunError if a folder holds anything but a sweep; nothing is changed."""
    try:
        if folder.is_dir() and any(folder.iterdir()) and not (folder / GRID).is_file():
            raise RunError(f"{folder} holds files that are not of a sweep; nothing was changed")
    except OSError as error:
        raise unwritable(folder, error) from error


def _prepare(folder: Path, grid: Sequence[SweepCell], *, force: bool) -> None:
    refuse_folder(folder)
    try:
        if force and (folder / CELLS).is_dir():
            shutil.rmtree(folder / CELLS)
        folder.mkdir(parents=True, exist_ok=True)
        text = [
            {"cell": cell.name, "place": dict(cell.place), "arguments": cell.arguments}
            for cell in grid
        ]
        write_file(folder / GRID, orjson.dumps(text, option=orjson.OPT_INDENT_2))
    except OSError as error:
        raise unwritable(folder, error) from error


def run_cell(
    folder: str,
    arguments: Sequence[str],
    replays: ReplayProcesses | None = None,
    measure: CellMeasure = lambda _path, _facts: None,
) -> dict[str, float | None]:
    """Replay and return the figures; a finished cell's are read. Raises CellError.

    Called in a worker process or on another machine, with arguments and a result that are plain
    values; or in a thread, with `replays` and `measure`.
    """
    path = Path(folder)
    finished = finished_figures(path)
    if finished is not None:
        return finished
    run = path / RUN
    if run.exists():
        shutil.rmtree(run)
    run_into(run, arguments, path / LOG, replays)
    facts = read_facts(RunDirectory.open(run))
    figures = all_figures(facts)
    write_file(path / FIGURES, orjson.dumps(figures, option=orjson.OPT_INDENT_2))
    measure(path, facts)
    return figures


def run_cell_remotely(folder: str, arguments: Sequence[str], stop: str) -> dict[str, float | None]:
    """Run a cell in a worker of a Dask cluster, until its event `stop` is set, as run_cell.

    The event is looked at each second; a cluster without its scheduler stops the replay, too.
    """
    distributed: Any = importlib.import_module("dask.distributed")
    event, ended = distributed.Event(stop), threading.Event()

    def watch(replays: ReplayProcesses) -> None:
        while not ended.wait(_LOOK_S):
            try:
                if not event.is_set():
                    continue
            except (OSError, RuntimeError):
                pass
            replays.stop()
            return

    with contextlib.closing(ReplayProcesses()) as replays:
        threading.Thread(target=watch, args=[replays], daemon=True).start()
        try:
            return run_cell(folder, arguments, replays)
        finally:
            ended.set()


def run_into(
    run: Path,
    arguments: Sequence[str],
    log: Path,
    replays: ReplayProcesses | None = None,
    *,
    force: bool = False,
) -> None:
    """Replay into a run directory, in a child process: one of `replays`, or one for this alone.

    `force` replaces a former run in it. Raises CellError if the replay fails, and OSError if
    `log` cannot be written.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    options = ["--in-process", "--run", str(run), "-q", "--no-report"]
    options += ["--force"] if force else []
    with contextlib.ExitStack() as stack:
        used = replays or stack.enter_context(contextlib.closing(ReplayProcesses()))
        code = used.run([*arguments, *options], log)
    if code:
        messages = log.read_text(encoding="utf-8", errors="replace").strip()
        shown = messages[-_MESSAGE_CHARS_MAX:].removeprefix("Error: ")
        raise CellError(shown or f"the replay ended with exit code {code}", code)


def finished_figures(path: Path) -> dict[str, float | None] | None:
    """Return the figures of a finished cell, None for a cell that is still to be run."""
    try:
        figures = orjson.loads(read_file(path / FIGURES))
    except (OSError, orjson.JSONDecodeError):
        return None
    return {str(name): None if value is None else float(value) for name, value in figures.items()}


class GridError(ValueError):
    """An axis that is not valid; the text is for users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepAxis:
    """An axis: its name as on the command line, and its values as texts."""

    name: str
    values: tuple[str, ...]

    def arguments(self, value: str) -> tuple[str, ...]:
        """Return a value's arguments of the replay's command line."""
        if self.name.startswith(_SET):
            return ("--set", f"{self.name.removeprefix(_SET)}={value}")
        if value in {"true", "false"}:
            return (f"--{self.name}",) if value == "true" else ()
        return (f"--{self.name}", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCell:
    """One replay of a sweep: its value on each axis, and the replay's arguments.

    `name` is a hash of the arguments, so that a sweep that gets more values keeps its cells.
    options: further ones, which change no decision. is_baseline: it equals the replay without axes.
    shares: the name of an earlier cell whose run has much of this one's beginning, "" without.
    """

    place: tuple[tuple[str, str], ...]
    arguments: tuple[str, ...]
    options: tuple[str, ...] = ()
    is_baseline: bool = False
    shares: str = ""

    @property
    def name(self) -> str:
        """Return the name of the cell's folder: 16 hexadecimal digits."""
        text = "\x00".join(self.arguments).encode()
        return blake2b(text, digest_size=8, person=b"cell").hexdigest()

    @property
    def command_line(self) -> tuple[str, ...]:
        """Return all arguments of the replay."""
        return *self.options, *self.arguments

    @property
    def seed(self) -> str:
        """Return its value on the axis of seeds, "" without one."""
        return dict(self.place).get(SEED, "")

    @property
    def label(self) -> str:
        """Return its place as text, such as "seed=1, rules=v1.34"."""
        return ", ".join(f"{axis}={value}" for axis, value in self.place)

    @property
    def group(self) -> tuple[tuple[str, str], ...]:
        """Return the place without the seed; figures of a group are averaged."""
        return tuple(pair for pair in self.place if pair[0] != SEED)


def parse_axis(text: str) -> SweepAxis:
    """Parse an axis. Raises GridError if it is not valid."""
    head, equals, values = text.rpartition("=") if text.startswith(_SET) else text.partition("=")
    if not equals or not head or not values:
        raise GridError(f"--over {text}: write seed=1..10 or set:priorityClass.batch.value=0,50")
    if not head.startswith(_SET) and not _NAME.fullmatch(head):
        raise GridError(f"--over {text}: {head!r} is not an option of replay")
    if head in _OURS:
        raise GridError(f"--over {text}: --{head} is set by the sweep itself")
    texts = tuple(itertools.chain.from_iterable(map(_expanded, values.split(","))))
    if len(set(texts)) != len(texts):
        raise GridError(f"--over {text}: a value is given twice")
    return SweepAxis(name=head, values=texts)


def cells(axes: Sequence[SweepAxis], common: Sequence[str]) -> Iterator[SweepCell]:
    """Yield all cells, the last axis fastest; `common` are arguments of every replay.

    Raises GridError for an axis that is given twice.
    """
    names = [axis.name for axis in axes]
    for name in names:
        if names.count(name) > 1:
            raise GridError(f"--over {name} is given twice")
    for values in itertools.product(*(axis.values for axis in axes)):
        pairs = list(zip(axes, values, strict=True))
        chosen = itertools.chain.from_iterable(axis.arguments(value) for axis, value in pairs)
        yield SweepCell(
            place=tuple((axis.name, value) for axis, value in pairs), arguments=(*common, *chosen)
        )


def _expanded(text: str) -> Sequence[str]:
    down = _COUNTDOWN.fullmatch(text)
    if down is not None and (down[1] or int(down[2]) < int(down[3])):
        first, last = int(down[2]), int(down[3])
        if not first <= last < first + _VALUES_MAX:
            raise GridError(
                f"--over {text}: write the smaller number first, as in {down[1] or ''}-0..-3"
            )
        return [f"{down[1] or ''}-{number}" for number in range(first, last + 1)]
    match = _RANGE.fullmatch(text)
    if match is None:
        if not text:
            raise GridError("--over: a value is empty")
        return (text,)
    first, last = int(match[1]), int(match[2])
    if not first <= last < first + _VALUES_MAX:
        raise GridError(
            f"--over {text}: a range must ascend and have at most {_VALUES_MAX:,} values"
        )
    return [str(number) for number in range(first, last + 1)]
