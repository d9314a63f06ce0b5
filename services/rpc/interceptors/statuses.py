"""The only place that turns refusals into gRPC statuses, and reads a reason from a status.

It also refuses bytes that are not a message of the method's type, messages that are too large, and
messages that lack a required field. Any other exception is an error of the service: the status is
INTERNAL, and the exception is logged.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from services.rpc import required
from services.rpc.errors import (
    LimitError,
    RefusalError,
    UndecodableError,
    UnservedError,
    shown_to_callers,
)
from services.rpc.interceptors.tracing import Handler, HandlerInterceptor, function_of, replaced
from services.rpc.parts import ACCEPTED_BYTES_MAX

DOMAIN = "reprieve.internal"
RECEIVED_BYTES: ContextVar[int] = ContextVar("received_bytes", default=0)
"""The size of the last request received in the current call."""
_LOG = logging.getLogger("reprieve.rpc")


def reason_of(error: grpc.Call | grpc.aio.AioRpcError) -> str:
    """Return the reason in the ErrorInfo of a failed call's status; "" without an ErrorInfo."""
    try:
        status = rpc_status.from_call(error)  # type: ignore[arg-type] # both have what it reads
    except ValueError:
        return ""
    info = error_details_pb2.ErrorInfo()
    for detail in status.details if status is not None else ():
        if detail.Unpack(info):
            return str(info.reason)
    return ""


def status_of(refusal: RefusalError) -> status_pb2.Status:
    """Return the google.rpc.Status of a refusal."""
    status = status_pb2.Status(code=refusal.code, message=str(refusal))
    info = error_details_pb2.ErrorInfo(
        reason=refusal.reason, domain=DOMAIN, metadata=refusal.metadata
    )
    for detail in (info, *refusal.details()):
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    return status


def refuse(context: grpc.aio.ServicerContext[Any, Any], error: Exception) -> None:
    """Set the status of `error` on a call; the handler must return after this.

    This does not call abort: gRPC stores the exception that abort raises, and its traceback would
    keep the request in memory.
    """
    if isinstance(error, NotImplementedError) and not isinstance(error, RefusalError):
        error = UnservedError("this version of Reprieve does not serve this call")
    if not isinstance(error, RefusalError):
        _LOG.exception("unexpected error", exc_info=error)
        error = RefusalError(shown_to_callers(error))
    elif _LOG.isEnabledFor(logging.DEBUG):
        _LOG.debug("refused: %s: %s", error.reason, error)
    status = rpc_status.to_status(status_of(error))
    context.set_trailing_metadata(status.trailing_metadata or ())
    context.set_code(status.code)
    context.set_details(status.details or "")


class RefusalInterceptor(HandlerInterceptor):
    """Turns exceptions of handlers into statuses, for every method.

    `message_bytes` is the largest accepted size of a request.
    """

    def __init__(self, message_bytes: int = ACCEPTED_BYTES_MAX) -> None:
        self._message_bytes = message_bytes

    def wrapped(self, name: str, handler: Handler) -> Handler:  # noqa: ARG002 - for every method
        """Return the method's handler, wrapped."""
        function = function_of(handler)
        read = _reader(handler.request_deserializer or bytes, self._message_bytes)
        if not handler.request_streaming:
            read = _returning(read)
        wraps_stream = handler.response_streaming and inspect.isasyncgenfunction(function)
        wrapped = _streaming(function) if wraps_stream else _single(function)
        return replaced(handler, wrapped, read)


def _reader(parse: Callable[[bytes], Any], bytes_max: int) -> Callable[[bytes], Any]:
    """Return `parse`, extended to refuse messages that are undecodable, too large or incomplete."""

    def read(data: bytes) -> Any:
        if bytes_max and len(data) > bytes_max:
            raise LimitError(
                "message_bytes",
                f"the message has {len(data)} bytes, more than the {bytes_max} that are accepted "
                "(limit message_bytes): split it, or change the limit with --limit "
                "message_bytes=NUMBER",
            )
        RECEIVED_BYTES.set(len(data))
        try:
            message = parse(data)
        except DecodeError as error:
            raise UndecodableError(f"the message cannot be decoded: {error}") from None
        if isinstance(message, Message):
            required.check(message)
        return message

    return read


def _returning(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return `read`, changed to return refusals instead of raising them.

    gRPC decodes a single request before it calls the handler, where a refusal would be lost.
    """

    def receive(data: bytes) -> Any:
        try:
            return read(data)
        except RefusalError as refusal:
            return refusal.with_traceback(None)

    return receive


def _single(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        if isinstance(request, RefusalError):
            refuse(context, request)
            return None
        try:
            return await function(request, context)
        except (grpc.aio.AbortError, grpc.aio.BaseError):
            raise
        except Exception as error:
            refuse(context, error)
        return None

    return call


def _streaming(function: Callable[..., Any]) -> Callable[..., AsyncIterator[Any]]:
    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        if isinstance(request, RefusalError):
            refuse(context, request)
            return
        try:
            async with aclosing(function(request, context)) as answers:
                async for answer in answers:
                    yield answer
        except (grpc.aio.AbortError, grpc.aio.BaseError):
            raise
        except Exception as error:
            refuse(context, error)

    return call
