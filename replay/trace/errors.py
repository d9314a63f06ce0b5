"""Why a trace is refused."""

from __future__ import annotations


class TraceError(ValueError):
    """A trace that cannot be read or written; `where` names file and frame, line or record."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where = where
        self.problem = problem
