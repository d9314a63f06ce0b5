"""A span for each request with its caller's trace context.

Source: OpenTelemetry's semantic conventions for RPC spans (name, rpc.system, rpc.service,
rpc.method).
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, aclosing
from typing import Any, TypeAlias

import grpc

from services.telemetry.service_spans import ServiceSpans
from services.telemetry.span import Attribute

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_HANDLERS: dict[tuple[bool, bool], Callable[..., grpc.RpcMethodHandler[Any, Any]]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def function_of(handler: grpc.RpcMethodHandler[Any, Any]) -> Callable[..., Any]:
    """Return the function that handles the method's calls."""
    function = (
        handler.stream_stream or handler.unary_stream or handler.stream_unary or handler.unary_unary
    )
    assert function is not None  # noqa: S101 - every handler has one
    return function


def replaced(
    handler: grpc.RpcMethodHandler[Any, Any],
    function: Callable[..., Any],
    read: Callable[[bytes], Any] | None = None,
) -> grpc.RpcMethodHandler[Any, Any]:
    """Return a handler with another function; `read` replaces its deserializer if set."""
    make = _HANDLERS[handler.request_streaming, handler.response_streaming]
    return make(function, read or handler.request_deserializer, handler.response_serializer)


class HandlerInterceptor(grpc.aio.ServerInterceptor):
    """Wraps the handler of each method that is served."""

    @abstractmethod
    def wrapped(self, name: str, handler: Handler) -> Handler:
        """Return what handles the method `name`, SERVICE/METHOD, in place of `handler`."""

    async def intercept_service(  # type: ignore[override] # the stub's type variables cannot vary
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """Wrap the handler, unless the method is not served."""
        handler = await continuation(handler_call_details)
        path = handler_call_details.method
        name = (path.decode() if isinstance(path, bytes) else path).removeprefix("/")
        return handler if handler is None else self.wrapped(name, handler)


class SpanInterceptor(HandlerInterceptor):
    """Times unary calls and each request of a bidirectional stream.

    The handler receives its own span's context in the request's stamp, to pass it on.
    """

    def __init__(self, spans: ServiceSpans) -> None:
        self._spans = spans

    def wrapped(self, name: str, handler: Handler) -> Handler:
        """Return the method's handler, wrapped."""
        if handler.request_streaming != handler.response_streaming:
            return handler
        wrap = self._streaming if handler.request_streaming else self._single
        return replaced(handler, wrap(name, function_of(handler)))

    def _single(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        async def call(request: Any, context: Any) -> Any:
            with ExitStack() as stack:
                self._enter(stack, name, request)
                return await function(request, context)

        return call

    def _streaming(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        async def call(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
            under_way: deque[ExitStack] = deque()

            async def noted() -> AsyncIterator[Any]:
                async for request in requests:
                    stack = ExitStack()
                    self._enter(stack, name, request)
                    under_way.append(stack)
                    yield request

            try:
                async with aclosing(function(noted(), context)) as answers:
                    async for answer in answers:
                        yield answer
                        if under_way:
                            under_way.popleft().close()
            finally:
                for stack in under_way:
                    stack.close()

        return call

    def _enter(self, stack: ExitStack, name: str, request: Any) -> None:
        stamp = getattr(request, "stamp", None)
        if stamp is None or not getattr(stamp, "traceparent", ""):
            return
        service, _, method = name.partition("/")
        attributes: dict[str, Attribute] = {
            "rpc.system": "grpc",
            "rpc.service": service,
            "rpc.method": method,
        }
        span = self._spans.span(name, stamp.traceparent, attributes)
        stamp.traceparent = stack.enter_context(span)
