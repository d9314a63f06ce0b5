"""What holds in every trace: header first, (at_ns, sequence) rising, as many records as counted."""

from __future__ import annotations

from collections import Counter

from reprieve.trace.v1alpha1.trace_pb2 import Record

FORMAT_VERSION = 1


class OrderCheck:
    """Looks at each record in turn; both the reader and the writer hold traces to it."""

    def __init__(self) -> None:
        self._at_ns = 0
        self._sequence = 0
        self._expected: dict[str, int] = {}
        self._counts: Counter[str] = Counter()

    def problem(self, record: Record) -> str:
        """Return what is wrong with the next record, "" for nothing."""
        kind, at_ns, sequence = record.WhichOneof("record"), record.at_ns, record.sequence
        wrong = ""
        if self._sequence == 0:
            wrong = self._first(record, kind)
        elif kind == "header":
            wrong = "a second header"
        elif sequence <= self._sequence:
            wrong = f"sequence {sequence} follows {self._sequence}"
        elif at_ns < self._at_ns:
            wrong = f"at_ns {at_ns} follows {self._at_ns}"
        self._at_ns, self._sequence = at_ns, sequence
        if self._expected:
            self._counts[kind or "unknown"] += 1
        return wrong

    def missing(self) -> str:
        """Return what is missing at the end, "" for nothing."""
        if self._sequence == 0:
            return "no header: the trace is empty"
        for kind, expected in sorted(self._expected.items()):
            if self._counts[kind] != expected:
                return f"{self._counts[kind]} records of kind {kind}, the header counts {expected}"
        return ""

    def _first(self, record: Record, kind: str | None) -> str:
        if kind != "header":
            return f"the first record is a header, not {kind or 'of an unknown kind'}"
        if record.sequence < 1:
            return "sequence begins at 1"
        if record.header.format_version != FORMAT_VERSION:
            return (
                f"format_version {record.header.format_version}; this version reads "
                f"{FORMAT_VERSION}"
            )
        self._expected = dict(record.header.counts)
        return ""
