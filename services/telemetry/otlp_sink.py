"""Spans to a collector over OTLP/gRPC, in batches, synchronously.

The SDK's BatchSpanProcessor drops spans without an error when it cannot keep up, and ignores an
exporter's failure, so the exporter is called here, and its caller waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags
from opentelemetry.util.types import Attributes

from services.telemetry import span as own
from services.telemetry.resource import SCOPE

_SPANS_PER_BATCH = 512
_FLAGS = TraceFlags(TraceFlags.SAMPLED)


def open_collector(
    endpoint: str, resource: Resource, position: own.SinkPosition | None = None
) -> OtlpSpanSink:
    """Return a sink to the collector that the process' own variables name, shown as `endpoint`."""
    return OtlpSpanSink(OTLPSpanExporter(), endpoint, resource, position)


class OtlpSpanSink:
    """Passes spans to an exporter and counts those it has delivered.

    After a failed batch the others are only counted: the run has failed already, and the exporter
    has retried for as long as OTEL_EXPORTER_OTLP_TIMEOUT allows.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        target: str,
        resource: Resource,
        position: own.SinkPosition | None = None,
    ) -> None:
        self._exporter = exporter
        self._target = target
        self._resource = resource
        self._scope = InstrumentationScope(SCOPE)
        self._pending: list[own.Span] = []
        self._ended, self._delivered, _, self._problem = position or own.SinkPosition(0, 0)

    def end(self, span: own.Span) -> None:
        """Export a span that has ended, with the next full batch."""
        self._ended += 1
        self._pending.append(span)
        if len(self._pending) >= _SPANS_PER_BATCH:
            self._export()

    def flush(self) -> None:
        """Do nothing: a collector gets whole batches."""

    def position(self) -> own.SinkPosition:
        """Export the spans that have ended; a sink that continues exports none of them again."""
        self._export()
        return own.SinkPosition(self._ended, self._delivered, problem=self._problem)

    def close(self) -> own.Delivery:
        """Export the remaining spans and shut the exporter down."""
        self._export()
        self._exporter.shutdown()
        return own.Delivery(
            ended=self._ended, delivered=self._delivered, target=self._target, problem=self._problem
        )

    def _export(self) -> None:
        spans, self._pending = self._pending, []
        if self._problem or not spans:
            return
        result = self._exporter.export([self._readable(span) for span in spans])
        if result is SpanExportResult.SUCCESS:
            self._delivered += len(spans)
        else:
            self._problem = f"{self._target} did not take a batch of {len(spans)} spans"

    def _readable(self, span: own.Span) -> ReadableSpan:
        context = _context(span.context)
        parent = None
        if span.parent_id:
            parent = _context(own.SpanContext(span.context.trace_id, span.parent_id))
        return ReadableSpan(
            name=span.name,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=cast("Attributes", cast("Mapping[str, object]", span.attributes)),
            links=[Link(_context(link)) for link in span.links],
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=self._scope,
        )


def _context(context: own.SpanContext) -> SpanContext:
    return SpanContext(
        int(context.trace_id, 16), int(context.span_id, 16), is_remote=False, trace_flags=_FLAGS
    )
