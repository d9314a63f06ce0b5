"""Opens the sink of spans: a file, or the collector that the standard OTEL_ variables name.

An exporter is imported only if there is a collector: the import takes a third of a service's start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from services.growing_file import GrowingFile
from services.telemetry.collector import Signal, collector_of
from services.telemetry.span import SinkPosition, SpanSink


def open_span_sink(
    open_file: Callable[[], GrowingFile],
    version: str,
    environment: Mapping[str, str],
    position: SinkPosition | None = None,
) -> SpanSink:
    """Return a sink to the collector that `environment` names, or else to a file.

    `open_file` is called only for a file. The sink continues at `position`, if it is set. Raises
    TelemetryError for an unsupported protocol, and the errors of `open_file`.
    """
    collector = collector_of(Signal.TRACES, environment)
    from services.telemetry.resource import resource  # noqa: PLC0415 - loaded when needed

    if collector is not None:
        from services.telemetry.otlp_sink import open_collector  # noqa: PLC0415 - when needed

        return open_collector(collector, resource(version), position)
    from services.telemetry.file_sink import FileSpanSink  # noqa: PLC0415 - loaded when needed

    return FileSpanSink(open_file(), resource(version), position)


def service_sink(environment: Mapping[str, str], version: str, service: str) -> SpanSink | None:
    """Return a sink for the spans of a service; None without a collector.

    The sink never blocks its caller. Raises TelemetryError for an unsupported protocol.
    """
    collector = collector_of(Signal.TRACES, environment)
    if collector is None:
        return None
    from services.telemetry.otlp_sink import open_background  # noqa: PLC0415 - loaded when needed
    from services.telemetry.resource import resource  # noqa: PLC0415 - loaded when needed

    return open_background(collector, resource(version, service))
