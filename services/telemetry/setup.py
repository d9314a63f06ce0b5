"""Where spans go: to a file, or to the collector that the standard OTEL_ variables name.

The exporter is imported only where there is a collector: that takes a third of a service's start.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from services.telemetry.span import SinkPosition, SpanSink

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


class TelemetryError(ValueError):
    """OpenTelemetry variables with a value that is not supported; the text is for people."""


def open_span_sink(
    path: Path, version: str, environment: Mapping[str, str], position: SinkPosition | None = None
) -> SpanSink:
    """Return a sink to the collector that `environment` names, or else to a file at `path`.

    It continues at `position`, if that is set. Raises TelemetryError for a protocol other than
    gRPC, OSError where the file cannot be written, and ShortFileError where it ends before the
    position.
    """
    sink = collector_sink(environment, version, position=position)
    if sink is not None:
        return sink
    from services.telemetry.file_sink import FileSpanSink  # noqa: PLC0415 - loaded when needed
    from services.telemetry.resource import resource  # noqa: PLC0415 - loaded when needed

    return FileSpanSink(path, resource(version), position)


def collector_sink(
    environment: Mapping[str, str],
    version: str,
    service: str = "",
    position: SinkPosition | None = None,
) -> SpanSink | None:
    """Return a sink to the collector that `environment` names, None for none.

    `service` is the short name of the emitting service, "" for the replay. `position` is that of a
    former sink, whose counts are continued. The exporter reads the
    process's own OTEL_EXPORTER_OTLP_ variables (endpoint, headers, timeout, certificate,
    compression). Raises TelemetryError for a protocol other than gRPC.
    """
    endpoint = _collector_endpoint(environment)
    if not endpoint:
        return None
    from services.telemetry.otlp_sink import open_collector  # noqa: PLC0415 - loaded when needed
    from services.telemetry.resource import resource  # noqa: PLC0415 - loaded when needed

    return open_collector(endpoint, resource(version, service), position)


def _collector_endpoint(environment: Mapping[str, str]) -> str:
    """Return the collector that the variables name, "" for none.

    Raises TelemetryError for a protocol other than gRPC.
    """
    endpoint = _first(environment, _ENDPOINTS)
    protocol = _first(environment, _PROTOCOLS) or "grpc"
    if endpoint and protocol != "grpc":
        raise TelemetryError(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol} is not served: use grpc")
    return endpoint


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := environment.get(name, ""))), "")
