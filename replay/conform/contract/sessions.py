"""Checks of what the three services have in common: sessions, their order, their checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from replay.conform.contract.checks import (
    Check,
    CheckError,
    Checks,
    Client,
    NotServedError,
    Session,
    expect,
    expect_same,
    refused,
)
from reprieve.session.v1beta1.session_pb2 import CheckpointChunk

CHUNK_BYTES_MAX = 1024 * 1024
SPAN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_CHECKS = Checks()


def session_checks(*, stream_level: int) -> Checks:
    """Return new Checks of these; who calls a service decides at which level its stream is."""
    return Checks([*_CHECKS, Check(stream_level, streams_what_it_answers_one_by_one)])


@_CHECKS.level(1)
def creates_and_deletes_sessions(client: Client) -> None:
    """Check that each has its name and its order, and that unknown ones are deleted as well."""
    first, second = client.session(), client.session()
    expect("session is one of its own", first.name != second.name, wanted=True)
    story = client.contract.story()
    for session, request in ((first, 0), (second, 0), (first, 1)):
        session.send(story[request])
    for name in (first.name, first.name, "nobody's"):
        client.delete(name)
    second.send(story[1])


@_CHECKS.level(1)
def says_what_it_serves(client: Client) -> None:
    """Check that what Session leaves out is UNIMPLEMENTED, and that asking for it does no harm."""
    session, story = client.session(), client.contract.story()
    session.send(story[0])
    _is_served(session.state)
    serves = _is_served(session.checkpoint)
    expect("Session.resumable", session.opened.resumable, wanted=serves)
    if not serves:
        expect("RestoreSession is served", _is_served(lambda: session.restored([])), wanted=False)
    session.send(story[1])


@_CHECKS.level(2)
def refuses_a_number_out_of_order(client: Client) -> None:
    """Check that nothing is done, and the next number is named."""
    session, story = client.session(), client.contract.story()
    session.send(story[0])
    for sequence in (3, 0):
        asked = session.stamped(story[1], sequence)
        _refuses(session, asked, "ABORTED", "SEQUENCE_MISMATCH", expected_sequence="2")
    asked.stamp.ClearField("sequence")
    _refuses(session, asked, "INVALID_ARGUMENT", "BAD_FIELD", "stamp.sequence")
    session.send(story[1])


@_CHECKS.level(2)
def repeats_an_answer_without_doing_it_twice(client: Client) -> None:
    """Check that the answer is the last one, also under another span, and so are later ones."""
    repeated, once = client.session(), client.session()
    for request in client.contract.story():
        stamped = repeated.stamped(request)
        answer = repeated.send(request)
        stamped.stamp.traceparent = SPAN
        again = client.call(client.contract.method, stamped)
        expect("sequence of the same request again", again.sequence, repeated.sequence)
        expect_same("the answer to the same request again", again, answer)
        expect_same("an answer after a repeated request", answer, once.send(request))


@_CHECKS.level(2)
def refuses_another_request_under_the_same_number(client: Client) -> None:
    """Check that a number belongs to one request."""
    session, story = client.session(), client.contract.story()
    session.send(story[0])
    asked = session.stamped(story[1], 1)
    _refuses(session, asked, "ABORTED", "SEQUENCE_REUSED", expected_sequence="2")
    session.send(story[1])


@_CHECKS.level(2)
def refuses_a_session_that_has_gone(client: Client) -> None:
    """Check that it is like one that never was, and that none at all is malformed."""
    session, story = client.session(), client.contract.story()
    session.send(story[0])
    asked = session.stamped(story[1])
    client.delete(session.name)
    _refuses(session, asked, "NOT_FOUND", "SESSION_EXPIRED", of="a session that was deleted")
    asked.stamp.session = "nobody's"
    _refuses(session, asked, "NOT_FOUND", "SESSION_EXPIRED", of="a session that never was")
    asked.stamp.session = ""
    _refuses(session, asked, "INVALID_ARGUMENT", "BAD_FIELD", "stamp.session")


@_CHECKS.level(2)
def refuses_time_that_goes_backwards(client: Client) -> None:
    """Check that the request changes nothing, and that its number is free for another one."""
    session, story = client.session(), client.contract.story()
    session.send(story[1])
    asked = session.stamped(story[0])
    _refuses(session, asked, "FAILED_PRECONDITION", "TIME_GOES_BACKWARDS")
    session.send(story[2])


@_CHECKS.level(2)
def refuses_a_malformed_request_whole(client: Client) -> None:
    """Check that the field is named, and that what stands before it is not done either."""
    first = client.contract.story()[0]
    wanted = client.session().send(first)
    for field, request in client.contract.malformed().items():
        session = client.session()
        asked = session.stamped(request)
        _refuses(session, asked, "INVALID_ARGUMENT", "BAD_FIELD", field, of=f"a bad {field}")
        expect_same(f"an answer after a refusal of {field}", session.send(first), wanted)


@_CHECKS.level(4)
def goes_on_from_a_checkpoint(client: Client) -> None:
    """Check that a session saved after any request goes on as it would have, numbered from 1."""
    session, saved = _resumable(client), list[Session]()
    for request in client.contract.story():
        answer = session.send(request)
        for each in saved:
            expect_same("an answer of a restored session", each.send(request), answer)
        chunks = session.checkpoint()
        expect("info.service", chunks[0].info.service, client.contract.service)
        expect("info.version is set", bool(chunks[0].info.version), wanted=True)
        if max(len(each.data) for each in chunks) > CHUNK_BYTES_MAX:
            raise CheckError(f"data of a chunk is longer than expected, {CHUNK_BYTES_MAX} bytes")
        saved.append(session.restored(chunks))
    names = {each.name for each in (session, *saved)}
    expect("names of the session and of those restored", len(names), len(saved) + 1)


@_CHECKS.level(4)
def refuses_a_checkpoint_that_is_not_its_own(client: Client) -> None:
    """Check one of another service, one that is cut off, and none."""
    session = _resumable(client)
    session.send(client.contract.story()[0])
    chunks = session.checkpoint()
    foreign, cut = list(map(_copy, chunks)), list(map(_copy, chunks))
    foreign[0].info.service = "another"
    cut[-1].data = cut[-1].data[:-1]
    code, reason = "FAILED_PRECONDITION", "FOREIGN_CHECKPOINT"
    refused(lambda: session.restored(foreign), code, reason)
    refused(lambda: session.restored(cut), "INVALID_ARGUMENT", "BAD_FIELD")
    refused(lambda: session.restored([]), "INVALID_ARGUMENT", "BAD_FIELD")


@_CHECKS.level(4)
def shows_its_state_without_counting(client: Client) -> None:
    """Check that GetState has no number, and that nothing follows from it."""
    looked, other = client.session(), client.session()
    for request in client.contract.story():
        expect_same("an answer after GetState", looked.send(request), other.send(request))
        state = looked.state()
        expect_same("GetState, asked again", looked.state(), state)
    expect("GetState shows something", bool(state.ListFields()), wanted=True)


def streams_what_it_answers_one_by_one(client: Client) -> None:
    """Check that a stream has the answers of the unary calls, in order."""
    streamed, unary = client.session(), client.session()
    requests = [streamed.stamped(each, n) for n, each in enumerate(client.contract.story(), 1)]
    answers = list(client.call(f"Streaming{client.contract.method}", iter(requests)))
    expect("answers of the stream", len(answers), len(requests))
    for request, answer in zip(requests, answers, strict=True):
        expect_same("an answer of the stream", streamed.taken(request, answer), unary.send(request))


def _copy(chunk: CheckpointChunk) -> CheckpointChunk:
    return CheckpointChunk.FromString(chunk.SerializeToString())


def _resumable(client: Client) -> Session:
    session = client.session()
    if not session.opened.resumable:
        raise NotServedError("Session.resumable is false")
    return session


def _is_served(call: Callable[[], object]) -> bool:
    try:
        call()
    except grpc.RpcError as error:
        if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return False
        raise
    return True


def _refuses(
    session: Session, request: Any, code: str, *reason: str, of: str = "", **metadata: str
) -> None:
    """Check that a request is refused; `of` says what is wrong with it."""
    client = session.client
    try:
        refused(lambda: client.call(client.contract.method, request), code, *reason, **metadata)
    except CheckError as error:
        raise CheckError(f"{error} ({of})" if of else str(error)) from None
