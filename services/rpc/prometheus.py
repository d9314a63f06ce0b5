"""Metrics for Prometheus over HTTP, written by prometheus-client.

A process counts in plain mappings and `HistogramCounts`, and describes them as metrics only when it
is scraped, so requests spend no time on metrics. prometheus-client is imported at the first scrape,
because most processes serve no metrics. The HTTP server supports only GET /metrics, with a deadline
for each request.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, repeat
from operator import mul
from typing import TYPE_CHECKING, TypeVar

from services.rpc.listening import host_and_port

if TYPE_CHECKING:
    from prometheus_client import Metric

Labels = tuple[str, ...]
"""Values of the labels of a series, in the order of the metric's label names."""
_Series = TypeVar("_Series", bound=Labels)
Collect = Callable[[], "Iterable[Metric]"]
_LINES_MAX = 100
_DEADLINE_S = 5.0


class HistogramCounts:
    """Counts of observed values by upper bounds, and their sum."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Observe `value`, `count` times."""
        self._counts[bisect_left(self._bounds, value)] += count
        self._sum += value * count

    def buckets(self) -> list[tuple[str, float]]:
        """Return the cumulative counts by upper bound."""
        bounds = [*(repr(float(bound)).removesuffix(".0") for bound in self._bounds), "+Inf"]
        return [*zip(bounds, accumulate(self._counts), strict=True)]

    @property
    def sum(self) -> float:
        """The sum of the observed values."""
        return self._sum


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Return `count` upper bounds: `start`, and each next one multiplied by `factor`.

    Source: prometheus/client_golang, ExponentialBuckets.
    """
    return (*accumulate(repeat(factor, count - 1), mul, initial=start),)


def counter(name: str, text: str, labels: Labels, values: Mapping[_Series, float]) -> Metric:
    """Describe a counter.

    The formats recognise counters by the suffix _total. A counter without it gets no type, as
    client_golang does in OpenMetrics.
    """
    from prometheus_client.metrics_core import CounterMetricFamily, UnknownMetricFamily  # noqa: PLC0415 - when scraped

    family: CounterMetricFamily | UnknownMetricFamily
    if name.endswith("_total"):
        family = CounterMetricFamily(name, text, labels=labels)
    else:
        family = UnknownMetricFamily(name, text, labels=labels)
    for series, value in sorted(values.items()):
        family.add_metric(series, value)
    return family


def gauge(name: str, text: str, labels: Labels, values: Mapping[_Series, float]) -> Metric:
    """Describe a gauge."""
    from prometheus_client.metrics_core import GaugeMetricFamily  # noqa: PLC0415 - when scraped

    family = GaugeMetricFamily(name, text, labels=labels)
    for series, value in values.items():
        family.add_metric(series, value)
    return family


def histogram(
    name: str, text: str, labels: Labels, counts: Mapping[_Series, HistogramCounts]
) -> Metric:
    """Describe a histogram."""
    from prometheus_client.metrics_core import HistogramMetricFamily  # noqa: PLC0415 - when scraped

    family = HistogramMetricFamily(name, text, labels=labels)
    for series, observed in sorted(counts.items()):
        family.add_metric(series, buckets=observed.buckets(), sum_value=observed.sum)
    return family


def process() -> Iterator[Metric]:
    """Describe this process: memory, processor time, open files, its start."""
    from prometheus_client.process_collector import ProcessCollector  # noqa: PLC0415 - when scraped

    yield from ProcessCollector(registry=None).collect()


class _Scrape:
    """A registry for one scrape, in the form that prometheus-client expects."""

    def __init__(self, collect: Collect) -> None:
        self.collect = collect


def exposition(collect: Collect, accept: str = "") -> tuple[bytes, str]:
    """Return metrics and content type, in the format that the header `accept` prefers."""
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415 - when scraped

    encode, content_type = choose_encoder(accept)
    return encode(_Scrape(collect)), content_type


async def serve_metrics(address: str, collect: Collect) -> asyncio.Server:
    """Listen on `address` (host:port), and answer each scrape with the metrics from `collect`."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request, accept = await asyncio.wait_for(_request(reader), _DEADLINE_S)
            writer.write(_response(request, accept, collect))
            await asyncio.wait_for(writer.drain(), _DEADLINE_S)
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            pass  # the scraper has disconnected, stalls, or does not speak HTTP
        finally:
            writer.close()

    return await asyncio.start_server(answer, *host_and_port("--metrics", address))


async def _request(reader: asyncio.StreamReader) -> tuple[bytes, str]:
    """Return the first line of a request and its header Accept."""
    first, accept = await reader.readline(), ""
    for _ in range(_LINES_MAX):
        header = (await reader.readline()).strip()
        if not header:
            return first, accept
        name, _, value = header.partition(b":")
        if name.lower() == b"accept":
            accept = value.decode("latin-1").strip()
    raise ValueError("too many header lines")


def _response(request_line: bytes, accept: str, collect: Collect) -> bytes:
    method, path = (*request_line.split(), b"", b"")[:2]
    if method != b"GET" or path.partition(b"?")[0] != b"/metrics":
        body, status, content_type = b"GET /metrics\n", "404 Not Found", "text/plain"
    else:
        (body, content_type), status = exposition(collect, accept), "200 OK"
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body
