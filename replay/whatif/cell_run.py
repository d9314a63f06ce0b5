"""One cell of a sweep: a replay in a process of its own, and the figures that it leaves.

A cell's folder holds `run/` (the run directory), `figures.json`, which is written last and whole,
so that it tells a finished cell, and `replay.log`, what the replay said.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import orjson

from replay.results.run_directory import RunDirectory
from replay.whatif.facts import read_facts
from replay.whatif.figures import all_figures

FIGURES = "figures.json"
RUN = "run"
LOG = "replay.log"
_WORDS_MAX = 2_000


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
