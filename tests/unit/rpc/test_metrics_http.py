"""The metrics' port: one path, and nothing that a stranger sends harms it."""

from __future__ import annotations

import asyncio

import pytest

from services.rpc.prometheus import gauge, serve_metrics

UP = b"# HELP up \n# TYPE up gauge\nup 1.0\n"


@pytest.mark.parametrize(
    ("request_bytes", "status", "body"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"200 OK", UP),
        (b"GET /metrics?x=1 HTTP/1.1\r\n\r\n", b"200 OK", UP),
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found", b"GET /metrics\n"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"404 Not Found", b"GET /metrics\n"),
        (b"\r\n\r\n", b"404 Not Found", b"GET /metrics\n"),
        (b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", b"", b""),
    ],
    ids=["scrape", "query", "root", "post", "nothing", "endless"],
)
def test_a_scrape_is_answered_and_nothing_else(
    request_bytes: bytes, status: bytes, body: bytes
) -> None:
    """The response has its length and closes the connection."""
    answer = asyncio.run(asked(request_bytes))
    assert answer.startswith(b"HTTP/1.1 " + status if status else b"")
    assert answer.partition(b"\r\n\r\n")[2] == body


async def asked(request_bytes: bytes) -> bytes:
    """Serve one request and return the response."""
    server = await serve_metrics("127.0.0.1:0", lambda: [gauge("up", "", (), {(): 1})])
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_bytes)
    writer.write_eof()
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
        server.close()
