"""Defines the refusals of requests, with their status codes and reasons: the one table.

A refusal is raised before anything is changed. Its class has the status code and the reason. Its
details are google.rpc messages (BadRequest, ErrorInfo and so on) in the status that
interceptors/statuses.py builds. This module does not import gRPC, because commands that only read a
run also decode objects, and start faster without it.
"""

from __future__ import annotations

from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2

_INTERNAL = "an internal error; the service's log has it"


class RefusalError(Exception):
    """A refused request; `reason` is stable and for programs, the message is for users.

    `reason` is one of the contract's ErrorReasons; `metadata` is the metadata of its ErrorInfo.
    """

    code: int = code_pb2.INTERNAL
    reason: str = "INTERNAL"

    def __init__(self, text: str = "", **metadata: object) -> None:
        super().__init__(text)
        self.metadata = {name: str(value) for name, value in metadata.items()}

    def details(self) -> list[Message]:
        """Return the details of the status, without its ErrorInfo."""
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
        """Return a BadRequest without a field, because the whole message is invalid."""
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
    """A stamp with a wrong sequence number; the metadata has the expected number."""

    code = code_pb2.ABORTED
    reason = "SEQUENCE_MISMATCH"


class SequenceReusedError(RefusalError):
    """A repeated sequence number with a different request; metadata as in SequenceMismatchError."""

    code = code_pb2.ABORTED
    reason = "SEQUENCE_REUSED"


class BusyError(RefusalError):
    """A session that is processing another request."""

    code = code_pb2.ABORTED
    reason = "BUSY"


class PreconditionError(RefusalError):
    """A request that the session's state does not allow, such as one with an earlier time."""

    code = code_pb2.FAILED_PRECONDITION
    reason = "PRECONDITION"

    def details(self) -> list[Message]:
        """Return a PreconditionFailure with the condition."""
        violation = error_details_pb2.PreconditionFailure.Violation(
            type=self.reason, description=str(self)
        )
        return [error_details_pb2.PreconditionFailure(violations=[violation])]


class TimeGoesBackwardsError(PreconditionError):
    """An operation with a time before the last one's; the metadata has the earliest valid time."""

    reason = "TIME_GOES_BACKWARDS"


class SessionBrokenError(PreconditionError):
    """A session that failed in the middle of a request and cannot continue."""

    reason = "SESSION_BROKEN"


class LimitError(RefusalError):
    """A request that would exceed a limit of the service; `limit` is the limit's name."""

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
    """A caller that lacks the right, or uses another caller's session."""

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
    """A part of the contract that this version does not implement."""

    code = code_pb2.UNIMPLEMENTED
    reason = "NOT_SERVED"


def shown_to_callers(error: BaseException) -> str:
    """Return an error's text for callers: a refusal's message, otherwise a generic text."""
    if isinstance(error, RefusalError):
        return str(error)
    return _INTERNAL if isinstance(error, Exception) else type(error).__name__
