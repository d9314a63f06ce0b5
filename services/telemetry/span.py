"""A finished span, and what becomes of spans.

A replay's spans run in virtual time and are known whole when they end, so they are values and not
objects that are opened and closed: building one takes a fraction of what the SDK's tracer takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

Attribute = str | int | float | bool | Sequence[str]


class SpanContext(NamedTuple):
    """Which span: trace id (32 hexadecimal digits) and span id (16)."""

    trace_id: str
    span_id: str


class Span(NamedTuple):
    """A span that has ended; times are ns since the Unix epoch.

    `parent_id` is "" for a trace's root. `error` is the status' description, "" for no error.
    """

    name: str
    context: SpanContext
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Attribute]
    links: Sequence[SpanContext] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What became of a run's spans: how many ended, how many `target` has taken, what went wrong.

    target: a file's name or an endpoint; "" where none were wanted.
    """

    ended: int = 0
    delivered: int = 0
    target: str = ""
    problem: str = ""

    @property
    def lost(self) -> int:
        """Return how many spans did not arrive; a run with any has failed."""
        return self.ended - self.delivered


class SpanSink(Protocol):
    """Where spans go. It may make its caller wait, and never drops a span in silence."""

    def end(self, span: Span) -> None:
        """Take a span that has ended."""

    def close(self) -> Delivery:
        """Deliver what is left and tell what has arrived."""
