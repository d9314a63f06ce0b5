"""The notes of two runs side by side: what each of them did not simulate, refused or guessed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from replay.results.run.directory import RunDirectory

QUIET = "unread-kind"
"""The kind of notes about objects that no decision depends on."""


class ComparedNote(NamedTuple):
    """A note with how often it was made in each run."""

    kind: str
    text: str
    a: int
    b: int


def compared_notes(run_a: RunDirectory, run_b: RunDirectory) -> Iterator[ComparedNote]:
    """Yield the notes of two runs, those of A first, without those of objects that are not read.

    A run without a summary has no notes.
    """
    a = {(note.kind, note.text): note.times for note in run_a.notes()}
    b = {(note.kind, note.text): note.times for note in run_b.notes()}
    for kind, text in dict.fromkeys([*a, *b]):
        if kind != QUIET:
            yield ComparedNote(kind, text, a.get((kind, text), 0), b.get((kind, text), 0))
