"""The spans of a service, in wall time: one for each request that has a trace context.

The standard OTEL_ variables name the collector; without an endpoint there are no spans.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from services.telemetry.logs import CURRENT
from services.telemetry.setup import service_sink
from services.telemetry.span import Attribute, Span, SpanContext, SpanKind, SpanSink
from services.terminal import echo

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}\Z")


@dataclass(slots=True)
class OpenSpan:
    """The span of a request in progress; attributes and error can be set until its end.

    `traceparent` is the context for further calls. `error` is "" if there is no error.
    """

    traceparent: str
    attributes: dict[str, Attribute]
    error: str = ""


class ServiceSpans:
    """Makes a service's spans; without a sink it makes none.

    With `marks_logs`, a request's log records have the IDs of its trace even without a sink.
    """

    def __init__(self, sink: SpanSink | None = None, *, marks_logs: bool = False) -> None:
        self._sink = sink
        self._marks_logs = marks_logs

    @classmethod
    def from_environment(
        cls,
        service: str,
        version: str,
        environment: Mapping[str, str] = os.environ,
        *,
        marks_logs: bool = False,
    ) -> ServiceSpans:
        """Return spans to the collector that `environment` names, or none.

        Raises TelemetryError for a protocol that is not served.
        """
        return cls(service_sink(environment, version, service), marks_logs=marks_logs)

    @property
    def are_needed(self) -> bool:
        """Whether requests must be timed, or their log records marked."""
        return self._sink is not None or self._marks_logs

    @contextmanager
    def span(
        self, name: str, parent: str, attributes: Mapping[str, Attribute]
    ) -> Iterator[OpenSpan]:
        """Time a request in the trace of `parent`, and yield its span.

        Without a sink, or with an invalid `parent`, the yielded traceparent is `parent` itself.
        """
        traced = _TRACEPARENT.match(parent)
        if traced is None or not self.are_needed:
            yield OpenSpan(parent, {**attributes})
            return
        own_id = traced[2] if self._sink is None else os.urandom(8).hex()
        context = SpanContext(traced[1], own_id)
        began_ns = time.time_ns()
        under_way = OpenSpan(traceparent(context), {**attributes})
        CURRENT.set(context)
        try:
            yield under_way
        finally:
            if CURRENT.get() is context:
                CURRENT.set(None)
            if self._sink is not None:
                span = Span(
                    name=name,
                    context=context,
                    parent_id=traced[2],
                    start_ns=began_ns,
                    end_ns=time.time_ns(),
                    attributes=under_way.attributes,
                    error=under_way.error,
                    kind=SpanKind.SERVER,
                )
                self._sink.end(span)

    def close(self) -> None:
        """Deliver the remaining spans, and report lost ones on standard error."""
        if self._sink is None:
            return
        delivery = self._sink.close()
        if delivery.lost:
            echo(
                f"{delivery.lost} of {delivery.ended} spans did not reach {delivery.target}: "
                f"{delivery.problem}",
                err=True,
            )


def traceparent(context: SpanContext) -> str:
    """Return a span's context as a W3C traceparent, sampled."""
    return f"00-{context.trace_id}-{context.span_id}-01"
