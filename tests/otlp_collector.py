"""An OpenTelemetry collector that keeps what it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Takes everything; `endpoint` is what OTEL_EXPORTER_OTLP_ENDPOINT names."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.requests: list[trace_service_pb2.ExportTraceServiceRequest] = []

    def Export(  # noqa: N802 - the RPC's name
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        """Keep a request."""
        del context
        self.requests.append(request)
        return trace_service_pb2.ExportTraceServiceResponse()

    def spans(self) -> list[tuple[str, Span]]:
        """Return all spans, each with its service's name."""
        found: list[tuple[str, Span]] = []
        for request in self.requests:
            for of_resource in request.resource_spans:
                names = [
                    each.value.string_value
                    for each in of_resource.resource.attributes
                    if each.key == "service.name"
                ]
                for scope in of_resource.scope_spans:
                    found += [(names[0], span) for span in scope.spans]
        return found


@contextmanager
def running_collector() -> Iterator[Collector]:
    """Run a collector on a free port."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    servicer = Collector()
    add: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
    add(servicer, server)
    servicer.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield servicer
    server.stop(None)
