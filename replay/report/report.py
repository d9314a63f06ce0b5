"""A run's report from beginning to end: its tables are read, its page is written."""

from __future__ import annotations

from pathlib import Path

from replay.report.capacity import fragmentation, reasons
from replay.report.displaced import evictions, loops, preemptions
from replay.report.load import pending, utilisation
from replay.report.node_timeline import node_timeline
from replay.report.overview import overview
from replay.report.page import page
from replay.report.source import open_source
from replay.report.waits import latencies, waiting
from replay.results.errors import RunError
from replay.results.run_directory import REPORT, RunDirectory
from replay.results.tables.query import RunTables

FIGURES = (
    utilisation,
    pending,
    waiting,
    reasons,
    preemptions,
    node_timeline,
    evictions,
    loops,
    fragmentation,
    latencies,
)


def write_report(run: RunDirectory, path: Path | None = None) -> Path:
    """Write a run's report and return where; None is report.html in its folder.

    The run's tables are made first where they are missing. Raises RunError; a report that cannot be
    written whole leaves a former one as it was.
    """
    path = path or run.path / REPORT
    with RunTables(run) as tables:
        source = open_source(tables)
        head = overview(source, run.manifest(), run.path.resolve().name)
        text = page(head, [each(source) for each in FIGURES])
    draft = path.with_name(f"{path.name}.draft")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}") from error
    return path
