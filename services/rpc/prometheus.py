"""Prometheus' text format, version 0.0.4, as lines, and over HTTP: GET /metrics, nothing else."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate

Labels = tuple[tuple[str, str], ...]
_LINES_MAX = 100
_DEADLINE_S = 5.0
_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class PrometheusHistogram:
    """Counts of observed values by upper bounds, and their sum."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Observe `value`, `count` times."""
        self._counts[bisect_left(self._bounds, value)] += count
        self._sum += value * count

    def lines(self, name: str, labels: Labels = ()) -> Iterator[str]:
        """Yield the series of the histogram."""
        bounds = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        for bound, count in zip(bounds, accumulate(self._counts), strict=True):
            yield line(f"{name}_bucket", (*labels, ("le", bound)), count)
        yield line(f"{name}_sum", labels, self._sum)
        yield line(f"{name}_count", labels, sum(self._counts))


def header(name: str, kind: str, help_text: str) -> Iterator[str]:
    """Yield the HELP and TYPE lines of a metric."""
    yield f"# HELP {name} {help_text}"
    yield f"# TYPE {name} {kind}"


def line(name: str, labels: Labels, value: float) -> str:
    """Return one sample."""
    pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    return f"{name}{{{pairs}}} {value:g}" if pairs else f"{name} {value:g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


async def serve_metrics(address: str, text: Callable[[], str]) -> asyncio.Server:
    """Listen on `address` (host:port) and answer each scrape with `text()`."""
    host, _, port = address.rpartition(":")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request_line = await asyncio.wait_for(_request_line(reader), _DEADLINE_S)
            writer.write(_response(request_line, text))
            await writer.drain()
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            pass  # the scraper has disconnected, or does not speak HTTP
        finally:
            writer.close()

    return await asyncio.start_server(answer, host.strip("[]"), int(port))


async def _request_line(reader: asyncio.StreamReader) -> bytes:
    """Return the first line of a request, after reading its headers."""
    first = await reader.readline()
    for _ in range(_LINES_MAX):
        if (await reader.readline()).strip() == b"":
            return first
    raise ValueError("too many header lines")


def _response(request_line: bytes, text: Callable[[], str]) -> bytes:
    method, path = (*request_line.split(), b"", b"")[:2]
    if method != b"GET" or path.partition(b"?")[0] != b"/metrics":
        body, status = b"GET /metrics\n", "404 Not Found"
    else:
        body, status = text().encode(), "200 OK"
    head = f"HTTP/1.1 {status}\r\nContent-Type: {_TYPE}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body
