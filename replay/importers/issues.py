"""What an importer repaired, dropped or guessed, counted."""

from __future__ import annotations

from collections.abc import Iterator

from reprieve.trace.v1alpha1.trace_pb2 import ImportIssue


class Issues:
    """Counts issues; those of one kind and one message stand together, at the first's place."""

    def __init__(self) -> None:
        self._issues: dict[tuple[str, str], ImportIssue] = {}

    def add(self, kind: str, where: str, message: str, count: int = 1) -> None:
        """Note an issue, `count` times."""
        known = self._issues.get((kind, message))
        if known is None:
            known = ImportIssue(kind=kind, where=where, message=message)
            self._issues[kind, message] = known
        known.count += count

    def __iter__(self) -> Iterator[ImportIssue]:
        return iter(self._issues.values())
