"""A service's metrics over OTLP: the same values that a scrape shows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import pytest
from prometheus_client import Metric as Family

from services.rpc.prometheus import HistogramCounts, counter, gauge, histogram
from services.telemetry.collector import Collector as Target
from services.telemetry.collector import Protocol, Signal, TelemetryError, collector_of
from services.telemetry.metrics_push import MetricsPush, export_interval_s
from tests.otlp_collector import Collector, running_collector, running_http_collector


def described() -> Iterable[Family]:
    """Return a metric of each kind."""
    counts = HistogramCounts((0.5, 1.0))
    for value in (0.1, 0.5, 0.7, 5.0):
        counts.observe(value)
    yield counter("x_attempts_total", "Attempts.", ("result",), {("good",): 3, ("bad",): 1})
    yield counter("kubelet_evictions", "Evictions.", ("signal",), {("memory",): 2})
    yield gauge("x_pending", "Pending.", (), {(): 7})
    yield histogram("x_seconds", "Time.", ("point",), {("Filter",): counts})
    yield counter("x_cpu_seconds_total", "Time.", (), {(): 2.5})
    yield gauge("x_bytes", "Memory.", (), {(): 5})


def pushed(target: Collector, protocol: Protocol) -> None:
    """Send the metrics once, as a service does at its end."""

    async def send() -> None:
        aim = Target(endpoint=target.endpoint, protocol=protocol)
        push = MetricsPush.start(aim, described, "0.1.0", "queue")
        await push.close()

    asyncio.run(send())


@pytest.mark.parametrize("protocol", list(Protocol))
def test_values_arrive_as_they_were_counted(
    monkeypatch: pytest.MonkeyPatch, protocol: Protocol
) -> None:
    """Counters cumulative and monotonic, gauges as they are, buckets between two bounds."""
    began_ns = time.time_ns()
    running = running_collector if protocol is Protocol.GRPC else running_http_collector
    with running() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        pushed(collector, protocol)
        found = {metric.name: metric for _, metric in collector.metrics()}
        assert {service for service, _ in collector.metrics()} == {"reprieve-queue"}
    assert {name: metric.unit for name, metric in found.items()} == {
        "x_attempts_total": "",
        "kubelet_evictions": "",
        "x_pending": "",
        "x_seconds": "s",
        "x_cpu_seconds_total": "s",
        "x_bytes": "By",
    }
    for name in ("x_attempts_total", "kubelet_evictions"):
        assert (found[name].sum.is_monotonic, found[name].sum.aggregation_temporality) == (True, 2)
    attempts = {
        point.attributes[0].value.string_value: point.as_double
        for point in found["x_attempts_total"].sum.data_points
    }
    assert attempts == {"good": 3, "bad": 1}
    (pending,) = found["x_pending"].gauge.data_points
    assert pending.as_double == 7
    (seconds,) = found["x_seconds"].histogram.data_points
    assert list(seconds.explicit_bounds) == [0.5, 1.0]
    assert (list(seconds.bucket_counts), seconds.count) == ([2, 1, 1], 4)
    assert seconds.sum == pytest.approx(6.3)
    assert not seconds.HasField("min")
    assert began_ns <= seconds.start_time_unix_nano <= seconds.time_unix_nano


@pytest.mark.parametrize(
    ("variables", "sends"),
    [
        ({}, True),
        ({"OTEL_METRICS_EXPORTER": "none"}, False),
        ({"OTEL_METRICS_EXPORTER": "console, otlp"}, True),
        ({"OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_LOGS_EXPORTER": "none"}, True),
    ],
)
def test_the_variables_turn_metrics_off(variables: dict[str, str], *, sends: bool) -> None:
    """As the specification has them; spans follow --spans."""
    named = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", **variables}
    assert (collector_of(Signal.METRICS, named) is not None) == sends
    assert collector_of(Signal.TRACES, named) is not None


def test_each_signal_can_have_a_separate_endpoint_and_protocol() -> None:
    """They come before those of all signals."""
    named = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://all:4317",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://metrics:4318/v1/metrics",
        "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf",
    }
    metrics = Target(endpoint="http://metrics:4318/v1/metrics", protocol=Protocol.HTTP)
    assert collector_of(Signal.METRICS, named) == metrics
    assert collector_of(Signal.LOGS, named) == Target(
        endpoint="http://all:4317", protocol=Protocol.GRPC
    )


@pytest.mark.parametrize("text", ["soon", "0", "-5", "1.5"])
def test_an_interval_that_is_no_number_of_milliseconds_is_refused(text: str) -> None:
    """By name."""
    with pytest.raises(TelemetryError, match="OTEL_METRIC_EXPORT_INTERVAL"):
        export_interval_s({"OTEL_METRIC_EXPORT_INTERVAL": text})
    assert export_interval_s({}) == 60
