"""The files of a run, by name, and the folders that a new run may take.

- run.lock: the process that runs, or why the run broke off; removed when the run is complete.
- manifest.json: the run's inputs; "finished" is false until the run's end, then `files` has the
  digests of the files below except tables and report.
- decisions.jsonl: the decision log.
- history.rounds.zst: every round that was sent to the scheduler.
- objects.rounds.zst: the changes of objects that the scheduler does not receive in full, if there
  are any.
- extenders.rounds.zst: the extender responses in each round, if extenders responded.
- checkpoint-ROUNDS-NS.zst: the whole state after ROUNDS rounds, at the simulated time NS.
- resume.zst: the last checkpoint of the whole state, for `reprieve resume`; removed when the run
  is complete.
- spans.jsonl: spans, if they are written to a file.
- latencies.json: wall times.
- summary.json: the summary.
- *.parquet: the tables of replay.results.tables, built from the files above.
- report.html: the report of replay.report, built from the tables.
- made.json: the digests of tables and report, and of the manifest that they belong to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from replay.errors import RunError, unwritable
from replay.results.run.checkpoints import is_checkpoint
from replay.results.run.lock import LOCK
from replay.results.run.resume_point import RESUME
from replay.results.schema import FILE_NAMES
from services.folder import Folder, drafted

MANIFEST = "manifest.json"
DECISIONS = "decisions.jsonl"
HISTORY = "history.rounds.zst"
OBJECTS = "objects.rounds.zst"
EXTENDERS = "extenders.rounds.zst"
SPANS = "spans.jsonl"
LATENCIES = "latencies.json"
SUMMARY = "summary.json"
REPORT = "report.html"
MADE = "made.json"
GROWING = (DECISIONS, HISTORY, OBJECTS, EXTENDERS, SPANS)
"""Files that a run writes from its beginning to its end."""
RECORDED = (*GROWING, LATENCIES, SUMMARY)
"""Files that a run writes, beside its manifest and its checkpoints."""
DERIVED = (MADE, REPORT, *FILE_NAMES)
"""Files that are built from the recorded ones, at any time."""
FILES = (MANIFEST, LOCK, RESUME, *RECORDED, *DERIVED)
TABLES_DRAFT = ".tables-"
"""Prefix of a folder in which tables are being built."""
RUNS = Path("runs")
"""The folder of runs for which no folder is given."""


def next_folder(name: str, parent: Path = RUNS) -> Path:
    """Make and return the next free folder PARENT/NAME-N, N from 1; safe against other processes.

    Raises RunError and OutputError if it cannot be made.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        number = 1 + max(_numbers(parent, name), default=0)
        while True:
            try:
                (parent / f"{name}-{number}").mkdir()
            except FileExistsError:
                number += 1
            else:
                return parent / f"{name}-{number}"
    except OSError as error:
        raise unwritable(parent, error) from error


def latest_run(parent: Path = RUNS) -> Path | None:
    """Return the folder whose run wrote its manifest last, at its beginning or end; None: no run.

    Runs in the subfolders of a comparison or a sweep are considered, too.
    """
    try:
        manifests = [(manifest.stat().st_mtime_ns, manifest) for manifest in parent.rglob(MANIFEST)]
    except OSError as error:
        raise RunError(f"{parent}: cannot be read: {error.strerror or error}") from error
    return max(manifests)[1].parent if manifests else None


def check_files(path: Path, *, force: bool) -> None:
    """Raise RunError if `path` holds files that a new run must not remove; LOCK is not checked.

    force: whether the new run may remove a former run.
    """
    try:
        with Folder(path) as folder:
            present = [name for name in folder.names() if name != LOCK]
            foreign = [name for name in present if not _is_ours(folder, name)]
    except FileNotFoundError:
        return
    except OSError as error:
        raise unwritable(path, error, "made") from error
    if present and not force and not _are_before_the_beginning(present):
        if foreign and MANIFEST not in present:
            raise RunError(f"{path} is not empty")
        what = "a former run" if MANIFEST in present else "what is left of a former run"
        raise RunError(f"{path} is {what}; --force replaces it")
    if foreign:
        shown = ", ".join(foreign[:3])
        raise RunError(f"{path} holds files that are not of a run ({shown}); nothing was removed")


def is_ours(name: str) -> bool:
    """Return whether `name` is the name of a run's file, or of a draft of such a file."""
    of = drafted(name) or name
    return of in FILES or is_checkpoint(of)


def is_before_the_beginning(path: Path) -> bool:
    """Return whether a folder's run was killed before it wrote its manifest."""
    try:
        with Folder(path) as folder:
            present = folder.names()
    except OSError:
        return False
    return LOCK in present and _are_before_the_beginning(present)


def _are_before_the_beginning(names: Iterable[str]) -> bool:
    """Return whether all names are of files that a run writes before its manifest."""
    return all(name in {LOCK, RESUME} or drafted(name) in {RESUME, MANIFEST} for name in names)


def _is_ours(folder: Folder, name: str) -> bool:
    """Return whether an entry of a run's folder belongs to the run, by its name and kind."""
    if folder.is_folder(name):
        return name.startswith(TABLES_DRAFT)
    return folder.is_file(name) and is_ours(name)


def _numbers(parent: Path, trace_name: str) -> Iterator[int]:
    for entry in parent.iterdir():
        name, _, number = entry.name.rpartition("-")
        if name == trace_name and number.isdecimal():
            yield int(number)
