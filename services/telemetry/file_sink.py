"""Spans to a file of OTLP JSON, one TracesData a line, as OpenTelemetry's file exporter writes it.

Source: OpenTelemetry specification 1.40, protocol/file-exporter; opentelemetry-proto 1.5, JSON
Protobuf encoding (ids in hexadecimal, 64-bit integers as texts, enums as numbers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import orjson
from opentelemetry.sdk.resources import Resource

from services.telemetry.resource import SCOPE
from services.telemetry.span import Attribute, Delivery, Span

_SPANS_PER_LINE = 512
_KIND_INTERNAL = 1
_STATUS_ERROR = 2


class FileSpanSink:
    """Writes spans to a file, up to 512 a line; after an error it only counts them."""

    def __init__(self, path: Path, resource: Resource) -> None:
        """Create the file. Raises OSError."""
        self._path = path
        self._file: BinaryIO = path.open("wb")
        described = _attributes(cast("Mapping[str, Attribute]", resource.attributes))
        self._before = (
            f'{{"resourceSpans":[{{"resource":{{"attributes":[{described}]}},'
            f'"scopeSpans":[{{"scope":{{"name":{_string(SCOPE)}}},"spans":['
        )
        self._pending: list[Span] = []
        self._ended = self._delivered = 0
        self._problem = ""

    def end(self, span: Span) -> None:
        """Write a span that has ended, with the next full line."""
        self._ended += 1
        self._pending.append(span)
        if len(self._pending) >= _SPANS_PER_LINE:
            self._write()

    def close(self) -> Delivery:
        """Write the remaining spans and close the file."""
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
        text = ",".join(map(_span, spans))
        return f"{self._before}{text}]}}]}}]}}\n".encode()


def _span(span: Span) -> str:
    """Return a span as JSON; by f-strings, since a mapping for each takes twice as long."""
    optional = ""
    if span.parent_id:
        optional = f',"parentSpanId":"{span.parent_id}"'
    if span.links:
        links = ",".join([f'{{"traceId":"{each[0]}","spanId":"{each[1]}"}}' for each in span.links])
        optional += f',"links":[{links}]'
    if span.error:
        optional += f',"status":{{"code":{_STATUS_ERROR},"message":{_string(span.error)}}}'
    return (
        f'{{"traceId":"{span.context.trace_id}","spanId":"{span.context.span_id}",'
        f'"name":{_string(span.name)},"kind":{_KIND_INTERNAL},'
        f'"startTimeUnixNano":"{span.start_ns}","endTimeUnixNano":"{span.end_ns}",'
        f'"attributes":[{_attributes(span.attributes)}]{optional}}}'
    )


def _attributes(attributes: Mapping[str, Attribute]) -> str:
    # The two most frequent types are inline, since a run has millions of attributes.
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
    # Strings and numbers here are of subclasses, such as an enum's.
    if isinstance(value, str):
        return f'{{"stringValue":{_string(value)}}}'
    if isinstance(value, bool):
        return f'{{"boolValue":{str(value).lower()}}}'
    if isinstance(value, int):
        return f'{{"intValue":"{value}"}}'
    if isinstance(value, float):
        return f'{{"doubleValue":{orjson.dumps(value).decode()}}}'
    listed = ",".join(f'{{"stringValue":{_string(each)}}}' for each in value)
    return f'{{"arrayValue":{{"values":[{listed}]}}}}'


def _string(text: str) -> str:
    return orjson.dumps(text).decode()
