"""The metrics over HTTP, for a Prometheus server to scrape: GET /metrics and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_LINES_MAX = 100
_DEADLINE_S = 5.0
_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def serve_metrics(address: str, text: Callable[[], str]) -> asyncio.Server:
    """Listen on `address` (host:port) and answer each scrape with `text()`."""
    host, _, port = address.rpartition(":")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = await asyncio.wait_for(_request_line(reader), _DEADLINE_S)
            writer.write(_response(asked, text))
            await writer.drain()
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            pass  # a scraper that went away, or no HTTP: there is nobody to answer
        finally:
            writer.close()

    return await asyncio.start_server(answer, host.strip("[]"), int(port))


async def _request_line(reader: asyncio.StreamReader) -> bytes:
    """Return the first line of a request whose headers have been read to their end."""
    first = await reader.readline()
    for _ in range(_LINES_MAX):
        if (await reader.readline()).strip() == b"":
            return first
    raise ValueError("too many header lines")


def _response(asked: bytes, text: Callable[[], str]) -> bytes:
    method, path = (*asked.split(), b"", b"")[:2]
    if method != b"GET" or path.partition(b"?")[0] != b"/metrics":
        body, status = b"GET /metrics\n", "404 Not Found"
    else:
        body, status = text().encode(), "200 OK"
    head = f"HTTP/1.1 {status}\r\nContent-Type: {_TYPE}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body
