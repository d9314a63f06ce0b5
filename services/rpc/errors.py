"""Why a request is refused, and the one place that turns refusals into gRPC statuses.

A refusal is raised before anything is changed. Its class has the status code and the reason; its
details are google.rpc messages (BadRequest, ErrorInfo and so on) in the status. Bytes that are not
a message of the method's type, and messages that are too large, are refused here, too. Any other
exception is an error of the service: INTERNAL, and logged.
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
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from services.rpc.parts import ACCEPTED_BYTES_MAX
from services.rpc.tracing import Handler, HandlerInterceptor, function_of, replaced

DOMAIN = "reprieve.internal"
RECEIVED_BYTES: ContextVar[int] = ContextVar("received_bytes", default=0)
"""The size of the request that was received last in a call."""
_LOG = logging.getLogger("reprieve.rpc")
_INTERNAL = "an internal error; the service's log has it"


class RefusalError(Exception):
    """A request that is refused; `reason` is stable and for programs, the text for people.

    `reason` is one of the contract's ErrorReasons, and `metadata` the ErrorInfo's.
    """

    code: int = code_pb2.INTERNAL
    reason: str = "INTERNAL"

    def __init__(self, text: str = "", **metadata: object) -> None:
        super().__init__(text)
        self.metadata = {name: str(value) for name, value in metadata.items()}

    def details(self) -> list[Message]:
        """Return the details of the status besides its ErrorInfo."""
        return []


class FieldError(RefusalError, ValueError):
    """A field of the request that is missing or wrong; `field` is its path."""

    code = code_pb2.INVALID_ARGUMENT
    reason = "BAD_FIELD"

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem

    def details(self) -> list[Message]:
        """Return a BadRequest with the field."""
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=self.field, description=self.problem
        )
        return [error_details_pb2.BadRequest(field_violations=[violation])]


class UndecodableError(RefusalError):
    """Bytes that are not a message of the method's type."""

    code = code_pb2.INVALID_ARGUMENT
    reason = "BAD_FIELD"

    def details(self) -> list[Message]:
        """Return a BadRequest without a field: it is the whole message."""
        violation = error_details_pb2.BadRequest.FieldViolation(description=str(self))
        return [error_details_pb2.BadRequest(field_violations=[violation])]


class NotFoundError(RefusalError):
    """A node or pod that the session does not have."""

    code = code_pb2.NOT_FOUND
    reason = "NOT_FOUND"


class SessionExpiredError(RefusalError):
    """A session that was deleted, has expired or was never created."""

    code = code_pb2.NOT_FOUND
    reason = "SESSION_EXPIRED"


class SequenceMismatchError(RefusalError):
    """A stamp out of sequence; the metadata has the expected number."""

    code = code_pb2.ABORTED
    reason = "SEQUENCE_MISMATCH"


class SequenceReusedError(RefusalError):
    """The last sequence number with another request; metadata as in SequenceMismatchError."""

    code = code_pb2.ABORTED
    reason = "SEQUENCE_REUSED"


class BusyError(RefusalError):
    """A session that is carrying out another request."""

    code = code_pb2.ABORTED
    reason = "BUSY"


class PreconditionError(RefusalError):
    """A request that the session's state does not allow, such as a time that goes back."""

    code = code_pb2.FAILED_PRECONDITION
    reason = "PRECONDITION"

    def details(self) -> list[Message]:
        """Return a PreconditionFailure with the condition."""
        violation = error_details_pb2.PreconditionFailure.Violation(
            type=self.reason, description=str(self)
        )
        return [error_details_pb2.PreconditionFailure(violations=[violation])]


class TimeGoesBackwardsError(PreconditionError):
    """An operation before the last one; the metadata has the earliest time accepted."""

    reason = "TIME_GOES_BACKWARDS"


class SessionBrokenError(PreconditionError):
    """A session that failed in the middle of a request and cannot continue."""

    reason = "SESSION_BROKEN"


class LimitError(RefusalError):
    """A limit of the service that was reached; `limit` is its name."""

    code = code_pb2.RESOURCE_EXHAUSTED
    reason = "LIMIT"

    def __init__(self, limit: str, text: str) -> None:
        super().__init__(text, limit=limit)
        self.limit = limit

    def details(self) -> list[Message]:
        """Return a QuotaFailure with the limit."""
        violation = error_details_pb2.QuotaFailure.Violation(
            subject=self.limit, description=str(self)
        )
        return [error_details_pb2.QuotaFailure(violations=[violation])]


class UnauthenticatedError(RefusalError):
    """A caller without an identity, where one is required."""

    code = code_pb2.UNAUTHENTICATED
    reason = "UNAUTHENTICATED"


class PermissionDeniedError(RefusalError):
    """A caller without the right, or another caller's session."""

    code = code_pb2.PERMISSION_DENIED
    reason = "PERMISSION_DENIED"


class UnavailableError(RefusalError):
    """A service that is draining, or whose own service does not respond."""

    code = code_pb2.UNAVAILABLE
    reason = "UNAVAILABLE"

    def details(self) -> list[Message]:
        """Return a RetryInfo of one second."""
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.seconds = 1
        return [retry]


class UnservedError(RefusalError, NotImplementedError):
    """A part of the contract that this version does not serve."""

    code = code_pb2.UNIMPLEMENTED
    reason = "NOT_SERVED"


def reason_of(error: grpc.Call | grpc.aio.AioRpcError) -> str:
    """Return the reason in the ErrorInfo of a failed call's status, "" without one."""
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


def shown_to_callers(error: BaseException) -> str:
    """Return what a caller may learn of an error: the text of a refusal, and of others none."""
    if isinstance(error, RefusalError):
        return str(error)
    return _INTERNAL if isinstance(error, Exception) else type(error).__name__


def refuse(context: grpc.aio.ServicerContext[Any, Any], error: Exception) -> None:
    """End a call with the status of `error`; the handler returns after it.

    No abort: gRPC keeps the exception that it raises, and with its traceback the request.
    """
    if isinstance(error, NotImplementedError) and not isinstance(error, RefusalError):
        error = UnservedError("this version of Reprieve does not serve this call")
    if not isinstance(error, RefusalError):
        _LOG.exception("unexpected error", exc_info=error)
        error = RefusalError(_INTERNAL)
    elif _LOG.isEnabledFor(logging.DEBUG):
        _LOG.debug("refused: %s: %s", error.reason, error)
    status = rpc_status.to_status(status_of(error))
    context.set_trailing_metadata(status.trailing_metadata or ())
    context.set_code(status.code)
    context.set_details(status.details or "")


class RefusalInterceptor(HandlerInterceptor):
    """Turns what a handler raises into a status, for every method.

    `message_bytes` is the size of the largest request that is accepted.
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
    """Return `parse` with refusals for what it cannot decode, and for what is too large."""

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
            return parse(data)
        except DecodeError as error:
            raise UndecodableError(f"the message cannot be decoded: {error}") from None

    return read


def _returning(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return `read` with refusals returned: gRPC reads a single request outside of the handler."""

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
