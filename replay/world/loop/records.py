"""The trace's records in order, some of which are read before their time."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator

from reprieve.trace.v1beta1 import trace_pb2


class RecordSource:
    """The trace's records in order; records read ahead are kept until their time."""

    _taken: int
    first_ns: int
    window_end_ns: int

    def __init__(self) -> None:
        self._records: Iterator[trace_pb2.Record] = iter(())
        self._coming: deque[trace_pb2.Record] = deque()
        self._taken = 0
        self.first_ns = 0
        self.window_end_ns = 0

    def read(self, records: Iterable[trace_pb2.Record]) -> None:
        """Read a trace from its beginning; records that were taken before are skipped."""
        self._records = itertools.islice(records, self._taken, None)
        if not self._taken:
            self.first_ns = self.next_ns() or 0

    def next_ns(self) -> int | None:
        """Return the time of the next record, ns since the Unix epoch; None after the last."""
        if not self._coming:
            next(self.ahead(), None)
        return self._coming[0].time_ns if self._coming else None

    def ahead(self) -> Iterator[trace_pb2.Record]:
        """Yield the next records without taking them; none may be taken meanwhile."""
        yield from self._coming
        for record in self._records:
            self._coming.append(record)
            yield record

    def take_due(self, now_ns: int) -> Iterator[trace_pb2.Record]:
        """Take and yield the records up to a time."""
        while (at_ns := self.next_ns()) is not None and at_ns <= now_ns:
            record = self._coming.popleft()
            self._taken += 1
            if record.HasField("header"):
                self.window_end_ns = record.header.window_end_time_ns
            yield record
