"""All sessions of a service: their names, owners, ends and limits.

A session belongs to the caller that created it. It ends by DeleteSession, or expires when it has
had no request and no open stream for some time. The reason for its end is stored for a while.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Generic, Protocol, TypeVar

from services.kube.time import format_duration
from services.rpc.errors import PermissionDeniedError, SessionBrokenError, SessionExpiredError
from services.rpc.identity import current_caller, may_use_session_of
from services.rpc.interceptors.statuses import RECEIVED_BYTES
from services.rpc.limits import DEFAULT_LIMITS, Ceiling, Limits
from services.rpc.session import HeldObjects, Session

_LOG = logging.getLogger("reprieve.rpc")
REMEMBERED_MAX = 4096
"""Limit for the ended sessions whose reason is stored."""
_SHOWN = 6
_SESSION_OBJECTS, _COLLECT_OBJECTS, _COLLECT_AFTER_S = 1000, 20_000, 0.5
"""Objects that an empty session counts as; ended objects that justify a collection; its delay."""
Content = TypeVar("Content")


class StampLike(Protocol):
    """The fields of reprieve.session.v1beta1.Stamp that are read."""

    @property
    def session_id(self) -> str: ...  # noqa: D102 - as in the proto
    @property
    def sequence(self) -> int: ...  # noqa: D102 - as in the proto


class Sessions(Generic[Content]):
    """All sessions of one service.

    `on_expiry` is called with a session that has expired. `clock_s` is monotonic.
    """

    def __init__(
        self,
        service: str,
        limits: Limits = DEFAULT_LIMITS,
        on_expiry: Callable[[Session[Content]], None] = lambda _: None,
        clock_s: Callable[[], float] = monotonic,
    ) -> None:
        self.limits = limits
        self._service = service
        self._on_expiry = on_expiry
        self._clock_s = clock_s
        self._sessions: dict[str, Session[Content]] = {}
        self._ended: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._owned: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()
        self._ceiling = Ceiling(limits)
        self._uncollected = 0
        self._collects_soon = False
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session[Content]]:
        return iter(tuple(self._sessions.values()))

    def create(self, content: Content, objects: int = 0, size: int = 0) -> Session[Content]:
        """Start a session with an unguessable name.

        objects, size: the number of its objects, and their size in bytes. Raises LimitError.
        """
        self.check_free()
        owner = current_caller()
        if objects or size:
            self._check_room(owner, objects, size)
        session = Session(
            name=secrets.token_urlsafe(16),
            content=content,
            owner=owner,
            limits=self.limits,
            used_s=self._clock_s(),
            held=HeldObjects(objects, size),
        )
        self._bytes[owner] += size
        self._sessions[session.name] = session
        self._owned[session.owner] += 1
        self._watch()
        whose = f" of {owner}" if owner else ""
        _LOG.info("session %s%s created; %d in all", shortened(session.name), whose, len(self))
        return session

    def check_free(self) -> None:
        """Raise LimitError if a further session would exceed a limit."""
        self.expire()
        hint = "sessions: end some with DeleteSession"
        self.limits.check("sessions", len(self) + 1, hint)
        self.limits.check(
            "caller_sessions", self._owned[current_caller()] + 1, f"a caller's {hint}"
        )
        self._ceiling.check()

    def delete(self, name: str) -> Session[Content] | None:
        """Remove a session and return it; None for an unknown name.

        Raises PermissionDeniedError for another caller's session.
        """
        session = self._sessions.get(name)
        if session is not None:
            self._check_owner(session)
            self._end(session, "deleted", "was deleted")
        return session

    def get(self, stamp: StampLike, *, counts: bool = True) -> Session[Content]:
        """Return the session that `stamp` names; resets its idle timer if the call `counts`.

        Raises SessionExpiredError, PermissionDeniedError for another caller's session, and
        SessionBrokenError.
        """
        session = self._sessions.get(stamp.session_id)
        if session is None:
            raise self._expired(stamp.session_id)
        if session.owner:
            self._check_owner(session)
        if session.broken:
            raise SessionBrokenError(
                f"the session broke half-way through a request ({session.broken}): restore it "
                "from a checkpoint, or create a new one"
            )
        if counts:
            session.used_s = self._clock_s()
        return session

    def _expired(self, name: str) -> Exception:
        unknown = "is not a session here: it was never created, or the service was started again"
        reason, text = self._ended.get(name, ("unknown", unknown))
        return SessionExpiredError(
            f"the {self._service}'s session {shortened(name)} {text}: create one", reason=reason
        )

    def _check_owner(self, session: Session[Content]) -> None:
        if not may_use_session_of(session.owner):
            raise PermissionDeniedError(
                f"the {self._service}'s session {shortened(session.name)} belongs to another caller"
            )

    @contextmanager
    def call(self) -> Iterator[Call[Content]]:
        """Count a stream of the current caller; sessions used in it do not expire while it is open.

        Raises LimitError.
        """
        caller = current_caller()
        self.limits.check("streams", self._streams.total() + 1, "open streams")
        self.limits.check("caller_streams", self._streams[caller] + 1, "a caller's open streams")
        self._streams[caller] += 1
        call = Call(self)
        try:
            yield call
        finally:
            call.end(self._clock_s())
            self._streams[caller] -= 1
            if not self._streams[caller]:
                del self._streams[caller]

    def make_room(self, session: Session[Content], objects: int, count: int, adds: int) -> None:
        """Check the limits of a session before a request of `count` changes.

        The session has `objects` objects; the request adds at most `adds`. Raises LimitError.
        """
        held = session.held
        size, before = RECEIVED_BYTES.get(), held.size
        held.weigh(objects, count, size)
        self._bytes[session.owner] += held.size - before
        if adds:
            self._check_room(session.owner, objects + adds, size)
            self._ceiling.check()

    def _check_room(self, owner: str, objects: int, size: int) -> None:
        """Check the limits for a session's objects, and for `size` more bytes of its owner."""
        check = self.limits.check
        check("session_objects", objects, "objects of a session")
        check("caller_bytes", self._bytes[owner] + size, "bytes in a caller's sessions")

    def expire(self) -> None:
        """End sessions that have had no request and no stream for longer than idle_s."""
        idle_s = self.limits.idle_s
        if not idle_s:
            return
        since_s = self._clock_s() - idle_s
        for session in self:
            if not session.in_use and session.used_s <= since_s:
                text = f"expired after {format_duration(round(idle_s * 1e9))} without a request"
                self._end(session, "expired", text)
                self._on_expiry(session)

    def _end(self, session: Session[Content], reason: str, text: str) -> None:
        del self._sessions[session.name]
        self._collect_after(session)
        owner = session.owner
        self._owned[owner] -= 1
        self._bytes[owner] -= session.held.size
        if not self._owned[owner]:
            del self._owned[owner], self._bytes[owner]
        self._ended[session.name] = reason, text
        _LOG.info("session %s %s; %d remain", shortened(session.name), text, len(self._sessions))
        if len(self._ended) > REMEMBERED_MAX:
            self._ended.popitem(last=False)

    def _collect_after(self, session: Session[Content]) -> None:
        """Collect garbage soon, if ended sessions had as many objects as the others have.

        Cores have reference cycles, and the collector otherwise visits old objects far too seldom
        (services/rpc/server.py, `calm`). With this rule, the cost of collections is a fixed share
        of the cost of requests.
        """
        self._uncollected += _SESSION_OBJECTS + session.held.objects
        held = sum(_SESSION_OBJECTS + session.held.objects for session in self._sessions.values())
        if self._collects_soon or self._uncollected < max(_COLLECT_OBJECTS, held):
            return
        with suppress(RuntimeError):  # without a loop, the next end of a session tries again
            asyncio.get_running_loop().call_later(_COLLECT_AFTER_S, self._collect)
            self._collects_soon = True

    def _collect(self) -> None:
        self._collects_soon, self._uncollected = False, 0
        gc.collect()

    def _watch(self) -> None:
        """Check for expired sessions from time to time, as long as there are sessions."""
        if self._timer is not None or not self.limits.idle_s or not self._sessions:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # without a loop, the next creation of a session tries again
            return
        self._timer = loop.call_later(min(self.limits.idle_s / 4, 30.0), self._look)

    def _look(self) -> None:
        self._timer = None
        self.expire()
        self._watch()


class Call(Generic[Content]):
    """A stream and the sessions that are used in it."""

    __slots__ = ("_last", "_sessions", "_used")

    def __init__(self, sessions: Sessions[Content]) -> None:
        self._sessions = sessions
        self._last: Session[Content] | None = None
        self._used: list[Session[Content]] = []

    def get(self, stamp: StampLike) -> Session[Content]:
        """Return a session as Sessions.get does, and keep it from expiring until the call ends."""
        session = self._sessions.get(stamp)
        if session is not self._last:
            self._last = session
            if session not in self._used:
                self._used.append(session)
                session.in_use += 1
        return session

    def end(self, now_s: float) -> None:
        """Start the idle timers of the sessions at `now_s`."""
        for session in self._used:
            session.in_use -= 1
            session.used_s = now_s


def shortened(name: str) -> str:
    """Shorten a session's name for messages and logs: the full name is the right to use it."""
    return repr(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}...")
