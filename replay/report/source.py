"""What figures are made from: a run's tables, and its beginning and end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from replay.results.tables.query import Parameters, Row, RunTables

GROUPS_MAX = 8
"""Series in one chart; what is smaller is put together as OTHER."""
OTHER = "other"
BUCKETS = 240
"""Moments in one chart over time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A run's tables, with its first and last moment, ns."""

    tables: RunTables
    start_ns: int
    end_ns: int

    @property
    def end_s(self) -> float:
        """Return how long the run is, in simulated seconds; never 0, so that axes have a length."""
        return max(1, self.end_ns - self.start_ns) / 1e9

    def rows(self, sql: str, parameters: Parameters = ()) -> Iterator[Row]:
        """Yield what a SELECT finds; it is read to its end before the next one."""
        return iter(list(self.tables.ask(sql, parameters).rows()))

    def seconds(self, at_ns: int) -> float:
        """Return simulated seconds since the beginning."""
        return round((at_ns - self.start_ns) / 1e9, 3)


def open_source(tables: RunTables) -> Source:
    """Return a run's tables with its beginning and end."""
    start_ns, end_ns = next(tables.ask("SELECT start_ns, end_ns FROM run").rows())
    return Source(tables=tables, start_ns=start_ns, end_ns=end_ns)
