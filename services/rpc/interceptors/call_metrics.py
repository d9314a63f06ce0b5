"""Metrics of every gRPC call that a process serves.

Names, labels and buckets are the same as in go-grpc-middleware's providers/prometheus, which most
dashboards for gRPC servers use.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

import grpc

from services.rpc.interceptors.tracing import Handler, HandlerInterceptor, function_of, replaced
from services.rpc.prometheus import HistogramCounts, counter, histogram

if TYPE_CHECKING:
    from prometheus_client import Metric

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LABELS = ("grpc_type", "grpc_service", "grpc_method")
_TYPES = {
    (False, False): "unary",
    (False, True): "server_stream",
    (True, False): "client_stream",
    (True, True): "bidi_stream",
}
_CODES = {
    code.value[0]: "".join(part.title() for part in code.name.split("_"))
    for code in grpc.StatusCode
} | {grpc.StatusCode.OK.value[0]: "OK", grpc.StatusCode.CANCELLED.value[0]: "Canceled"}

Method = tuple[str, str, str]
"""Values of the labels `_LABELS`."""


class CallMetrics(HandlerInterceptor):
    """Counts calls and their messages; `collect` describes the metrics."""

    def __init__(self) -> None:
        self._started: Counter[Method] = Counter()
        self._handled: Counter[tuple[str, str, str, str]] = Counter()
        self._received: Counter[Method] = Counter()
        self._sent: Counter[Method] = Counter()
        self._seconds: dict[Method, HistogramCounts] = {}

    def wrapped(self, name: str, handler: Handler) -> Handler:
        """Return the method's handler, wrapped."""
        service, _, method = name.partition("/")
        kind = _TYPES[handler.request_streaming, handler.response_streaming]
        function = function_of(handler)
        yields = handler.response_streaming and inspect.isasyncgenfunction(function)
        wrap = self._yielding if yields else self._returning
        return replaced(handler, wrap((kind, service, method), function))

    def _returning(
        self, method: Method, function: Callable[..., Awaitable[Any]]
    ) -> Callable[..., Awaitable[Any]]:
        async def call(request: Any, context: Any) -> Any:
            with self._counted(method, context):
                response = await function(self._noted(method, request), context)
                self._sent[method] += response is not None
                return response

        return call

    def _yielding(
        self, method: Method, function: Callable[..., AsyncGenerator[Any, None]]
    ) -> Callable[..., AsyncIterator[Any]]:
        async def call(request: Any, context: Any) -> AsyncIterator[Any]:
            with self._counted(method, context):
                async with aclosing(function(self._noted(method, request), context)) as answers:
                    async for answer in answers:
                        self._sent[method] += 1
                        yield answer

        return call

    def _noted(self, method: Method, request: Any) -> Any:
        """Count a request, or wrap a stream of requests to count each; return it."""
        if not hasattr(request, "__aiter__"):
            self._received[method] += 1
            return request

        async def each() -> AsyncIterator[Any]:
            async for message in request:
                self._received[method] += 1
                yield message

        return each()

    @contextmanager
    def _counted(self, method: Method, context: Any) -> Iterator[None]:
        self._started[method] += 1
        began = perf_counter()
        code = ""
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            code = _CODES[grpc.StatusCode.CANCELLED.value[0]]
            raise
        except BaseException:
            code = _code(context) or _CODES[grpc.StatusCode.UNKNOWN.value[0]]
            raise
        finally:
            self._handled[*method, code or _code(context) or "OK"] += 1
            seconds = self._seconds.get(method)
            if seconds is None:
                seconds = self._seconds[method] = HistogramCounts(_SECONDS)
            seconds.observe(perf_counter() - began)

    def collect(self) -> Iterator[Metric]:
        """Describe the metrics."""
        text = "Total number of RPCs started on the server."
        yield counter("grpc_server_started_total", text, _LABELS, self._started)
        text = "Total number of RPCs completed on the server, regardless of success or failure."
        yield counter("grpc_server_handled_total", text, (*_LABELS, "grpc_code"), self._handled)
        text = "Total number of RPC stream messages received on the server."
        yield counter("grpc_server_msg_received_total", text, _LABELS, self._received)
        text = "Total number of gRPC stream messages sent by the server."
        yield counter("grpc_server_msg_sent_total", text, _LABELS, self._sent)
        text = "Seconds of each RPC until it was completed by the server."
        yield histogram("grpc_server_handling_seconds", text, _LABELS, self._seconds)


def _code(context: Any) -> str:
    """Return the code that a handler has set; "" if none."""
    code = context.code()
    number = code.value[0] if isinstance(code, grpc.StatusCode) else code
    return _CODES.get(number, "") if number else ""
