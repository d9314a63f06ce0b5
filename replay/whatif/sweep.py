"""Running a grid: in local processes, or on a Dask cluster.

Finished cells are kept, so that a sweep which was interrupted, or has grown, runs what is missing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from replay.results.errors import RunError
from replay.whatif.cell_run import CellError, finished_figures, run_cell
from replay.whatif.grid import Cell, GridError

GRID = "sweep.json"
CELLS = "cells"


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
