"""A service's log: lines for users, JSON lines for programs, and records for a collector.

A record that is written while a request is processed has the IDs of the request's trace.
"""

from __future__ import annotations

import logging
import sys
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import Enum

import orjson

from services.telemetry.span import SpanContext
from services.terminal import LogFormatter

LEVELS = ("debug", "info", "warning", "error")
NAME = "reprieve"
"""The parent of all our loggers."""
CURRENT: ContextVar[SpanContext | None] = ContextVar("current_span", default=None)
"""The span in which this task runs."""
_TEXT = "%(asctime)s %(levelname)s %(message)s"
_SEVERITIES = {"WARNING": "WARN", "CRITICAL": "FATAL"}


class LogFormat(Enum):
    """The format of a log on standard error."""

    TEXT = "text"
    JSON = "json"


def set_up_logs(level: str, form: LogFormat) -> None:
    """Write this process's log to standard error.

    Our own records are written from `level` on, those of libraries from warnings on.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form is LogFormat.JSON else LogFormatter(_TEXT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger(NAME).setLevel(level.upper())


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object in one line; its keys are those of OpenTelemetry's fields.

    Source: OpenTelemetry specification 1.40, logs/data-model.md.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(
                timespec="milliseconds"
            ),
            "severity": severity(record),
            "logger": record.name,
            "message": record.getMessage(),
        }
        context = CURRENT.get()
        if context is not None:
            line |= {"trace_id": context.trace_id, "span_id": context.span_id}
        if record.exc_info:
            line["exception"] = "".join(traceback.format_exception(*record.exc_info))
        return orjson.dumps(line, default=str).decode()


def severity(record: logging.LogRecord) -> str:
    """Return OpenTelemetry's name of a level."""
    return _SEVERITIES.get(record.levelname, record.levelname)
