"""Sends spans to a collector over OTLP, in batches.

The SDK's BatchSpanProcessor drops spans without an error when it cannot keep up, and ignores
failures of the exporter; therefore exporters are called directly. A replay waits for its collector
and loses no span; a service does not wait, and counts lost spans.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sized
from threading import Event, Thread
from typing import cast

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.util.types import Attributes

from services.telemetry import span as own
from services.telemetry.collector import Collector, Protocol
from services.telemetry.resource import scope

_SPANS_PER_BATCH = 512
_WAITING_MAX = 64 * _SPANS_PER_BATCH
_BATCH_S = 1.0
_FLAGS = TraceFlags(TraceFlags.SAMPLED)
_KINDS = {own.SpanKind.INTERNAL: SpanKind.INTERNAL, own.SpanKind.SERVER: SpanKind.SERVER}


def span_exporter(collector: Collector) -> SpanExporter:
    """Return an exporter that reads the process's own OTEL_EXPORTER_OTLP_ variables."""
    if collector.protocol is Protocol.HTTP:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter as OverHttp,
        )

        return OverHttp()
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OverGrpc  # noqa: PLC0415

    return OverGrpc()


def open_collector(
    collector: Collector, resource: Resource, position: own.SinkPosition | None = None
) -> OtlpSpanSink:
    """Return a sink to a collector; its caller waits for each batch."""
    return OtlpSpanSink(span_exporter(collector), collector.endpoint, resource, position)


def open_background(collector: Collector, resource: Resource) -> BackgroundSink:
    """Return a sink to a collector that never makes its caller wait."""
    return BackgroundSink(span_exporter(collector), collector.endpoint, resource)


class OtlpSpanSink:
    """Passes spans to an exporter and counts delivered spans.

    After a failed batch, later spans are only counted: the exporter has already retried for as long
    as OTEL_EXPORTER_OTLP_TIMEOUT allows, and the run has failed.
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
        self._scope = scope(resource)
        self._pending: list[own.Span] = []
        self._ended, self._delivered, self._problem = position or own.SinkPosition(0, 0)

    def end(self, span: own.Span) -> None:
        """Export a span that has ended, with the next full batch."""
        self._ended += 1
        self._pending.append(span)
        if len(self._pending) >= _SPANS_PER_BATCH:
            self._export()

    def flush(self) -> None:
        """Do nothing: a collector gets whole batches."""

    def position(self, *, syncs: bool = True) -> own.SinkPosition:  # noqa: ARG002 - the protocol's
        """Export all ended spans; a sink that continues from the position exports none again."""
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
        result = self._exporter.export(
            [_readable(span, self._resource, self._scope) for span in spans]
        )
        if result is SpanExportResult.SUCCESS:
            self._delivered += len(spans)
        else:
            self._problem = _refusal(self._target, spans)


class BackgroundSink:
    """Passes spans to an exporter in a separate thread, once a second or when a batch is full.

    Spans that the collector does not accept are lost and counted; later spans are sent again. Spans
    beyond the limit of the queue are also lost and counted, as with the specification's batching
    processor.
    """

    def __init__(self, exporter: SpanExporter, target: str, resource: Resource) -> None:
        self._exporter = exporter
        self._target = target
        self._resource = resource
        self._scope = scope(resource)
        self._ended = self._delivered = 0
        self._problem = ""
        self._pending: deque[own.Span] = deque()
        self._wanted = Event()
        self._is_closing = False
        self._thread = Thread(target=self._run, name="span exporter", daemon=True)
        self._thread.start()

    def end(self, span: own.Span) -> None:
        """Queue an ended span for export."""
        self._ended += 1
        if len(self._pending) >= _WAITING_MAX:
            self._problem = self._problem or f"{self._target} was slower than spans ended"
            return
        self._pending.append(span)
        if len(self._pending) >= _SPANS_PER_BATCH:
            self._wanted.set()

    def flush(self) -> None:
        """Do nothing: the thread sends ended spans within a second."""

    def position(self, *, syncs: bool = True) -> own.SinkPosition:  # noqa: ARG002 - the protocol's
        """Return the numbers of ended and delivered spans so far."""
        return own.SinkPosition(self._ended, self._delivered, problem=self._problem)

    def close(self) -> own.Delivery:
        """Export the remaining spans, for as long as OTEL_EXPORTER_OTLP_TIMEOUT allows."""
        self._is_closing = True
        self._wanted.set()
        self._thread.join()
        self._exporter.shutdown()
        return own.Delivery(
            ended=self._ended, delivered=self._delivered, target=self._target, problem=self._problem
        )

    def _run(self) -> None:
        """Export batches until the sink closes; the body of the thread."""
        while True:
            self._wanted.wait(_BATCH_S)
            self._wanted.clear()
            is_last = self._is_closing
            while self._pending:
                if not self._export() and is_last:
                    return
            if is_last:
                return

    def _export(self) -> bool:
        count = min(len(self._pending), _SPANS_PER_BATCH)
        spans = [
            _readable(self._pending.popleft(), self._resource, self._scope) for _ in range(count)
        ]
        taken = self._exporter.export(spans) is SpanExportResult.SUCCESS
        if taken:
            self._delivered += count
        else:
            self._problem = self._problem or _refusal(self._target, spans)
        return taken


def _refusal(target: str, spans: Sized) -> str:
    return f"{target} did not take a batch of {len(spans)} spans"


def _readable(span: own.Span, resource: Resource, within: InstrumentationScope) -> ReadableSpan:
    parent = None
    if span.parent_id:
        context = own.SpanContext(span.context.trace_id, span.parent_id)
        parent = _context(context, is_remote=span.kind is own.SpanKind.SERVER)
    return ReadableSpan(
        name=span.name,
        context=_context(span.context),
        parent=parent,
        resource=resource,
        kind=_KINDS[span.kind],
        attributes=cast("Attributes", cast("Mapping[str, object]", span.attributes)),
        links=[Link(_context(link)) for link in span.links],
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=within,
    )


def _context(context: own.SpanContext, *, is_remote: bool = False) -> SpanContext:
    return SpanContext(
        int(context.trace_id, 16), int(context.span_id, 16), is_remote, trace_flags=_FLAGS
    )
