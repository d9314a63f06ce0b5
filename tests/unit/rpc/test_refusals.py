"""A refused or failed request ends with a status, and leaves nothing else behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest

from services.rpc.errors import FieldError
from services.rpc.interceptors.statuses import RefusalInterceptor


class Message:
    """A request that can be referred to weakly; it is decoded from bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data


async def refused(calls: int, handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.aio.AioRpcError:
    """Call a method of a server so many times; return the last error."""
    server = grpc.aio.server(interceptors=[RefusalInterceptor()])
    methods = grpc.method_handlers_generic_handler("s", {"M": handler})
    server.add_generic_rpc_handlers((methods,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for _ in range(calls):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await answered(channel, streams=handler.request_streaming)
    await server.stop(0)
    return caught.value


async def answered(channel: grpc.aio.Channel, *, streams: bool) -> Any:
    """Return the response to one request."""
    method: Any
    if not streams:
        method = channel.unary_unary("/s/M")
        return await method(b"x")
    method = channel.stream_stream("/s/M")
    return [answer async for answer in method(iter([b"x"]))]


def unary(
    error: Callable[[], Exception], read: Callable[[bytes], Any]
) -> grpc.RpcMethodHandler[Any, Any]:
    """Return a method that raises an error."""

    async def call(request: Any, _context: Any) -> bytes:
        assert request
        raise error()

    return grpc.unary_unary_rpc_method_handler(call, read, bytes)


def streaming(
    error: Callable[[], Exception], read: Callable[[bytes], Any]
) -> grpc.RpcMethodHandler[Any, Any]:
    """Return a bidirectional streaming method that raises an error at its first request."""

    async def call(requests: AsyncIterator[Any], _context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            assert request
            raise error()
        yield b""

    return grpc.stream_stream_rpc_method_handler(call, read, bytes)


@pytest.mark.parametrize("made", [unary, streaming])
def test_a_refused_request_is_not_kept(made: Callable[..., Any]) -> None:
    """Not even until the garbage collector comes: a caller could fill the memory."""
    kept: weakref.WeakSet[Message] = weakref.WeakSet()

    def read(data: bytes) -> Message:
        message = Message(data)
        kept.add(message)
        return message

    gc.collect()
    gc.disable()
    try:
        handler = made(lambda: FieldError("f", "is wrong"), read)
        asyncio.run(refused(5, handler))
        assert not kept
    finally:
        gc.enable()


@pytest.mark.parametrize("made", [unary, streaming])
def test_an_error_of_the_service_is_internal_and_only_in_its_log(
    made: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Once, with the traceback; the caller learns nothing of it."""
    with caplog.at_level(logging.ERROR, logger="reprieve.rpc"):
        error = asyncio.run(refused(1, made(lambda: ZeroDivisionError("secret"), bytes)))
    assert error.code() is grpc.StatusCode.INTERNAL
    metadata = "".join(map(str, error.trailing_metadata() or ()))
    for text in ("secret", "ZeroDivision", "Traceback", ".py"):
        assert text not in f"{error.details()} {error.debug_error_string()} {metadata}"
    [logged] = caplog.records
    assert logged.exc_info is not None
    assert logged.exc_info[0] is ZeroDivisionError
