"""An OpenTelemetry collector that keeps what it is sent, over gRPC or HTTP."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import grpc
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

_TRACES = trace_service_pb2.ExportTraceServiceRequest
_METRICS = metrics_service_pb2.ExportMetricsServiceRequest
_LOGS = logs_service_pb2.ExportLogsServiceRequest


class Collector:
    """Takes everything; `endpoint` is what OTEL_EXPORTER_OTLP_ENDPOINT names."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.requests: list[Message] = []

    def spans(self) -> list[tuple[str, Span]]:
        """Return all spans, each with its service's name."""
        return [
            (_service(of_resource.resource.attributes), span)
            for request in self.requests
            if isinstance(request, _TRACES)
            for of_resource in request.resource_spans
            for scope in of_resource.scope_spans
            for span in scope.spans
        ]

    def metrics(self) -> list[tuple[str, Metric]]:
        """Return all metrics, each with its service's name."""
        return [
            (_service(of_resource.resource.attributes), metric)
            for request in self.requests
            if isinstance(request, _METRICS)
            for of_resource in request.resource_metrics
            for scope in of_resource.scope_metrics
            for metric in scope.metrics
        ]

    def logs(self) -> list[tuple[str, LogRecord]]:
        """Return all log records, each with its service's name."""
        return [
            (_service(of_resource.resource.attributes), record)
            for request in self.requests
            if isinstance(request, _LOGS)
            for of_resource in request.resource_logs
            for scope in of_resource.scope_logs
            for record in scope.log_records
        ]


def _service(attributes: Any) -> str:
    found: list[KeyValue] = [
        attribute for attribute in attributes if attribute.key == "service.name"
    ]
    return found[0].value.string_value


@contextmanager
def running_collector() -> Iterator[Collector]:
    """Run a collector of OTLP over gRPC on a free port."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    collector = Collector()
    adders: tuple[tuple[Any, type[Message]], ...] = (
        (
            trace_service_pb2_grpc.add_TraceServiceServicer_to_server,
            trace_service_pb2.ExportTraceServiceResponse,
        ),
        (
            metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server,
            metrics_service_pb2.ExportMetricsServiceResponse,
        ),
        (
            logs_service_pb2_grpc.add_LogsServiceServicer_to_server,
            logs_service_pb2.ExportLogsServiceResponse,
        ),
    )
    for add, response in adders:
        add(_Servicer(collector, response), server)
    collector.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield collector
    server.stop(None)


class _Servicer:
    def __init__(self, collector: Collector, response: Callable[[], Message]) -> None:
        self._collector = collector
        self._response = response

    def Export(self, request: Message, context: grpc.ServicerContext) -> Message:  # noqa: N802
        """Keep a request."""
        del context
        self._collector.requests.append(request)
        return self._response()


@contextmanager
def running_http_collector() -> Iterator[Collector]:
    """Run a collector of OTLP over HTTP on a free port."""
    collector = Collector()
    kinds: dict[str, Any] = {"/v1/traces": _TRACES, "/v1/metrics": _METRICS, "/v1/logs": _LOGS}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.requests.append(kinds[self.path].FromString(body))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield collector
    server.shutdown()
    thread.join()
    server.server_close()
