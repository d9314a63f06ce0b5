"""Ended spans, the sinks that receive them, and the sampling of traces.

A replay's spans run in simulated time and are complete when they are created. So they are values,
not objects that are opened and closed, and creating one takes a fraction of the time that the SDK's
tracer takes. The selection of traces depends only on (seed, name), and so do their IDs. If spans
show wall time, IDs also depend on the run, because a collector would merge two runs of one trace.

Source: OpenTelemetry specification 1.40, trace SDK, TraceIdRatioBased (the lowest 8 bytes of the
trace id decide, so that any sampler of the same share decides alike).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple, Protocol, Self

Attribute = str | int | float | bool | Sequence[str]


class SpanContext(NamedTuple):
    """The identity of a span: trace id (32 hexadecimal digits) and span id (16)."""

    trace_id: str
    span_id: str


class SpanKind(IntEnum):
    """The kind of a span, by the numbers of opentelemetry-proto 1.5, Span.SpanKind."""

    INTERNAL = 1
    SERVER = 2


class Span(NamedTuple):
    """A span that has ended; times are ns since the Unix epoch.

    `parent_id` is "" for a trace's root. `error` is the status' description, "" for no error. The
    parent of a server's span is in another process.
    """

    name: str
    context: SpanContext
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Attribute]
    links: Sequence[SpanContext] = ()
    error: str = ""
    kind: SpanKind = SpanKind.INTERNAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The delivery of a run's spans: ended spans, delivered spans, and the first problem.

    `target` is a file's name or an endpoint; "" if spans were not requested.
    """

    ended: int = 0
    delivered: int = 0
    target: str = ""
    problem: str = ""

    @property
    def lost(self) -> int:
        """The number of spans that were not delivered; a run with any has failed."""
        return self.ended - self.delivered


class SinkPosition(NamedTuple):
    """The progress of a sink: ended spans, delivered spans, and the first problem."""

    ended: int
    delivered: int
    problem: str = ""


class SpanSink(Protocol):
    """Receives spans. A sink may make its caller wait, and reports every lost span."""

    def end(self, span: Span) -> None:
        """Deliver an ended span, now or later."""

    def flush(self) -> None:
        """Write ended spans that wait for a file; any thread may call this.

        A sink to a collector does nothing: it sends whole batches.
        """

    def position(self, *, syncs: bool = True) -> SinkPosition:
        """Deliver all ended spans, and return the position from which a new sink can continue.

        syncs: whether to wait until the disk has the spans, if the sink is a file.
        """

    def close(self) -> Delivery:
        """Deliver the remaining spans and return the outcome of all."""


_SPAN_IDS = 1 << 64
_STEP = 0x9E3779B97F4A7C15
"""Difference of two span IDs: 2^64 divided by the golden ratio, so that first digits differ."""


class TraceIds:
    """The trace ID of one trace, and any number of span IDs.

    The first span ID comes from the digest that the trace ID comes from. Every further one is the
    previous one plus an odd constant, so that none is repeated.
    """

    __slots__ = ("_next", "trace_id")

    trace_id: str
    _next: int

    def __init__(self, digest: bytes) -> None:
        self.trace_id = digest[:16].hex()
        self._next = int.from_bytes(digest[16:], "big")

    def next_span_id(self) -> str:
        """Return a span id, 16 hexadecimal digits, that the trace does not have yet."""
        self._next = (self._next + _STEP) % _SPAN_IDS or 1
        return "%016x" % self._next  # noqa: UP031 - twice as fast, several times a pod


@dataclass(frozen=True, slots=True)
class Sampling:
    """The share of traces to keep, 0 to 1.

    run_ns: the run's beginning, set if two runs must not share trace IDs. The selection of traces
    does not depend on it.
    """

    share: float
    run_ns: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "off", "all" or a percentage such as "1%". Raises ValueError for anything else."""
        if text in ("off", "all"):
            return cls(float(text == "all"))
        try:
            percentage = float(text.removesuffix("%"))
        except ValueError:
            percentage = -1.0
        if not text.endswith("%") or not 0 <= percentage <= 100:
            raise ValueError(f'{text!r} is not "off", "all" or a percentage such as "1%"')
        return cls(percentage / 100)

    def __str__(self) -> str:
        """Return the share as `parse` reads it."""
        return {0.0: "off", 1.0: "all"}.get(self.share, f"{self.share * 100:.10g}%")

    def pick(self, seed: int, name: str) -> TraceIds | None:
        """Return the IDs for the trace of `name` (a pod's UID); None if it is not sampled."""
        if not self.share:
            return None
        key = (seed % _SPAN_IDS).to_bytes(8, "big")
        digest = blake2b(name.encode(), digest_size=24, key=key, person=b"reprieve span").digest()
        if int.from_bytes(digest[8:16], "big") >= self.share * _SPAN_IDS:
            return None
        if self.run_ns:
            # Little-endian: tools show the first digits of an ID, and the high digits of the times
            # of two runs are equal.
            first = int.from_bytes(digest[:8], "little") ^ self.run_ns % _SPAN_IDS
            digest = first.to_bytes(8, "little") + digest[8:]
        return TraceIds(digest)
