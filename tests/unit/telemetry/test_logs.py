"""A service's log: JSON lines with the ids of a trace, and records for a collector."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from services.telemetry import logs_push
from services.telemetry.collector import Signal, collector_of
from services.telemetry.logs import CURRENT, LogFormat, set_up_logs
from services.telemetry.service_spans import ServiceSpans
from tests.otlp_collector import running_collector, running_http_collector

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
LOG = logging.getLogger("reprieve.test")


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """Leave the process's log as it was."""
    root, own = logging.getLogger(), logging.getLogger("reprieve")
    before = (root.handlers[:], root.level, own.level)
    yield
    root.handlers[:], root.level = before[0], before[1]
    own.setLevel(before[2])


def written(monkeypatch: pytest.MonkeyPatch, level: str, form: LogFormat) -> list[str]:
    """Return the lines of a log with a record of each level."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    set_up_logs(level, form)
    LOG.debug("first")
    LOG.info("a name with\x1b[31m an escape")
    with ServiceSpans(marks_logs=True).span("x", f"00-{TRACE}-{SPAN}-01", {}):
        LOG.warning("in a request of %s", "mine")
    try:
        raise ValueError("broken")
    except ValueError:
        LOG.exception("it failed")
    return out.getvalue().splitlines()


def test_json_lines_have_levels_and_the_ids_of_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """One object in a line, with any characters in the text."""
    lines = [json.loads(entry) for entry in written(monkeypatch, "info", LogFormat.JSON)]
    assert [line["severity"] for line in lines] == ["INFO", "WARN", "ERROR"]
    assert lines[0]["message"] == "a name with\x1b[31m an escape"
    assert "trace_id" not in lines[0]
    assert (lines[1]["trace_id"], lines[1]["span_id"]) == (TRACE, SPAN)
    assert lines[2]["exception"].endswith("ValueError: broken\n")
    assert CURRENT.get() is None


@pytest.mark.parametrize(("level", "count"), [("debug", 4), ("info", 3), ("warning", 2)])
def test_records_below_the_level_are_not_logged(
    monkeypatch: pytest.MonkeyPatch, level: str, count: int
) -> None:
    """Of our own records."""
    assert len(written(monkeypatch, level, LogFormat.JSON)) == count


def test_lines_for_people_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """With time and level."""
    lines = written(monkeypatch, "info", LogFormat.TEXT)
    assert lines[0].endswith(" INFO a name with\\x1b[31m an escape")
    assert lines[-1] == "ValueError: broken"


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_collector_gets_the_records(monkeypatch: pytest.MonkeyPatch, protocol: str) -> None:
    """With severity, body, exception and the trace of the request."""
    running = running_collector if protocol == "grpc" else running_http_collector
    with running() as collector:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        set_up_logs("info", LogFormat.TEXT)
        target = collector_of(Signal.LOGS, variables)
        assert target is not None
        close = logs_push.start(target, "0.1.0", "queue")
        LOG.debug("not this")
        with ServiceSpans(marks_logs=True).span("x", f"00-{TRACE}-{SPAN}-01", {}):
            LOG.warning("in a request of %s", "mine")
        close()
        LOG.warning("after the end")
        ((service, record),) = collector.logs()
    assert (service, record.body.string_value) == ("reprieve-queue", "in a request of mine")
    assert (record.trace_id.hex(), record.span_id.hex()) == (TRACE, SPAN)
    assert (record.severity_text, record.severity_number) == ("WARN", 13)
