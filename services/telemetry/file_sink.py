"""Spans to a file of OTLP JSON, one TracesData a line, as OpenTelemetry's file exporter writes it.

Source: OpenTelemetry specification 1.40, protocol/file-exporter; opentelemetry-proto 1.5, JSON
Protobuf encoding (ids in hexadecimal, 64-bit integers as texts, enums as numbers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import cast

import orjson
from opentelemetry.sdk.resources import Resource

from services.growing_file import Buffered, GrowingFile
from services.telemetry.resource import SCOPE, version_of
from services.telemetry.span import Attribute, Delivery, SinkPosition, Span

_SPANS_PER_LINE = 512
_STATUS_ERROR = 2


class FileSpanSink:
    """Writes spans to a file, up to 512 in a line; after an error, it only counts them."""

    def __init__(
        self, file: GrowingFile, resource: Resource, position: SinkPosition | None = None
    ) -> None:
        """Write to a file; `position` has the counts at the time when the file had its size."""
        described = _attributes(cast("Mapping[str, Attribute]", resource.attributes))
        self._before = (
            f'{{"resourceSpans":[{{"resource":{{"attributes":[{described}]}},'
            f'"scopeSpans":[{{"scope":{{"name":{_string(SCOPE)},'
            f'"version":{_string(version_of(resource))}}},"spans":['
        )
        self._ended = position.ended if position is not None else 0
        self._problem = position.problem if position is not None else ""
        self._spans = Buffered(file, self._lines)
        self._spans.written = position.delivered if position is not None else 0

    def end(self, span: Span) -> None:
        """Write an ended span, with the next full line."""
        self._ended += 1
        self._spans.waiting.append(span)
        if len(self._spans.waiting) >= _SPANS_PER_LINE:
            self.flush()

    def flush(self) -> None:
        """Write the spans that have ended; any thread may call this."""
        if not self._problem:
            try:
                self._spans.flush()
            except OSError as error:
                self._fail(error)
        if self._problem:
            self._spans.waiting.clear()

    def position(self, *, syncs: bool = True) -> SinkPosition:
        """Write all ended spans to the file, with `syncs` to the disk; return the position."""
        self.flush()
        try:
            if syncs:
                self._spans.sync()
        except OSError as error:
            self._fail(error)
        return SinkPosition(self._ended, self._spans.written, self._problem)

    def close(self) -> Delivery:
        """Write the remaining spans and close the file."""
        self.flush()
        try:
            self._spans.close()
        except OSError as error:
            self._fail(error)
        return Delivery(
            ended=self._ended,
            delivered=self._spans.written,
            target=str(self._spans.file.path),
            problem=self._problem,
        )

    def _fail(self, error: OSError) -> None:
        self._problem = self._problem or f"{self._spans.file.path}: {error.strerror or error}"

    def _lines(self, spans: Sequence[Span]) -> bytes:
        starts = range(0, len(spans), _SPANS_PER_LINE)
        return b"".join(self._line(spans[start : start + _SPANS_PER_LINE]) for start in starts)

    def _line(self, spans: Sequence[Span]) -> bytes:
        text = ",".join(map(_span, spans))
        return f"{self._before}{text}]}}]}}]}}\n".encode()


def _span(span: Span) -> str:
    """Return a span as JSON; f-strings take half as long as encoding a mapping."""
    optional = ""
    if span.parent_id:
        optional = f',"parentSpanId":"{span.parent_id}"'
    if span.links:
        links = ",".join([f'{{"traceId":"{link[0]}","spanId":"{link[1]}"}}' for link in span.links])
        optional += f',"links":[{links}]'
    if span.error:
        optional += f',"status":{{"code":{_STATUS_ERROR},"message":{_string(span.error)}}}'
    return (
        f'{{"traceId":"{span.context.trace_id}","spanId":"{span.context.span_id}",'
        f'"name":{_string(span.name)},"kind":{span.kind:d},'
        f'"startTimeUnixNano":"{span.start_ns}","endTimeUnixNano":"{span.end_ns}",'
        f'"attributes":[{_attributes(span.attributes)}]{optional}}}'
    )


def _attributes(attributes: Mapping[str, Attribute]) -> str:
    # The two most frequent types are inlined, because a run has millions of attributes.
    return ",".join(
        [
            f'{{"key":"{key}","value":{{"intValue":"{value}"}}}}'
            if type(value) is int
            else f'{{"key":"{key}","value":{{"stringValue":{_string(value)}}}}}'
            if type(value) is str
            else f'{{"key":"{key}","value":{_value(value)}}}'
            for key, value in attributes.items()
        ]
    )


def _value(value: Attribute) -> str:
    # isinstance, because strings and numbers may be of subclasses, such as enums.
    if isinstance(value, str):
        return f'{{"stringValue":{_string(value)}}}'
    if isinstance(value, bool):
        return f'{{"boolValue":{str(value).lower()}}}'
    if isinstance(value, int):
        return f'{{"intValue":"{value}"}}'
    if isinstance(value, float):
        return f'{{"doubleValue":{orjson.dumps(value).decode()}}}'
    listed = ",".join(f'{{"stringValue":{_string(text)}}}' for text in value)
    return f'{{"arrayValue":{{"values":[{listed}]}}}}'


@lru_cache(maxsize=1 << 14)
def _string(text: str) -> str:
    return orjson.dumps(text).decode()
