"""Where spans go: OTLP JSON lines, a collector, and the report of those that were not delivered."""

from __future__ import annotations

import errno
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK, TracesData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from services.growing_file import GrowingFile
from services.telemetry import otlp_sink
from services.telemetry.collector import TelemetryError
from services.telemetry.file_sink import FileSpanSink
from services.telemetry.otlp_sink import BackgroundSink, OtlpSpanSink
from services.telemetry.resource import resource
from services.telemetry.setup import open_span_sink
from services.telemetry.span import Span, SpanContext, SpanKind
from tests.growing import growing
from tests.otlp_collector import Collector, running_collector, running_http_collector

_TRACE = "0af7651916cd43dd8448eb211c80319c"


def _span(number: int = 1, **changes: Any) -> Span:
    span = Span(
        name="schedulingCycle",
        context=SpanContext(_TRACE, f"{number:016x}"),
        parent_id="00000000000000ff",
        start_ns=1_571_904_000_000_000_001,
        end_ns=1_571_904_000_000_000_002,
        attributes={
            "text": 'a "quoted" ü',
            "number": 2**40,
            "flag": True,
            "share": 0.5,
            "list": ["a", "b"],
        },
        links=[SpanContext(_TRACE, "00000000000000aa")],
        error="refused",
    )
    return span._replace(**changes)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def test_a_line_is_a_traces_data_in_otlp_s_json(tmp_path: Path) -> None:
    """Another program's parser reads it; ids are hexadecimal there."""
    sink = FileSpanSink(growing(tmp_path / "spans.jsonl"), resource("0.1.0"))
    sink.end(_span())
    delivery = sink.close()
    assert (delivery.ended, delivery.delivered, delivery.lost) == (1, 1, 0)
    (line,) = _lines(tmp_path / "spans.jsonl")
    (resource_spans,) = line["resourceSpans"]
    (span,) = resource_spans["scopeSpans"][0]["spans"]
    assert (span["traceId"], span["startTimeUnixNano"]) == (_TRACE, "1571904000000000001")
    for holder in (span, *span["links"]):
        for key in ("traceId", "spanId", "parentSpanId"):
            holder.pop(key, None)  # bytes are base64 in protobuf's own JSON, and not in OTLP's
    message = json_format.ParseDict(line, TracesData())
    attributes = message.resource_spans[0].scope_spans[0].spans[0].attributes
    values = {attribute.key: attribute.value for attribute in attributes}
    assert values["text"].string_value == 'a "quoted" ü'
    assert values["number"].int_value == 2**40
    assert values["flag"].bool_value
    assert values["share"].double_value == 0.5
    assert [value.string_value for value in values["list"].array_value.values] == ["a", "b"]
    assert message.resource_spans[0].scope_spans[0].spans[0].status.message == "refused"


def test_a_span_has_its_kind_and_its_scope_a_version(tmp_path: Path, collector: Collector) -> None:
    """In the file as at a collector, where a server's parent is a remote one."""
    spans = [_span(1), _span(2, kind=SpanKind.SERVER)]
    file = FileSpanSink(growing(tmp_path / "spans.jsonl"), resource("0.1.0"))
    sink = open_span_sink(lambda: growing(tmp_path / "none"), "0.1.0", os.environ)
    for span in spans:
        file.end(span)
        sink.end(span)
    file.close()
    sink.close()
    (line,) = _lines(tmp_path / "spans.jsonl")
    (written,) = line["resourceSpans"][0]["scopeSpans"]
    assert [span["kind"] for span in written["spans"]] == [1, 2]
    assert written["scope"] == {"name": "reprieve", "version": "0.1.0"}
    (request,) = collector.requests
    assert isinstance(request, ExportTraceServiceRequest)
    (sent,) = request.resource_spans[0].scope_spans
    assert [span.kind for span in sent.spans] == [1, 2]
    assert [bool(span.flags & SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK) for span in sent.spans] == [
        False,
        True,
    ]
    assert (sent.scope.name, sent.scope.version) == ("reprieve", "0.1.0")


def test_spans_are_written_many_a_line(tmp_path: Path) -> None:
    """None is lost between two lines."""
    sink = FileSpanSink(growing(tmp_path / "spans.jsonl"), resource("0.1.0"))
    for number in range(1, 1201):
        sink.end(_span(number))
    assert sink.close().delivered == 1200
    lines = _lines(tmp_path / "spans.jsonl")
    counts = [len(line["resourceSpans"][0]["scopeSpans"][0]["spans"]) for line in lines]
    assert (len(counts), sum(counts)) == (3, 1200)


def test_a_full_disk_is_a_loss_that_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run continues, and its spans are counted as lost."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    sink = FileSpanSink(growing(tmp_path / "spans.jsonl"), resource("0.1.0"))
    monkeypatch.setattr(GrowingFile, "append", full)
    for number in range(1, 601):
        sink.end(_span(number))
    delivery = sink.close()
    assert (delivery.ended, delivery.lost) == (600, 600)
    assert "No space left" in delivery.problem


class _Exporter(SpanExporter):
    """Takes `good` batches and refuses the rest."""

    def __init__(self, good: int) -> None:
        self.good = good
        self.batches: list[int] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Count a batch."""
        self.batches.append(len(spans))
        taken = len(self.batches) <= self.good
        return SpanExportResult.SUCCESS if taken else SpanExportResult.FAILURE


def test_no_batch_is_exported_after_a_refused_one() -> None:
    """The accepted spans are delivered; lost spans are reported."""
    exporter = _Exporter(good=1)
    sink = OtlpSpanSink(exporter, "collector:4317", resource("0.1.0"))
    for number in range(1, 2001):
        sink.end(_span(number))
    delivery = sink.close()
    assert exporter.batches == [512, 512]
    assert (delivery.ended, delivery.delivered) == (2000, 512)
    assert "collector:4317" in delivery.problem


def test_a_service_never_waits_for_its_collector() -> None:
    """A batch that is refused is lost and counted; later ones are sent."""
    exporter = _Exporter(good=0)
    sink = BackgroundSink(exporter, "collector:4317", resource("0.1.0"))
    for number in range(1, 600):
        sink.end(_span(number))
    while sum(exporter.batches) < 599:
        time.sleep(0.01)
    exporter.good = 99
    for number in range(600, 1000):
        sink.end(_span(number))
    delivery = sink.close()
    assert (delivery.ended, delivery.lost) == (999, 599)
    assert sum(exporter.batches) == 999
    assert "collector:4317" in delivery.problem


def test_spans_beyond_those_that_may_wait_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow collector costs no memory without end."""
    monkeypatch.setattr(otlp_sink, "_WAITING_MAX", 100)
    sink = BackgroundSink(_Exporter(good=9), "collector:4317", resource("0.1.0"))
    for number in range(1, 301):
        sink.end(_span(number))
    delivery = sink.close()
    assert (delivery.delivered, delivery.lost) == (100, 200)
    assert "slower" in delivery.problem


@pytest.fixture(params=["grpc", "http/protobuf"])
def collector(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Collector]:
    """Run a collector, and name it in the environment."""
    running = running_collector if request.param == "grpc" else running_http_collector
    with running() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", request.param)
        yield found


def test_a_collector_receives_every_span_unchanged(collector: Collector, tmp_path: Path) -> None:
    """Over OTLP, with ids, times, attributes, links and status."""
    sink = open_span_sink(lambda: growing(tmp_path / "spans.jsonl"), "0.1.0", os.environ)
    for number in range(1, 701):
        sink.end(_span(number))
    delivery = sink.close()
    assert (delivery.ended, delivery.delivered, delivery.problem) == (700, 700, "")
    spans = [span for _, span in collector.spans()]
    assert len(spans) == 700
    assert (spans[0].trace_id.hex(), spans[0].parent_span_id.hex()) == (_TRACE, f"{255:016x}")
    assert spans[0].end_time_unix_nano == 1_571_904_000_000_000_002
    assert spans[0].links[0].span_id.hex() == f"{0xAA:016x}"
    assert {attribute.key for attribute in spans[0].attributes} == {
        "text",
        "number",
        "flag",
        "share",
        "list",
    }
    assert not (tmp_path / "spans.jsonl").exists()


def test_without_a_collector_spans_go_to_the_file(tmp_path: Path) -> None:
    """That is the default."""
    open_span_sink(lambda: growing(tmp_path / "spans.jsonl"), "0.1.0", {}).close()
    assert (tmp_path / "spans.jsonl").exists()


def test_another_protocol_is_refused(tmp_path: Path) -> None:
    """Rather than sending spans that no server receives."""
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
    }
    with pytest.raises(TelemetryError, match="use grpc or http/protobuf"):
        open_span_sink(lambda: growing(tmp_path / "spans.jsonl"), "0.1.0", environment)


def test_the_environment_names_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """The standard variables override the defaults."""
    assert resource("0.1.0").attributes["service.name"] == "reprieve"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "nightly")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=platform")
    assert resource("0.1.0").attributes["service.name"] == "nightly"
    assert resource("0.1.0").attributes["team"] == "platform"


def test_a_resource_names_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes of a service can be distinguished; one process has one identity."""
    attributes = resource("0.1.0", "queue").attributes
    assert attributes["service.name"] == "reprieve-queue"
    assert attributes["service.instance.id"] == resource("0.1.0").attributes["service.instance.id"]
    assert uuid.UUID(str(attributes["service.instance.id"])).version == 4
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=queue-0")
    assert resource("0.1.0").attributes["service.instance.id"] == "queue-0"
