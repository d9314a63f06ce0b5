"""Sends the metrics of a service, as for a Prometheus scrape, to a collector over OTLP.

Metrics have one description (services/rpc/prometheus.py), which is translated here to OTLP. This
avoids the SDK's instruments, which lock and time each call. Counts are cumulative from the start of
the process.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource

from services.telemetry.collector import Collector, Protocol, TelemetryError
from services.telemetry.resource import resource, scope

if TYPE_CHECKING:
    from prometheus_client import Metric as Family
    from prometheus_client.samples import Sample

Collect = Callable[[], "Iterable[Family]"]
_INTERVAL_VARIABLE = "OTEL_METRIC_EXPORT_INTERVAL"
_INTERVAL_MS = 60_000
_CUMULATIVE = AggregationTemporality.CUMULATIVE
_UNITS = {"seconds": "s", "bytes": "By"}
"""Units of OTLP (UCUM) by the suffix of the Prometheus name."""
_NOT_KEPT: Any = None
"""An optional field of OTLP that the SDK's type requires."""


def metric_exporter(collector: Collector) -> MetricExporter:
    """Return an exporter that reads the process's own OTEL_EXPORTER_OTLP_ variables."""
    if collector.protocol is Protocol.HTTP:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415
            OTLPMetricExporter as OverHttp,
        )

        return OverHttp()
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (  # noqa: PLC0415
        OTLPMetricExporter as OverGrpc,
    )

    return OverGrpc()


def export_interval_s(environment: Mapping[str, str] = os.environ) -> float:
    """Return the time between two exports. Raises TelemetryError."""
    text = environment.get(_INTERVAL_VARIABLE, "").strip()
    if not text:
        return _INTERVAL_MS / 1000
    if not text.isdecimal() or int(text) == 0:
        raise TelemetryError(f"{_INTERVAL_VARIABLE}={text} is not a number of milliseconds")
    return int(text) / 1000


class MetricsPush:
    """Sends the metrics that `collect` describes periodically, and once more at the end.

    `collect` runs in the event loop, like the counting; sending runs in another thread.
    """

    def __init__(
        self, exporter: MetricExporter, collect: Collect, described: Resource, every_s: float
    ) -> None:
        self._exporter = exporter
        self._collect = collect
        self._resource = described
        self._every_s = every_s
        self._began_ns = time.time_ns()
        self._task = asyncio.ensure_future(self._run())

    @classmethod
    def start(
        cls, collector: Collector, collect: Collect, version: str, service: str
    ) -> MetricsPush:
        """Begin to send a service's metrics to a collector. Raises TelemetryError."""
        every_s = export_interval_s()
        return cls(metric_exporter(collector), collect, resource(version, service), every_s)

    async def close(self) -> None:
        """Send the final values."""
        self._task.cancel()
        await self._send()
        await asyncio.to_thread(self._exporter.shutdown)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            await self._send()

    async def _send(self) -> None:
        data = metrics_data(self._collect(), self._resource, self._began_ns, time.time_ns())
        await asyncio.to_thread(self._exporter.export, data)


def metrics_data(
    families: Iterable[Family], described: Resource, began_ns: int, now_ns: int
) -> MetricsData:
    """Translate metrics; counts began at `began_ns`, times are ns since the Unix epoch."""
    metrics = [
        Metric(
            name=_name(family),
            description=family.documentation,
            unit=_unit(family),
            data=_data(family, began_ns, now_ns),
        )
        for family in families
    ]
    of_scope = ScopeMetrics(scope=scope(described), metrics=metrics, schema_url="")
    of_resource = ResourceMetrics(resource=described, scope_metrics=[of_scope], schema_url="")
    return MetricsData(resource_metrics=[of_resource])


def _name(family: Family) -> str:
    """Return the name that Prometheus shows."""
    return f"{family.name}_total" if family.type == "counter" else family.name


def _unit(family: Family) -> str:
    """Return the unit by the suffix of a metric's name; "" for a metric without a unit."""
    return _UNITS.get(family.name.removesuffix("_total").rpartition("_")[2], "")


def _data(family: Family, began_ns: int, now_ns: int) -> Sum | Gauge | Histogram:
    if family.type == "histogram":
        points = [*_histogram_points(family, began_ns, now_ns)]
        return Histogram(data_points=points, aggregation_temporality=_CUMULATIVE)
    numbers = [
        NumberDataPoint(
            attributes=sample.labels,
            start_time_unix_nano=began_ns,
            time_unix_nano=now_ns,
            value=float(sample.value),
        )
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]
    if family.type == "gauge":
        return Gauge(data_points=numbers)
    return Sum(data_points=numbers, aggregation_temporality=_CUMULATIVE, is_monotonic=True)


def _histogram_points(family: Family, began_ns: int, now_ns: int) -> Iterator[HistogramDataPoint]:
    """Yield a point for each series, with counts between bounds in place of cumulative counts."""
    series: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in family.samples:
        labels = tuple((key, value) for key, value in sample.labels.items() if key != "le")
        series.setdefault(labels, []).append(sample)
    for labels, samples in series.items():
        buckets = [sample for sample in samples if sample.name.endswith("_bucket")]
        cumulative = [int(bucket.value) for bucket in buckets]
        bounds = [float(bucket.labels["le"]) for bucket in buckets]
        total = next(sample.value for sample in samples if sample.name.endswith("_sum"))
        yield HistogramDataPoint(
            attributes=dict(labels),
            start_time_unix_nano=began_ns,
            time_unix_nano=now_ns,
            count=cumulative[-1],
            sum=total,
            bucket_counts=[
                count - before for before, count in zip([0, *cumulative], cumulative, strict=False)
            ],
            explicit_bounds=[bound for bound in bounds if bound != math.inf],
            min=_NOT_KEPT,
            max=_NOT_KEPT,
        )
