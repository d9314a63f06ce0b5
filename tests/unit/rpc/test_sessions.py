"""Sessions: unguessable names, and requests that are repeated or out of order."""

from __future__ import annotations

import pytest

from reprieve.queue.v1beta1 import queue_service_pb2 as pb
from reprieve.session.v1beta1 import session_pb2
from services.rpc.errors import (
    FieldError,
    LimitError,
    RefusalError,
    SequenceMismatchError,
    SequenceReusedError,
    SessionExpiredError,
)
from services.rpc.sessions import SESSIONS_MAX, Session, Sessions

CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def request(sequence: int | None, *, heads: int = 0, traceparent: str = "") -> pb.ApplyRequest:
    """Return a request of the session s."""
    stamp = session_pb2.Stamp(session="s", sequence=sequence, traceparent=traceparent)
    return pb.ApplyRequest(stamp=stamp, heads=heads)


@pytest.fixture(name="session")
def after_request_7() -> Session[str]:
    """Return a session whose last request was the seventh."""
    session = Session(name="s", core="core", sequence=6)
    session.advance(request(7, heads=1), 5, "answer")
    return session


def test_the_next_number_continues_and_the_last_one_again_gets_the_last_answer(
    session: Session[str],
) -> None:
    """The first has no response yet, the second is a safe retry."""
    assert session.repeated(request(8)) is None
    assert session.repeated(request(7, heads=1)) == "answer"


def test_a_retry_may_belong_to_another_span(session: Session[str]) -> None:
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
    wanted = session if made else Session(name="s", core="core")
    with pytest.raises(FieldError, match=f"{made + 1} comes next") as error:
        wanted.repeated(request(None))
    assert error.value.field == "stamp.sequence"


def test_a_new_session_has_no_answer_to_repeat() -> None:
    """Its first request has the number 1; one of 0 was never sent."""
    new = Session(name="s", core="core")
    assert new.repeated(request(1)) is None
    with pytest.raises(SequenceMismatchError):
        new.repeated(request(0))


def test_a_session_that_is_not_there_has_expired() -> None:
    """Whether it was deleted or never was; deleting it again is accepted."""
    sessions = Sessions[str]("queue")
    session = sessions.create("core")
    stamp = session_pb2.Stamp(session=session.name)
    assert sessions.get(stamp) is session
    assert sessions.delete(session.name) is session
    assert sessions.delete(session.name) is None
    for name in (session.name, "never"):
        with pytest.raises(SessionExpiredError) as error:
            sessions.get(session_pb2.Stamp(session=name))
        assert error.value.reason == "SESSION_EXPIRED"


def test_a_name_is_required() -> None:
    """In a stamp as in a deletion."""
    sessions = Sessions[str]("queue")
    with pytest.raises(FieldError) as error:
        sessions.get(session_pb2.Stamp())
    assert error.value.field == "stamp.session"
    with pytest.raises(FieldError) as error:
        sessions.delete("")
    assert error.value.field == "session"


def test_there_is_a_limit_of_sessions_and_no_name_comes_twice() -> None:
    """A deleted one makes room."""
    sessions = Sessions[int]("queue")
    names = [sessions.create(number).name for number in range(SESSIONS_MAX)]
    assert len(set(names)) == SESSIONS_MAX
    assert min(map(len, names)) >= 22  # 128 bits
    with pytest.raises(LimitError, match="DeleteSession"):
        sessions.create(0)
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
