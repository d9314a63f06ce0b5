"""Reads the address of the collector from the standard OTEL_ variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class TelemetryError(ValueError):
    """OpenTelemetry variables with a value that is not supported; the text is for users."""


class Signal(Enum):
    """A kind of exported telemetry; the value is its part of the variables' names."""

    TRACES = "TRACES"
    METRICS = "METRICS"
    LOGS = "LOGS"


class Protocol(Enum):
    """The transport of OTLP."""

    GRPC = "grpc"
    HTTP = "http/protobuf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """The collector of a signal; exporters read the other OTEL_ variables themselves."""

    endpoint: str
    protocol: Protocol


def collector_of(signal: Signal, environment: Mapping[str, str]) -> Collector | None:
    """Return the collector that the variables name for a signal; None if they name none.

    OTEL_METRICS_EXPORTER, OTEL_LOGS_EXPORTER and OTEL_SDK_DISABLED turn metrics and logs off;
    --spans controls spans. Raises TelemetryError for an unsupported protocol.
    Source: OpenTelemetry specification 1.40, protocol/exporter and sdk-environment-variables.
    """
    names = (f"{signal.value}_", "")
    endpoint = _first(environment, [f"OTEL_EXPORTER_OTLP_{name}ENDPOINT" for name in names])
    if not endpoint or (signal is not Signal.TRACES and _is_off(signal, environment)):
        return None
    asked = _first(environment, [f"OTEL_EXPORTER_OTLP_{name}PROTOCOL" for name in names])
    try:
        protocol = Protocol(asked or Protocol.GRPC.value)
    except ValueError:
        served = " or ".join(protocol.value for protocol in Protocol)
        raise TelemetryError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL={asked} is not served: use {served}"
        ) from None
    return Collector(endpoint=endpoint, protocol=protocol)


def _is_off(signal: Signal, environment: Mapping[str, str]) -> bool:
    exporter = environment.get(f"OTEL_{signal.value}_EXPORTER", "") or "otlp"
    disabled = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return disabled or "otlp" not in [name.strip() for name in exporter.split(",")]


def _first(environment: Mapping[str, str], names: list[str]) -> str:
    return next((value for name in names if (value := environment.get(name, "").strip())), "")
