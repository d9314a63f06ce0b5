"""Notes: what a run could not simulate, rejected, or had to assume."""

from __future__ import annotations

from collections.abc import Sequence

from replay.report.section import Cell, ReportSection
from replay.results.run.directory import RunDirectory
from replay.whatif.notes import compared_notes

_TITLE = "Notes"
_NOTE = "What the trace has and the run did not simulate, what was refused, and what was guessed."


def notes(run: RunDirectory) -> ReportSection:
    """Return the section of one run."""
    return ReportSection(
        key="notes",
        title=_TITLE,
        note=_NOTE,
        empty="The run has no notes.",
        columns=("Count", "Kind", "Note"),
        rows=[[note.times, note.kind, note.text] for note in run.notes()],
        wide=True,
        tabular=True,
    )


def notes_of_two(run_a: RunDirectory, run_b: RunDirectory) -> ReportSection:
    """Return the section of two runs compared."""
    rows: list[Sequence[Cell]] = [
        [compared_note.a, compared_note.b, compared_note.kind, compared_note.text]
        for compared_note in compared_notes(run_a, run_b)
    ]
    return ReportSection(
        key="notes",
        title=_TITLE,
        note=_NOTE,
        empty="The runs have no notes.",
        columns=("In A", "In B", "Kind", "Note"),
        rows=rows,
        wide=True,
        tabular=True,
    )
