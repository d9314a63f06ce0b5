"""Makes a span for each request that carries its caller's trace context.

The context is in the request's stamp, because a stream has only one set of metadata. If the stamp
has no context, the metadata of the call are used. Both have the form of a W3C traceparent.

Source: OpenTelemetry semantic conventions 1.37, rpc/rpc-spans.md and rpc/grpc.md (name, kind,
attributes, and which codes are a server's error).
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing, contextmanager
from typing import Any, TypeAlias

import grpc

from services.telemetry.logs import CURRENT
from services.telemetry.service_spans import ServiceSpans, traceparent
from services.telemetry.span import Attribute

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_HANDLERS: dict[tuple[bool, bool], Callable[..., grpc.RpcMethodHandler[Any, Any]]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}
_TRACEPARENT = "traceparent"
_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}
_SERVERS_FAULT = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
"""Status codes that mark a server's span as an error; other codes are the caller's errors."""


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


def outgoing() -> tuple[tuple[str, str], ...]:
    """Return metadata that make a call part of the trace of the current request."""
    context = CURRENT.get()
    return ((_TRACEPARENT, traceparent(context)),) if context is not None else ()


class HandlerInterceptor(grpc.aio.ServerInterceptor):
    """Wraps the handlers of all methods."""

    @abstractmethod
    def wrapped(self, name: str, handler: Handler) -> Handler:
        """Return a handler that wraps `handler`; `name` is the method, SERVICE/METHOD."""

    async def intercept_service(  # type: ignore[override] # the stub's type variables cannot vary
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """Wrap the handler, if the method exists."""
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
            with self._request(name, request, context):
                return await function(request, context)

        return call

    def _streaming(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        async def call(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
            under_way: deque[ExitStack] = deque()

            async def noted() -> AsyncIterator[Any]:
                async for request in requests:
                    stack = ExitStack()
                    stack.enter_context(self._request(name, request, context))
                    under_way.append(stack)
                    yield request

            with ExitStack() as unanswered:
                unanswered.push(lambda *raised: _end(under_way, *raised))
                async with aclosing(function(noted(), context)) as answers:
                    async for answer in answers:
                        # The span must end before the yield: a caller in this process resumes the
                        # generator only when it needs the next response.
                        if under_way:
                            under_way.popleft().close()
                        yield answer

        return call

    @contextmanager
    def _request(self, name: str, request: Any, context: Any) -> Iterator[None]:
        """Time a request; if the call fails during it, its span gets the call's status."""
        stamp = getattr(request, "stamp", None)
        parent = getattr(stamp, "traceparent", "") or _traceparent_of(context)
        if not parent:
            yield
            return
        service, _, method = name.partition("/")
        attributes: dict[str, Attribute] = {
            "rpc.system": "grpc",
            "rpc.service": service,
            "rpc.method": method,
        }
        with self._spans.span(name, parent, attributes) as span:
            if stamp is not None:
                stamp.traceparent = span.traceparent
            code = grpc.StatusCode.OK
            try:
                yield
                code = _code(context)
            except (asyncio.CancelledError, GeneratorExit):
                code = grpc.StatusCode.CANCELLED
                raise
            except BaseException:
                code = _code(context)
                if code is grpc.StatusCode.OK:
                    code = grpc.StatusCode.UNKNOWN
                raise
            finally:
                span.attributes["rpc.grpc.status_code"] = code.value[0]
                if code in _SERVERS_FAULT:
                    span.error = context.details() or code.name


def _end(under_way: deque[ExitStack], *raised: Any) -> None:
    for stack in under_way:
        stack.__exit__(*raised)


def _traceparent_of(context: Any) -> str:
    """Return the traceparent in a call's metadata; "" if there is none."""
    metadata = context.invocation_metadata() or ()
    return next((value for key, value in metadata if key == _TRACEPARENT), "")


def _code(context: Any) -> grpc.StatusCode:
    """Return the status that a handler has set, or OK; grpc.aio returns it as a number."""
    code = context.code() or 0
    return code if isinstance(code, grpc.StatusCode) else _CODES[code]
