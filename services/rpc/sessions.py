"""Sessions: whose state a request means, and where it stands in order.

A request's stamp names session, epoch and sequence number. The last number again returns the last
answer; one more goes on; anything else is refused, before anything is changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from services.rpc.errors import (
    FieldError,
    LimitError,
    NotFoundError,
    StaleError,
    TimeGoesBackwardsError,
)

SESSIONS_MAX = 1024
Core = TypeVar("Core")


class StampLike(Protocol):
    """What is read of a reprieve.session.v1alpha1.Stamp."""

    @property
    def session(self) -> str: ...  # noqa: D102 - the proto says it
    @property
    def epoch(self) -> int: ...  # noqa: D102 - the proto says it
    @property
    def sequence(self) -> int: ...  # noqa: D102 - the proto says it


@dataclass(slots=True, kw_only=True)
class Session(Generic[Core]):
    """One caller's state: `core` is the service's own, `at_ns` the time of its last operation."""

    name: str
    core: Core
    epoch: int = 1
    sequence: int = 0
    at_ns: int = -(2**63)
    answer: object = None

    def repeated(self, stamp: StampLike) -> object:
        """Return the last answer where `stamp` repeats the last request, None where it goes on.

        Raises StaleError for any other number.
        """
        if stamp.sequence == self.sequence and self.answer is not None:
            return self.answer
        if stamp.sequence != self.sequence + 1:
            raise StaleError(
                f"stamp.sequence {stamp.sequence} is out of order in session {self.name!r}: "
                f"{self.sequence + 1} comes next"
            )
        return None

    def check_time(self, field: str, at_ns: int, after_ns: int | None = None) -> int:
        """Return `at_ns`; raises TimeGoesBackwardsError where it lies before the last operation."""
        last_ns = self.at_ns if after_ns is None else after_ns
        if at_ns < last_ns:
            raise TimeGoesBackwardsError(
                f"{field}: {at_ns} ns lies before the last operation at {last_ns} ns"
            )
        return at_ns

    def advance(self, stamp: StampLike, at_ns: int, answer: object) -> None:
        """Note that the request was carried out and what was answered."""
        self.sequence = stamp.sequence
        self.at_ns = at_ns
        self.answer = answer


class Sessions(Generic[Core]):
    """All sessions of one service."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._sessions: dict[str, Session[Core]] = {}
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session[Core]]:
        return iter(tuple(self._sessions.values()))

    def open(self, name: str, core: Core) -> Session[Core]:
        """Start a session; an empty name is made up. Raises what check_free does."""
        self.check_free(name)
        name = name or self._free_name()
        session = Session(name=name, core=core)
        self._sessions[name] = session
        return session

    def check_free(self, name: str) -> None:
        """Raise FieldError for a name in use, LimitError where no session more may be open."""
        if len(self._sessions) >= SESSIONS_MAX:
            raise LimitError(f"{SESSIONS_MAX} sessions are open: close some with CloseSession")
        if name in self._sessions:
            raise FieldError("session", f"{name!r} is open already; leave it empty for a new one")

    def close(self, name: str) -> Session[Core] | None:
        """Forget a session and return it; None where there is none."""
        return self._sessions.pop(name, None)

    def find(self, name: str) -> Session[Core] | None:
        """Return a session by its name; None where there is none."""
        return self._sessions.get(name)

    def get(self, stamp: StampLike) -> Session[Core]:
        """Return the session that `stamp` names, in its epoch.

        Raises FieldError without a name, NotFoundError, and StaleError for another epoch.
        """
        if not stamp.session:
            raise FieldError("stamp.session", "is required: Open answers it")
        session = self._sessions.get(stamp.session)
        if session is None:
            raise NotFoundError(f"the {self._service} has no session {stamp.session!r}: Open one")
        if stamp.epoch != session.epoch:
            raise StaleError(
                f"stamp.epoch {stamp.epoch} is not session {session.name!r}'s {session.epoch}"
            )
        return session

    def _free_name(self) -> str:
        return next(
            name
            for number in self._numbers
            if (name := f"{self._service}-{number}") not in self._sessions
        )
