"""Checks of what all three services have in common: sessions, their order, their checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from replay.conform.contract import (
    Check,
    CheckError,
    Client,
    NotServedError,
    Session,
    expect,
    expect_same,
    refused,
)
from reprieve.session.v1beta1 import session_pb2

CHUNK_BYTES_MAX = 1024 * 1024
SPAN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED


def session_checks(*, stream_level: int) -> list[Check]:
    """Return the checks; at which level the stream is needed depends on who calls the service."""
    return [
        *(Check(1, each) for each in (creates_and_deletes_sessions, says_what_it_serves)),
        *(Check(2, each) for each in _ORDER),
        *(Check(4, each) for each in _CHECKPOINTS),
        Check(stream_level, streams_what_it_answers_one_by_one),
    ]


def creates_and_deletes_sessions(client: Client) -> None:
    """Each has a name of its own and its own order; one that is unknown is deleted as well."""
    first, second = client.session(), client.session()
    if first.opened.session == second.opened.session:
        raise CheckError("session is the same for two sessions, expected one of its own for each")
    story = client.contract.story()
    for session in (first, second):
        session.send(story[0])
    first.send(story[1])
    for name in (first.opened.session, first.opened.session, "nobody's"):
        client.delete(name)
    second.send(story[1])


def says_what_it_serves(client: Client) -> None:
    """What Session leaves out is UNIMPLEMENTED and breaks nothing; what it names is there."""
    session = client.session()
    session.send(client.contract.story()[0])
    _is_served(session.state)
    serves = _is_served(session.checkpoint)
    expect("Session.resumable", session.opened.resumable, wanted=serves)
    if not serves:
        expect("RestoreSession is served", _is_served(lambda: session.restored([])), wanted=False)
    session.send(client.contract.story()[1])


def refuses_a_number_out_of_order(client: Client) -> None:
    """Neither the last one nor the next: nothing is done, and the next one is named."""
    session, story = client.session(), client.contract.story()
    session.send(story[0])
    for sequence in (3, 0):
        asked = session.stamped(story[1], sequence)
        _refuses(session, asked, "ABORTED", "SEQUENCE_MISMATCH", expected_sequence="2")
    asked.stamp.ClearField("sequence")
    _refuses(session, asked, "INVALID_ARGUMENT", "BAD_FIELD", "stamp.sequence")
    session.send(story[1])


def repeats_an_answer_without_doing_it_twice(client: Client) -> None:
    """Also under another span; what follows is as if the request had come once."""
    repeated, once = client.session(), client.session()
    for request in client.contract.story():
        stamped = repeated.stamped(request)
        answer = repeated.send(request)
        stamped.stamp.traceparent = SPAN
        again = client.call(client.contract.method, stamped)
        expect("sequence", again.sequence, repeated.sequence)
        expect_same("the answer to the same request again", again, answer)
        expect_same("an answer after a repeated request", answer, once.send(request))


def refuses_another_request_under_the_same_number(client: Client) -> None:
    """A number belongs to one request."""
    session, story = client.session(), client.contract.story()
    session.send(story[0])
    asked = session.stamped(story[1], 1)
    _refuses(session, asked, "ABORTED", "SEQUENCE_REUSED", expected_sequence="2")
    session.send(story[1])


def refuses_a_session_that_has_gone(client: Client) -> None:
    """Like one that never was; a request without one is malformed."""
    session, story = client.session(), client.contract.story()
    session.send(story[0])
    asked = session.stamped(story[1])
    client.delete(session.opened.session)
    _refuses(session, asked, "NOT_FOUND", "SESSION_EXPIRED")
    asked.stamp.session = "nobody's"
    _refuses(session, asked, "NOT_FOUND", "SESSION_EXPIRED")
    asked.stamp.session = ""
    _refuses(session, asked, "INVALID_ARGUMENT", "BAD_FIELD", "stamp.session")


def refuses_time_that_goes_backwards(client: Client) -> None:
    """The request changes nothing, and its number is free for another one."""
    session, story = client.session(), client.contract.story()
    session.send(story[1])
    asked = session.stamped(story[0])
    _refuses(session, asked, "FAILED_PRECONDITION", "TIME_GOES_BACKWARDS")
    session.send(story[2])


def refuses_a_malformed_request_whole(client: Client) -> None:
    """By the field; what stands before it in the request is not done either."""
    untouched = client.session()
    wanted = untouched.send(client.contract.story()[0])
    for field, request in client.contract.malformed().items():
        session = client.session()
        asked = session.stamped(request)
        _refuses(session, asked, "INVALID_ARGUMENT", "BAD_FIELD", field)
        seen = session.send(client.contract.story()[0])
        expect_same(f"an answer after a request was refused for {field}", seen, wanted)


def goes_on_from_a_checkpoint(client: Client) -> None:
    """A session saved after any request goes on as it would have, and its number begins at 1."""
    session, story = _resumable(client), client.contract.story()
    saved: list[Session] = []
    for request in story:
        answer = session.send(request)
        for restored in saved:
            expect_same("an answer of a restored session", restored.send(request), answer)
        chunks = session.checkpoint()
        expect("info.service", chunks[0].info.service, client.contract.service)
        expect("info.version and format", bool(chunks[0].info.version), wanted=True)
        if max(len(each.data) for each in chunks) > CHUNK_BYTES_MAX:
            raise CheckError(f"data is of more than {CHUNK_BYTES_MAX} bytes in a chunk")
        saved.append(session.restored(chunks))
        names = {each.opened.session for each in (session, *saved)}
        expect("names of sessions and of those restored", len(names), len(saved) + 1)


def refuses_a_checkpoint_that_is_not_its_own(client: Client) -> None:
    """One of another service; and a stream that is cut off."""
    session = _resumable(client)
    session.send(client.contract.story()[0])
    chunks = session.checkpoint()
    foreign = session_pb2.CheckpointChunk(info=chunks[0].info, data=chunks[0].data)
    foreign.info.service = "another"
    code, reason = "FAILED_PRECONDITION", "FOREIGN_CHECKPOINT"
    refused(lambda: session.restored([foreign, *chunks[1:]]), code, reason)
    cut = session_pb2.CheckpointChunk(info=chunks[0].info, data=chunks[0].data[:-1])
    torn = [*chunks[:-1], session_pb2.CheckpointChunk(data=chunks[-1].data[:-1])]
    cut_off = torn if len(chunks) > 1 else [cut]
    for each in (cut_off, []):
        refused(lambda sent=each: session.restored(sent), "INVALID_ARGUMENT", "BAD_FIELD")


def shows_its_state_without_counting(client: Client) -> None:
    """GetState has no number, and the next request goes on as if nobody had looked."""
    looked, other = client.session(), client.session()
    seen: Any = None
    for request in client.contract.story():
        expect_same("an answer after GetState", looked.send(request), other.send(request))
        seen = looked.state()
        expect_same("GetState, asked again", looked.state(), seen)
    expect("GetState shows something", bool(seen.ListFields()), wanted=True)


def streams_what_it_answers_one_by_one(client: Client) -> None:
    """One answer for each request, in order; a request with a window may have several."""
    streamed, unary = client.session(), client.session()
    requests = [streamed.stamped(each, n) for n, each in enumerate(client.contract.story(), 1)]
    answers = list(client.call(f"Streaming{client.contract.method}", iter(requests)))
    expect("answers of the stream", len(answers), len(requests))
    for request, answer in zip(requests, answers, strict=True):
        expect_same("an answer of the stream", streamed.taken(request, answer), unary.send(request))


_ORDER = (
    refuses_a_number_out_of_order,
    repeats_an_answer_without_doing_it_twice,
    refuses_another_request_under_the_same_number,
    refuses_a_session_that_has_gone,
    refuses_time_that_goes_backwards,
    refuses_a_malformed_request_whole,
)
_CHECKPOINTS = (
    goes_on_from_a_checkpoint,
    refuses_a_checkpoint_that_is_not_its_own,
    shows_its_state_without_counting,
)


def _resumable(client: Client) -> Session:
    session = client.session()
    if not session.opened.resumable:
        raise NotServedError("Session.resumable is false")
    return session


def _is_served(call: Callable[[], object]) -> bool:
    try:
        call()
    except grpc.RpcError as error:
        if isinstance(error, grpc.Call) and error.code() is _UNIMPLEMENTED:
            return False
        raise
    return True


def _refuses(
    session: Session, request: Any, code: str, reason: str, field: str = "", **metadata: str
) -> None:
    method = session.client.contract.method
    refused(lambda: session.client.call(method, request), code, reason, field, **metadata)
