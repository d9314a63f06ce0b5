"""Spans to a file of OTLP JSON, one TracesData a line, as OpenTelemetry's file exporter writes it.

Source: OpenTelemetry specification 1.40, protocol/file-exporter; opentelemetry-proto 1.5, JSON
Protobuf encoding (ids in hexadecimal, 64-bit integers as texts, enums as numbers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import orjson
from opentelemetry.sdk.resources import Resource

from services.telemetry.resource import SCOPE
from services.telemetry.span import Attribute, Delivery, Span

_SPANS_PER_LINE = 512
_KIND_INTERNAL = 1
_STATUS_ERROR = 2


class FileSpanSink:
    """Writes spans to a file, many a line; after an error it only counts."""

    def __init__(self, path: Path, resource: Resource) -> None:
        """Begin the file. Raises OSError."""
        self._path = path
        self._file: BinaryIO = path.open("wb")
        self._resource = {
            "attributes": _attributes(cast("Mapping[str, Attribute]", resource.attributes))
        }
        self._pending: list[Span] = []
        self._ended = self._delivered = 0
        self._problem = ""

    def end(self, span: Span) -> None:
        """Take a span that has ended."""
        self._ended += 1
        self._pending.append(span)
        if len(self._pending) >= _SPANS_PER_LINE:
            self._write()

    def close(self) -> Delivery:
        """Write what is left and end the file."""
        self._write()
        try:
            self._file.close()
        except OSError as error:
            self._fail(error)
        return Delivery(
            ended=self._ended,
            delivered=self._delivered,
            target=str(self._path),
            problem=self._problem,
        )

    def _write(self) -> None:
        spans, self._pending = self._pending, []
        if self._problem or not spans:
            return
        try:
            self._file.write(self._line(spans))
            self._file.flush()
        except OSError as error:
            self._fail(error)
        else:
            self._delivered += len(spans)

    def _fail(self, error: OSError) -> None:
        self._problem = self._problem or f"{self._path}: {error.strerror or error}"

    def _line(self, spans: Sequence[Span]) -> bytes:
        scope_spans = {"scope": {"name": SCOPE}, "spans": [_span(span) for span in spans]}
        data = {"resourceSpans": [{"resource": self._resource, "scopeSpans": [scope_spans]}]}
        return orjson.dumps(data, option=orjson.OPT_APPEND_NEWLINE)


def _span(span: Span) -> dict[str, Any]:
    mapping: dict[str, Any] = {
        "traceId": span.context.trace_id,
        "spanId": span.context.span_id,
        "name": span.name,
        "kind": _KIND_INTERNAL,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _attributes(span.attributes),
    }
    if span.parent_id:
        mapping["parentSpanId"] = span.parent_id
    if span.links:
        mapping["links"] = [
            {"traceId": trace_id, "spanId": span_id} for trace_id, span_id in span.links
        ]
    if span.error:
        mapping["status"] = {"code": _STATUS_ERROR, "message": span.error}
    return mapping


def _attributes(attributes: Mapping[str, Attribute]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"stringValue": value} if type(value) is str else _value(value)}
        for key, value in attributes.items()
    ]


def _value(value: Attribute) -> dict[str, Any]:
    match value:
        case str():
            return {"stringValue": value}
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
    return {"arrayValue": {"values": [{"stringValue": each} for each in value]}}
