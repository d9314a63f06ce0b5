"""Starts the receiver and reads what it has received."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.languages.programs import installed, needs

HERE = Path(__file__).parent
_WITHIN_S = 30


@dataclass(frozen=True, slots=True)
class Span:
    """A span as it arrived; `links` are pairs of ids."""

    resource: Mapping[str, Any]
    scope: Mapping[str, str]
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: Mapping[str, Any]
    links: tuple[tuple[str, str], ...]
    status: Mapping[str, Any]
    start_ns: int
    end_ns: int

    @property
    def service(self) -> str:
        """Return the name of the service that sent it."""
        name: str = self.resource["service.name"]
        return name


class Receiver:
    """A receiver that runs; `endpoints` are its addresses by OTEL_EXPORTER_OTLP_PROTOCOL."""

    def __init__(self, lines: Path, addresses: Mapping[str, str]) -> None:
        self._lines = lines
        self.endpoints = {"grpc": addresses["grpc"], "http/protobuf": addresses["http"]}

    def environment(self, protocol: str) -> dict[str, str]:
        """Return the variables that make a process send everything here."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoints[protocol],
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        }

    def spans(self) -> list[Span]:
        """Return the spans that have arrived."""
        return [
            Span(
                resource=part["resource"]["attributes"],
                scope=scope["scope"],
                name=span["name"],
                kind=span["kind"],
                trace_id=span["traceId"],
                span_id=span["spanId"],
                parent_id=span.get("parentSpanId") or "",
                attributes=span["attributes"],
                links=tuple((link["traceId"], link["spanId"]) for link in span.get("links", ())),
                status=span.get("status") or {},
                start_ns=int(span["startTimeUnixNano"]),
                end_ns=int(span["endTimeUnixNano"]),
            )
            for part in self._parts("resourceSpans")
            for scope in part["scopeSpans"]
            for span in scope["spans"]
        ]

    def metrics(self) -> dict[str, dict[str, Mapping[str, Any]]]:
        """Return the metrics that arrived last, by service and name."""
        found: dict[str, dict[str, Mapping[str, Any]]] = {}
        for part in self._parts("resourceMetrics"):
            of_service = found.setdefault(part["resource"]["attributes"]["service.name"], {})
            for scope in part["scopeMetrics"]:
                of_service.update({metric["name"]: metric for metric in scope["metrics"]})
        return found

    def logs(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the log records that have arrived, each with its service's name."""
        return [
            (part["resource"]["attributes"]["service.name"], record)
            for part in self._parts("resourceLogs")
            for scope in part["scopeLogs"]
            for record in scope["logRecords"]
        ]

    def _parts(self, key: str) -> Iterator[Any]:
        """Yield the resources' parts of all requests of a signal."""
        for request in whole_lines(self._lines):
            yield from request.get(key, ())


def whole_lines(path: Path) -> list[Any]:
    """Return the JSON of each line that has its end."""
    return [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]


def installed_receiver(folder: Path) -> Path:
    """Install the receiver within `folder` and return its program; skip where npm cannot."""
    needs("node", "npm")
    copy = folder / "otlp"
    shutil.copytree(
        HERE, copy, ignore=shutil.ignore_patterns("node_modules", "*.py", "__pycache__")
    )
    installed(copy)
    return copy / "receiver.js"


def _found(program: str) -> str:
    path = shutil.which(program)
    assert path is not None
    return path


@contextlib.contextmanager
def running_receiver(program: Path, folder: Path, host: str = "127.0.0.1") -> Iterator[Receiver]:
    """Run the receiver on free ports of a host. Raises ConnectionError where it does not start."""
    lines = folder / "received.jsonl"
    with lines.open("wb") as out:
        command = [_found("node"), str(program), host]
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + _WITHIN_S
        while not whole_lines(lines):
            if process.poll() is not None or time.monotonic() > deadline:
                assert process.stderr is not None
                raise ConnectionError(process.stderr.read().decode())
            time.sleep(0.02)
        yield Receiver(lines, whole_lines(lines)[0])
    finally:
        process.terminate()
        process.communicate(timeout=_WITHIN_S)
