"""Sends a service's log records to a collector over OTLP, by the SDK's batching processor."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable

from opentelemetry._logs import Logger, LogRecord, SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter

from services.telemetry.collector import Collector, Protocol
from services.telemetry.logs import CURRENT, NAME, severity
from services.telemetry.resource import resource

_NUMBERS = {
    "DEBUG": SeverityNumber.DEBUG,
    "INFO": SeverityNumber.INFO,
    "WARN": SeverityNumber.WARN,
    "ERROR": SeverityNumber.ERROR,
    "FATAL": SeverityNumber.FATAL,
}


def start(collector: Collector, version: str, service: str) -> Callable[[], None]:
    """Start the export of our log records; return a function that flushes and stops it."""
    provider = LoggerProvider(resource(version, service), shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(_exporter(collector)))
    handler = _Handler(provider.get_logger(NAME, version))
    logger = logging.getLogger(NAME)
    logger.addHandler(handler)

    def close() -> None:
        logger.removeHandler(handler)
        provider.shutdown()

    return close


def _exporter(collector: Collector) -> LogRecordExporter:
    if collector.protocol is Protocol.HTTP:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as OverHttp  # noqa: PLC0415

        return OverHttp()
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as OverGrpc  # noqa: PLC0415

    return OverGrpc()


class _Handler(logging.Handler):
    """Passes records to the SDK, whose own handler is deprecated and supports only SDK spans."""

    def __init__(self, logger: Logger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        context = CURRENT.get()
        name = severity(record)
        attributes = {"logger.name": record.name}
        if record.exc_info and record.exc_info[0] is not None:
            attributes["exception.type"] = record.exc_info[0].__name__
            attributes["exception.message"] = str(record.exc_info[1])
            attributes["exception.stacktrace"] = "".join(
                traceback.format_exception(*record.exc_info)
            )
        self._logger.emit(
            LogRecord(
                timestamp=int(record.created * 1e9),
                observed_timestamp=time.time_ns(),
                trace_id=int(context.trace_id, 16) if context else None,
                span_id=int(context.span_id, 16) if context else None,
                severity_text=name,
                severity_number=_NUMBERS.get(name, SeverityNumber.INFO),
                body=record.getMessage(),
                attributes=attributes,
            )
        )
