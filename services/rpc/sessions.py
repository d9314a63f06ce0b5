"""Sessions: the state that a request refers to, and the order of requests.

A request's stamp has a session's name and a sequence number. The last number again returns the last
response; the next number is carried out; any other is refused, before anything is changed.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from services.rpc.errors import (
    FieldError,
    LimitError,
    SequenceMismatchError,
    SequenceReusedError,
    SessionExpiredError,
    TimeGoesBackwardsError,
)

SESSIONS_MAX = 1024
Core = TypeVar("Core")


class StampLike(Protocol):
    """The fields of reprieve.session.v1beta1.Stamp that are read."""

    @property
    def session(self) -> str: ...  # noqa: D102 - as in the proto
    @property
    def sequence(self) -> int: ...  # noqa: D102 - as in the proto


@dataclass(slots=True, kw_only=True)
class Session(Generic[Core]):
    """One caller's state: `core` is the service's own, `at_ns` the time of its last operation.

    `request` is the last one with a sequence number, and `answer` its response.
    """

    name: str
    core: Core
    sequence: int = 0
    at_ns: int = -(2**63)
    request: Any = None
    answer: Any = None

    def repeated(self, request: Any) -> Any:
        """Return the last answer where `request` is the last one again, None for the next one.

        Raises SequenceMismatchError for a number out of order, and SequenceReusedError for another
        request with the last number (its trace context may differ).
        """
        sequence = request.stamp.sequence
        if sequence == self.sequence + 1:
            return None
        if sequence != self.sequence or self.answer is None:
            if not request.stamp.HasField("sequence"):
                raise FieldError("stamp.sequence", f"is required: {self.sequence + 1} comes next")
            raise SequenceMismatchError(
                f"stamp.sequence {sequence} is out of order: {self.sequence + 1} comes next",
                expected_sequence=self.sequence + 1,
            )
        if _without_context(request) != _without_context(self.request):
            raise SequenceReusedError(
                f"stamp.sequence {sequence} was another request's: {self.sequence + 1} comes next",
                expected_sequence=self.sequence + 1,
            )
        return self.answer

    def repeated_or_new(self, request: Any, *, live: bool) -> Any:
        """Do what `repeated` does; in a live session a request without a number is a new one."""
        return self.repeated(request) if not live or request.stamp.HasField("sequence") else None

    def check_time(self, field: str, at_ns: int, after_ns: int | None = None) -> int:
        """Return `at_ns`; raises TimeGoesBackwardsError where it lies before the last operation."""
        last_ns = self.at_ns if after_ns is None else after_ns
        if at_ns < last_ns:
            raise TimeGoesBackwardsError(
                f"{field}: {at_ns} ns lies before the last operation at {last_ns} ns",
                earliest_ns=last_ns,
            )
        return at_ns

    def advance(self, request: Any, at_ns: int, answer: Any) -> None:
        """Record that the request was carried out and its answer."""
        self.sequence = request.stamp.sequence
        self.at_ns = at_ns
        self.request, self.answer = request, answer

    def complete(self, request: Any, at_ns: int, answer: Any) -> None:
        """Do what `advance` does, with the number in the answer; without a number set `at_ns`."""
        if request.stamp.HasField("sequence"):
            answer.sequence = request.stamp.sequence
            self.advance(request, at_ns, answer)
        else:
            self.at_ns = at_ns


class Sessions(Generic[Core]):
    """All sessions of one service."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._sessions: dict[str, Session[Core]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session[Core]]:
        return iter(tuple(self._sessions.values()))

    def create(self, core: Core) -> Session[Core]:
        """Start a session with an unguessable name. Raises LimitError."""
        self.check_free()
        session = Session(name=secrets.token_urlsafe(16), core=core)
        self._sessions[session.name] = session
        return session

    def check_free(self) -> None:
        """Raise LimitError where there are SESSIONS_MAX sessions."""
        if len(self._sessions) >= SESSIONS_MAX:
            raise LimitError(f"there are {SESSIONS_MAX} sessions: end some with DeleteSession")

    def delete(self, name: str) -> Session[Core] | None:
        """Remove a session and return it, None for an unknown name. Raises FieldError for ""."""
        if not name:
            raise FieldError("session", "is required")
        return self._sessions.pop(name, None)

    def get(self, stamp: StampLike) -> Session[Core]:
        """Return the session that `stamp` names.

        Raises FieldError without a name, and SessionExpiredError.
        """
        if not stamp.session:
            raise FieldError("stamp.session", "is required: CreateSession returns it")
        session = self._sessions.get(stamp.session)
        if session is None:
            raise SessionExpiredError(
                f"the {self._service} has no session {stamp.session!r} any more: create one"
            )
        return session


def _without_context(request: Any) -> Any:
    if not request.stamp.traceparent:
        return request
    bare = type(request)()
    bare.CopyFrom(request)
    bare.stamp.ClearField("traceparent")
    return bare
