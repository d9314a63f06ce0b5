"""A grid of runs: axes, the cells that they span, and how these are run.

An axis is `NAME=VALUES`: a replay option by its long name (`seed=1..10`,
`scheduler-config=a.yaml,b.yaml`), or `set:KEY=VALUES` for an override
(`set:priorityClass.batch.value=0,50,100`). Cells are run in local processes, or on a Dask cluster.
Finished ones are kept, so that a sweep which was interrupted, or has grown, runs what is missing:
a cell's folder holds `run/` (the run directory), `figures.json`, which is written last and whole
and so tells a finished cell, and `replay.log`, what the replay said.
"""

from __future__ import annotations

import importlib
import itertools
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

from replay.errors import RunError
from replay.results.run.directory import RunDirectory
from replay.whatif.facts import read_facts
from replay.whatif.figures import all_figures

GRID = "sweep.json"
CELLS = "cells"
FIGURES = "figures.json"
RUN = "run"
LOG = "replay.log"
_WORDS_MAX = 2_000
SEED = "seed"
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_SET = "set:"
_VALUES_MAX = 100_000
_OURS = frozenset({"run", "force", "output", "quiet", "assert", "compare-recorded", "free-run"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A cell and its figures; `problem` is why it has none, "" where it has."""

    cell: Cell
    figures: Mapping[str, float]
    problem: str = ""


Report = Callable[[Finished, int, int], None]
"""Is told of each cell that has ended, how many have, and how many there are."""


def run_sweep(
    folder: Path, grid: Sequence[Cell], *, workers: int, dask: str, report: Report
) -> list[Finished]:
    """Run the cells that are not finished and return all, in the grid's order.

    `dask` is a scheduler's address, "" for local processes. Raises RunError where the folder
    cannot be written or holds something else, and GridError where Dask cannot be had.
    """
    _prepare(folder, grid)
    ended: dict[str, Finished] = {}
    missing = []
    for cell in grid:
        figures = finished_figures(folder / CELLS / cell.name)
        if figures is None:
            missing.append(cell)
        else:
            ended[cell.name] = Finished(cell=cell, figures=figures)
            report(ended[cell.name], len(ended), len(grid))
    runner = _on_dask(folder, missing, dask) if dask else _locally(folder, missing, workers)
    for each in runner:
        ended[each.cell.name] = each
        report(each, len(ended), len(grid))
    return [ended[cell.name] for cell in grid]


def _locally(folder: Path, missing: Sequence[Cell], workers: int) -> Iterator[Finished]:
    with ThreadPoolExecutor(max_workers=workers) as pool:
        futures = {
            pool.submit(run_cell, str(folder / CELLS / cell.name), cell.arguments): cell
            for cell in missing
        }
        try:
            for future in as_completed(futures):
                try:
                    yield Finished(cell=futures[future], figures=future.result())
                except (CellError, RunError, OSError) as error:
                    yield Finished(cell=futures[future], figures={}, problem=str(error))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _on_dask(folder: Path, missing: Sequence[Cell], address: str) -> Iterator[Finished]:
    """Run cells on a cluster whose machines see the same files and have Reprieve installed."""
    try:
        distributed: Any = importlib.import_module("dask.distributed")
    except ImportError as error:
        raise GridError('--dask needs the extra: pip install "reprieve[sweep]"') from error
    try:
        client = distributed.Client(address)
    except OSError as error:
        raise GridError(f"--dask {address}: no Dask scheduler answers: {error}") from error
    with client:
        futures = {
            client.submit(
                run_cell,
                str((folder / CELLS / cell.name).resolve()),
                cell.arguments,
                key=f"reprieve-{cell.name}",
                pure=False,
            ): cell
            for cell in missing
        }
        for future in distributed.as_completed(futures):
            cell = futures[future]
            failure = future.exception()
            if failure is None:
                yield Finished(cell=cell, figures=future.result())
            else:
                yield Finished(cell=cell, figures={}, problem=str(failure))


def _prepare(folder: Path, grid: Sequence[Cell]) -> None:
    try:
        if folder.is_dir() and any(folder.iterdir()) and not (folder / GRID).is_file():
            raise RunError(f"{folder} holds something else than a sweep and stays as it is")
        folder.mkdir(parents=True, exist_ok=True)
        text = [
            {"cell": cell.name, "place": dict(cell.place), "arguments": cell.arguments}
            for cell in grid
        ]
        (folder / GRID).write_bytes(orjson.dumps(text, option=orjson.OPT_INDENT_2))
    except OSError as error:
        raise RunError(f"{folder} cannot be written: {error.strerror or error}") from error


class CellError(RuntimeError):
    """A cell whose replay failed; the text is what it said last."""


def run_cell(folder: str, arguments: Sequence[str]) -> dict[str, float]:
    """Replay and return the figures; those of a finished cell are read. Raises CellError.

    Called in a worker process or on another machine, which is why all of it is plain values.
    """
    path = Path(folder)
    finished = finished_figures(path)
    if finished is not None:
        return finished
    run = path / RUN
    if run.exists():
        shutil.rmtree(run)
    run_into(run, arguments, path / LOG)
    figures = all_figures(read_facts(RunDirectory.open(run)))
    draft = path / f"{FIGURES}.draft"
    draft.write_bytes(orjson.dumps(figures, option=orjson.OPT_INDENT_2))
    draft.replace(path / FIGURES)
    return figures


def run_into(run: Path, arguments: Sequence[str], log: Path) -> None:
    """Replay into a run directory, in one process of its own. Raises CellError where that fails.

    Raises OSError where `log` cannot be written.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-P", "-m", "replay.cli.main", "replay", *arguments]
    command += ["--in-process", "--run", str(run), "-o", "json", "-q", "--no-report"]
    with log.open("wb") as file:
        done = subprocess.run(  # noqa: S603 - our own module
            command, stdout=subprocess.DEVNULL, stderr=file, stdin=subprocess.DEVNULL, check=False
        )
    if done.returncode:
        said = log.read_text(encoding="utf-8", errors="replace").strip()
        raise CellError(said[-_WORDS_MAX:] or f"the replay ended with {done.returncode}")


def finished_figures(path: Path) -> dict[str, float] | None:
    """Return the figures of a finished cell, None of one that is to be run."""
    try:
        found = orjson.loads((path / FIGURES).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    return {str(name): float(value) for name, value in found.items()}


class GridError(ValueError):
    """An axis that is none; the text is for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis: its name as given, and its values as texts."""

    name: str
    values: tuple[str, ...]

    def arguments(self, value: str) -> tuple[str, ...]:
        """Return what a replay's command line has for one value."""
        if self.name.startswith(_SET):
            return ("--set", f"{self.name.removeprefix(_SET)}={value}")
        if value in {"true", "false"}:
            return (f"--{self.name}",) if value == "true" else ()
        return (f"--{self.name}", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of a grid: its place on each axis, and the replay's arguments.

    `name` is a hash of the arguments, so that a grid which grows keeps the cells that it has.
    """

    place: tuple[tuple[str, str], ...]
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the name of the cell's folder."""
        text = "\x00".join(self.arguments).encode()
        return blake2b(text, digest_size=8, person=b"cell").hexdigest()

    @property
    def group(self) -> tuple[tuple[str, str], ...]:
        """Return the place without the seed, over which figures are averaged."""
        return tuple(each for each in self.place if each[0] != SEED)


def parse_axis(text: str) -> Axis:
    """Return an axis. Raises GridError for what is none."""
    head, equals, values = text.rpartition("=") if text.startswith(_SET) else text.partition("=")
    if not equals or not head or not values:
        raise GridError(f"--over {text}: write seed=1..10 or set:priorityClass.batch.value=0,50")
    if not head.startswith(_SET) and not _NAME.fullmatch(head):
        raise GridError(f"--over {text}: {head!r} is no option of replay")
    if head in _OURS:
        raise GridError(f"--over {text}: the sweep itself sets --{head}")
    found = tuple(itertools.chain.from_iterable(map(_expanded, values.split(","))))
    if len(set(found)) != len(found):
        raise GridError(f"--over {text}: a value comes twice")
    return Axis(name=head, values=found)


def cells(axes: Sequence[Axis], common: Sequence[str]) -> Iterator[Cell]:
    """Yield all cells, the last axis fastest; `common` are the arguments of each.

    Raises GridError for an axis that comes twice.
    """
    names = [axis.name for axis in axes]
    for name in names:
        if names.count(name) > 1:
            raise GridError(f"--over {name} comes twice")
    for values in itertools.product(*(axis.values for axis in axes)):
        pairs = list(zip(axes, values, strict=True))
        chosen = itertools.chain.from_iterable(axis.arguments(value) for axis, value in pairs)
        yield Cell(
            place=tuple((axis.name, value) for axis, value in pairs),
            arguments=(*common, *chosen),
        )


def _expanded(text: str) -> Sequence[str]:
    match = _RANGE.fullmatch(text)
    if match is None:
        if not text:
            raise GridError("--over: an empty value")
        return (text,)
    first, last = int(match[1]), int(match[2])
    if not first <= last < first + _VALUES_MAX:
        raise GridError(f"--over {text}: a range goes up, by {_VALUES_MAX:,} values at most")
    return [str(number) for number in range(first, last + 1)]
