"""Sessions: unguessable names, and requests that are repeated or out of order."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from reprieve.queue.v1beta1 import queue_service_pb2 as pb
from reprieve.session.v1beta1 import session_pb2
from services.rpc import identity
from services.rpc import sessions as sessions_module
from services.rpc.errors import (
    FieldError,
    LimitError,
    PermissionDeniedError,
    RefusalError,
    SequenceMismatchError,
    SequenceReusedError,
    SessionBrokenError,
    SessionExpiredError,
    UnavailableError,
)
from services.rpc.interceptors.statuses import RECEIVED_BYTES
from services.rpc.limits import Ceiling, Limits
from services.rpc.session import Session
from services.rpc.sessions import REMEMBERED_MAX, Sessions

CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def request(sequence: int | None, *, heads: int = 0, traceparent: str = "") -> pb.ApplyRequest:
    """Return a request of the session s."""
    stamp = session_pb2.Stamp(session_id="s", sequence=sequence, traceparent=traceparent)
    return pb.ApplyRequest(stamp=stamp, heads=heads)


@pytest.fixture(name="session")
def after_request_7() -> Session[str]:
    """Return a session whose last request was the seventh."""
    session = Session(name="s", content="core", sequence=6)
    session.advance(request(7, heads=1), 5, "answer")
    return session


def test_the_next_number_continues_and_the_last_one_again_gets_the_last_answer(
    session: Session[str],
) -> None:
    """The first has no response yet, the second is a safe retry."""
    assert session.repeated(request(8)) is None
    assert session.repeated(request(7, heads=1)) == "answer"


def test_a_repeated_request_may_have_another_trace_context(session: Session[str]) -> None:
    """A caller that tries again does it in a span of its own; before and after the first one."""
    assert session.repeated(request(7, heads=1, traceparent=CONTEXT)) == "answer"
    session.advance(request(8, heads=1, traceparent=CONTEXT), 5, "next")
    for traceparent in ("", CONTEXT, CONTEXT.replace("b7ad", "c8be")):
        assert session.repeated(request(8, heads=1, traceparent=traceparent)) == "next"


@pytest.mark.parametrize("traceparent", ["", CONTEXT])
def test_the_last_number_with_another_request_is_refused(
    session: Session[str], traceparent: str
) -> None:
    """The error has the expected number."""
    with pytest.raises(SequenceReusedError) as error:
        session.repeated(request(7, heads=2, traceparent=traceparent))
    assert error.value.reason == "SEQUENCE_REUSED"
    assert error.value.metadata == {"expected_sequence": "8"}


@pytest.mark.parametrize("sequence", [0, 1, 6, 9, 2**64 - 1])
def test_any_other_number_is_refused(session: Session[str], sequence: int) -> None:
    """So is an older one: only the last answer is kept."""
    with pytest.raises(SequenceMismatchError) as error:
        session.repeated(request(sequence))
    assert error.value.reason == "SEQUENCE_MISMATCH"
    assert error.value.metadata == {"expected_sequence": "8"}


@pytest.mark.parametrize("made", [0, 7])
def test_a_number_is_required(session: Session[str], made: int) -> None:
    """Of the first request, too."""
    wanted = session if made else Session(name="s", content="core")
    with pytest.raises(FieldError, match=f"{made + 1} comes next") as error:
        wanted.repeated(request(None))
    assert error.value.field == "stamp.sequence"


def test_a_new_session_has_no_answer_to_repeat() -> None:
    """Its first request has the number 1; one of 0 was never sent."""
    new = Session(name="s", content="core")
    assert new.repeated(request(1)) is None
    with pytest.raises(SequenceMismatchError):
        new.repeated(request(0))


def test_a_session_that_is_not_there_has_expired() -> None:
    """Whether it was deleted or never was; deleting it again is accepted."""
    sessions = Sessions[str]("queue")
    session = sessions.create("core")
    stamp = session_pb2.Stamp(session_id=session.name)
    assert sessions.get(stamp) is session
    assert sessions.delete(session.name) is session
    assert sessions.delete(session.name) is None
    for name in (session.name, "never"):
        with pytest.raises(SessionExpiredError) as error:
            sessions.get(session_pb2.Stamp(session_id=name))
        assert error.value.reason == "SESSION_EXPIRED"


def test_there_is_a_limit_of_sessions_and_no_name_comes_twice() -> None:
    """A deleted one makes room."""
    sessions = Sessions[int]("queue", Limits(sessions=64))
    names = [sessions.create(number).name for number in range(64)]
    assert len(set(names)) == 64
    assert min(map(len, names)) >= 22  # 128 bits
    with pytest.raises(LimitError, match="DeleteSession") as error:
        sessions.create(0)
    assert error.value.metadata == {"limit": "sessions"}
    sessions.delete(names[0])
    assert sessions.create(0).name not in names


def test_every_refusal_has_a_reason_of_the_contract() -> None:
    """Programs read it by the enum's name."""
    reasons = {
        name.removeprefix("ERROR_REASON_")
        for name in session_pb2.ErrorReason.keys()  # noqa: SIM118 - an enum's wrapper is no mapping
    }
    kinds = [RefusalError]
    for kind in kinds:
        assert kind.reason in reasons, kind
        kinds += kind.__subclasses__()


def carried_out(count: int, *, acknowledged: int, limits: Limits) -> Session[str]:
    """Return a session after so many requests, of which a few were acknowledged."""
    session = Session(name="s", content="core", limits=limits)
    for sequence in range(1, count + 1):
        made = request(sequence, heads=sequence)
        made.stamp.acknowledged = acknowledged
        assert session.repeated(made) is None
        session.advance(made, 5, pb.ApplyResponse(applied=sequence))
    return session


def test_all_requests_without_an_acknowledged_answer_can_be_sent_again() -> None:
    """In order, as a client does whose stream has broken; then the next one is carried out."""
    session = carried_out(5, acknowledged=2, limits=Limits())
    for sequence in (3, 4, 5):
        again = request(sequence, heads=sequence, traceparent=CONTEXT)
        again.stamp.acknowledged = 2
        assert session.repeated(again).applied == sequence
    assert session.repeated(request(6)) is None
    for sequence in (1, 2):
        with pytest.raises(SequenceMismatchError):
            session.repeated(request(sequence, heads=sequence))
    with pytest.raises(SequenceReusedError):
        session.repeated(request(4, heads=5))


def test_a_request_without_an_acknowledgement_acknowledges_all_before_it() -> None:
    """Only the last answer is kept then."""
    session = carried_out(5, acknowledged=0, limits=Limits())
    session.advance(request(6), 5, pb.ApplyResponse())
    assert (session.kept, session.kept_bytes) == ({}, 0)
    with pytest.raises(SequenceMismatchError):
        session.repeated(request(5, heads=5))
    assert session.repeated(request(6)) is not None


@pytest.mark.parametrize(
    "limits", [Limits(unacknowledged_requests=3), Limits(unacknowledged_bytes=6)]
)
def test_the_oldest_answers_are_dropped_above_a_limit(limits: Limits) -> None:
    """Memory is bounded; the number is then out of order."""
    session = carried_out(10, acknowledged=0, limits=limits)
    assert list(session.kept) == [7, 8, 9]
    assert session.repeated(request(7, heads=7)).applied == 7
    with pytest.raises(SequenceMismatchError):
        session.repeated(request(6, heads=6))


class Clock:
    """A clock that is set by hand, in s."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


def stamp_of(session: Session[str]) -> session_pb2.Stamp:
    """Return a stamp of the session."""
    return session_pb2.Stamp(session_id=session.name)


def test_a_session_without_a_request_expires_and_one_with_a_stream_does_not() -> None:
    """The end of the stream starts the clock again; the refusal says how it ended."""
    clock, ended = Clock(), list[Session[str]]()
    sessions = Sessions[str]("queue", Limits(idle_s=60), ended.append, clock)
    idle, used, streamed = (sessions.create("core") for _ in range(3))
    with sessions.call() as call:
        call.get(stamp_of(streamed))
        clock.now_s += 59
        sessions.get(stamp_of(used))
        sessions.get(stamp_of(idle), counts=False)
        clock.now_s += 2
        sessions.expire()
        assert ended == [idle]
        clock.now_s += 1000
        sessions.expire()
        assert ended == [idle, used]
    clock.now_s += 59
    sessions.expire()
    assert list(sessions) == [streamed]
    clock.now_s += 2
    sessions.expire()
    assert len(sessions) == 0
    with pytest.raises(SessionExpiredError, match="expired after 1m0s without a request") as error:
        sessions.get(stamp_of(idle))
    assert error.value.metadata == {"reason": "expired"}


@pytest.mark.parametrize(("end", "reason"), [("delete", "deleted"), ("", "unknown")])
def test_a_refusal_says_how_a_session_ended_and_does_not_show_its_name(
    end: str, reason: str
) -> None:
    """The whole name would give the right to use it."""
    sessions = Sessions[str]("queue")
    name = sessions.create("core").name
    if end:
        sessions.delete(name)
    else:
        sessions = Sessions[str]("queue")
    with pytest.raises(SessionExpiredError) as error:
        sessions.get(session_pb2.Stamp(session_id=name))
    assert error.value.metadata == {"reason": reason}
    assert name not in str(error.value)
    assert name[:6] in str(error.value)


def test_ended_sessions_are_not_remembered_without_end() -> None:
    """The oldest ones become unknown."""
    sessions = Sessions[str]("queue")
    names = [sessions.create("core").name for _ in range(2)]
    sessions.delete(names[0])
    for _ in range(REMEMBERED_MAX):
        sessions.delete(sessions.create("core").name)
    with pytest.raises(SessionExpiredError) as error:
        sessions.get(session_pb2.Stamp(session_id=names[0]))
    assert error.value.metadata == {"reason": "unknown"}


@contextmanager
def called_by(name: str) -> Iterator[None]:
    """Make `name` the present caller."""
    token = identity._CALLER.set(identity._Caller(name))
    try:
        yield
    finally:
        identity._CALLER.reset(token)


def test_another_caller_cannot_use_a_session() -> None:
    """Another caller can neither use nor end it, whether it has the name or not."""
    sessions = Sessions[str]("queue")
    with called_by("alice"):
        session = sessions.create("core")
    for stranger in ("mallory", ""):
        with called_by(stranger):
            with pytest.raises(PermissionDeniedError):
                sessions.get(stamp_of(session))
            with pytest.raises(PermissionDeniedError):
                sessions.delete(session.name)
    with called_by("alice"):
        assert sessions.get(stamp_of(session)) is session
        assert sessions.delete(session.name) is session


def test_one_caller_does_not_take_all_sessions_or_streams() -> None:
    """Each has its own count; the refusal names the limit."""
    sessions = Sessions[str]("queue", Limits(caller_sessions=2, caller_streams=1))
    with called_by("greedy"):
        sessions.create("core")
        first = sessions.create("core")
        with pytest.raises(LimitError) as error:
            sessions.create("core")
        assert error.value.limit == "caller_sessions"
        with sessions.call(), pytest.raises(LimitError) as error, sessions.call():
            pass
        assert error.value.limit == "caller_streams"
        with sessions.call():
            pass
    with called_by("modest"):
        sessions.create("core")
    with called_by("greedy"):
        sessions.delete(first.name)
        sessions.create("core")


def test_a_session_holds_no_more_objects_than_its_limit() -> None:
    """Requests that add nothing are accepted still."""
    sessions = Sessions[str]("queue", Limits(session_objects=10))
    session = sessions.create("core")
    sessions.make_room(session, 8, 2, 2)
    with pytest.raises(LimitError) as error:
        sessions.make_room(session, 10, 1, 1)
    assert error.value.limit == "session_objects"
    sessions.make_room(session, 10, 1, 0)


def test_what_a_callers_sessions_hold_is_limited_in_bytes() -> None:
    """The size of requests that added objects counts until the session ends."""
    sessions = Sessions[str]("queue", Limits(caller_bytes=3000))
    first, second = sessions.create("core"), sessions.create("core")
    token = RECEIVED_BYTES.set(1000)
    try:
        sessions.make_room(first, 0, 10, 10)
        sessions.make_room(first, 10, 10, 10)
        sessions.make_room(first, 20, 10, 10)
        assert first.held.size == 2000
        for _ in range(3):  # pods come and go: nothing is added
            sessions.make_room(first, 20, 10, 0)
        assert first.held.size == 2000
        RECEIVED_BYTES.set(1500)
        with pytest.raises(LimitError) as error:
            sessions.make_room(second, 0, 10, 10)
        assert error.value.limit == "caller_bytes"
        sessions.make_room(first, 5, 10, 0)
        assert first.held.size == 500
        sessions.make_room(second, 0, 10, 10)
    finally:
        RECEIVED_BYTES.reset(token)


def test_a_process_above_its_memory_limit_accepts_no_new_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither sessions nor objects; what is there continues."""
    sessions = Sessions[str]("queue", Limits(process_bytes=1))
    monkeypatch.setattr("services.rpc.limits._resident_bytes", lambda: 0)
    sessions._ceiling = Ceiling(sessions.limits, lambda: 2)
    with pytest.raises(LimitError) as error:
        sessions.create("core")
    assert error.value.limit == "process_bytes"


def test_a_session_that_broke_is_refused_with_the_reason() -> None:
    """It may be half changed."""
    sessions = Sessions[str]("queue")
    session = sessions.create("core")
    for error, text in ((UnavailableError("the queue"), "the queue"), (KeyError("x"), "internal")):
        session.set_broken(error)
        with pytest.raises(SessionBrokenError, match=text) as caught:
            sessions.get(stamp_of(session))
        assert "'x'" not in str(caught.value)


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["sessions=5", "caller_bytes=2Gi"], {"sessions": 5, "caller_bytes": 2 * 2**30}),
        (["message_bytes=0"], {"message_bytes": 0}),
    ],
)
def test_limits_are_set_by_name(texts: list[str], found: dict[str, int]) -> None:
    """As quantities are written."""
    limits = Limits().with_values(texts)
    assert {name: getattr(limits, name) for name in found} == found


@pytest.mark.parametrize("text", ["sessions", "idle_s=4", "nobody=3", "sessions=-1", "sessions=x"])
def test_a_limit_that_cannot_be_set_is_refused(text: str) -> None:
    """With what was written."""
    with pytest.raises(ValueError, match=text.partition("=")[0]):
        Limits().with_values([text])


class Cyclic:
    """A session's state that refers to itself, as those of the scheduler do."""

    def __init__(self) -> None:
        self.own = self


def test_one_collection_is_due_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many sessions end before it; those that end later are collected by another one."""
    monkeypatch.setattr(sessions_module, "_COLLECT_AFTER_S", 0.0)
    collections = list[int]()
    monkeypatch.setattr(gc, "collect", lambda: collections.append(1))

    async def use(sessions: Sessions[Cyclic], count: int) -> None:
        for _ in range(count):
            sessions.delete(sessions.create(Cyclic()).name)
        await asyncio.sleep(0.01)

    async def use_twice() -> None:
        sessions: Sessions[Cyclic] = Sessions("test")
        await use(sessions, 100)
        assert len(collections) == 1
        await use(sessions, 100)

    asyncio.run(use_twice())
    assert len(collections) == 2


def test_the_memory_of_ended_sessions_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Soon, and in proportion to what they held; the collector itself looks far too seldom."""
    monkeypatch.setattr(sessions_module, "_COLLECT_AFTER_S", 0.0)
    cores: weakref.WeakSet[Cyclic] = weakref.WeakSet()

    async def use(count: int, remain_max: int) -> None:
        made: Sessions[Cyclic] = Sessions("test")
        lasting = made.create(Cyclic())
        lasting.held.objects = 50_000
        for _ in range(count):
            core = Cyclic()
            cores.add(core)
            made.delete(made.create(core).name)
        deadline_s = time.monotonic() + 60
        while len(cores) > remain_max and time.monotonic() < deadline_s:
            await asyncio.sleep(0.01)
        assert len(made) == 1

    gc.collect()
    gc.disable()
    try:
        asyncio.run(use(45, remain_max=45))
        assert len(cores) == 45
        asyncio.run(use(60, remain_max=19))
        assert len(cores) < 20
    finally:
        gc.enable()
