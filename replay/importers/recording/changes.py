"""The changes of a recording as they were recorded, for who wants all of it and no trace."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from replay.importers import audit, kwok, recorder, watch
from replay.importers.issues import Issues
from replay.importers.recording.change import Change
from replay.importers.registry import select
from replay.trace.errors import TraceError

_READERS = {
    watch.NAME: watch.recorded_changes,
    audit.NAME: audit.recorded_changes,
    recorder.NAME: recorder.recorded_changes,
    kwok.NAME: kwok.recorded_changes,
}


def open_changes(
    paths: Sequence[str | os.PathLike[str]],
    *,
    format: str | None = None,  # noqa: A002 - the word of the command line
    issues: Issues,
) -> Iterator[Change]:
    """Yield the changes of recordings (watches, audit logs, recorder's and kwok's), in order.

    Raises TraceError where a file cannot be read or is no recording.
    """
    importer, files = select(paths, format=format, issues=issues)
    reader = _READERS.get(importer.name)
    if reader is None:
        problem = f"is of format {importer.name}, which keeps no recorded states: give the"
        raise TraceError(str(files[0]), f"{problem} recording itself (watches, an audit log)")
    _, changes = reader(files)
    return changes(issues)
