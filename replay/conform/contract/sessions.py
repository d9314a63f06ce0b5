"""Checks of what all services have in common: sessions, their order, and checkpoints.

The rules that they check, S1 to S12, are those of docs/sessions.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from replay.backends.stream import describe
from replay.conform.contract.checks import (
    Check,
    CheckedSession,
    CheckError,
    Checks,
    ContractClient,
    NotServedError,
    expect,
    expect_refusal,
    expect_same,
)
from reprieve.session.v1beta1 import session_pb2
from reprieve.session.v1beta1.session_pb2 import CheckpointChunk

CHUNK_BYTES_MAX = 1024 * 1024
SPAN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_CHECKS = Checks()


def session_checks(*, stream_level: int) -> Checks:
    """Return new Checks with these; `stream_level` is the level of the service's stream."""
    return Checks([*_CHECKS, Check(stream_level, streams_the_responses_of_unary_calls, "S12")])


@_CHECKS.level(1, rule="S1")
def creates_and_deletes_sessions(client: ContractClient) -> None:
    """Check that each has its own name and order, and that unknown ones can be deleted."""
    first, second = client.session(), client.session()
    expect("session is one of its own", first.name != second.name, expected=True)
    story = client.contract.story()
    answers = [first.send(story[0]), first.send(story[1])]
    expect_same("a response of another session", second.send(story[0]), answers[0])
    for name in (first.name, first.name, "nobody's"):
        client.delete(name)
    expect_same("a response of another session", second.send(story[1]), answers[1])


@_CHECKS.level(1, rule="S2")
def declares_what_it_implements(client: ContractClient) -> None:
    """Check that undeclared methods are UNIMPLEMENTED, and that calling them changes nothing."""
    session, story = client.session(), client.contract.story()
    session.send(story[0])
    _is_served("GetState", session.state)
    stream = f"Streaming{client.contract.method}"
    _is_served(stream, lambda: list(client.call(stream, iter(()))))
    serves = _is_served("CheckpointSession", session.checkpoint)
    expect("Session.resumable", session.opened.resumable, expected=serves)
    if not serves:
        restores = _is_served("RestoreSession", lambda: session.restored([]))
        expect("RestoreSession is served", restores, expected=False)
    session.send(story[1])


@_CHECKS.level(2, rule="S3")
def refuses_a_number_out_of_order(client: ContractClient) -> None:
    """Check that nothing is applied, and that the error has the next number."""
    session, story = client.session(), client.contract.story()
    session.send(story[0])
    for sequence in (3, 0):
        stamped = session.stamped(story[1], sequence)
        _refuses(session, stamped, "ABORTED", "SEQUENCE_MISMATCH", expected_sequence="2")
    stamped.stamp.ClearField("sequence")
    _refuses(session, stamped, "INVALID_ARGUMENT", "BAD_FIELD", "stamp.sequence")
    session.send(story[1])


@_CHECKS.level(2, rule="S4")
def repeats_a_response_without_applying_it_twice(client: ContractClient) -> None:
    """Check that the response is the same, also with another span, and so are later ones."""
    repeated, once = client.session(), client.session()
    for request in client.contract.story():
        stamped = repeated.stamped(request)
        answer = repeated.send(request)
        stamped.stamp.traceparent = SPAN
        again = client.call(client.contract.method, stamped)
        expect("sequence of the same request again", again.sequence, repeated.sequence)
        expect_same("the response to the same request again", again, answer)
        expect_same("a response after a repeated request", answer, once.send(request))


@_CHECKS.level(2, rule="S5")
def refuses_another_request_under_the_same_number(client: ContractClient) -> None:
    """Check that a number belongs to one request."""
    session, story = client.session(), client.contract.story()
    session.send(story[0])
    stamped = session.stamped(story[1], 1)
    _refuses(session, stamped, "ABORTED", "SEQUENCE_REUSED", expected_sequence="2")
    session.send(story[1])


@_CHECKS.level(2, rule="S6")
def refuses_a_deleted_session(client: ContractClient) -> None:
    """Check that it is like an unknown session, and that an absent one is malformed."""
    session, story = client.session(), client.contract.story()
    session.send(story[0])
    stamped = session.stamped(story[1])
    client.delete(session.name)
    _refuses(session, stamped, "NOT_FOUND", "SESSION_EXPIRED", of="a session that was deleted")
    stamped.stamp.session_id = "nobody's"
    _refuses(session, stamped, "NOT_FOUND", "SESSION_EXPIRED", of="an unknown session")
    stamped.stamp.session_id = ""
    _refuses(session, stamped, "INVALID_ARGUMENT", "BAD_FIELD", "stamp.session_id")


@_CHECKS.level(2, rule="S7")
def refuses_time_that_goes_backwards(client: ContractClient) -> None:
    """Check that the request changes nothing, and that its number can be used again."""
    session, story = client.session(), client.contract.story()
    *before, early = client.contract.backwards()
    for request in before:
        session.send(request)
    _refuses(session, session.stamped(early), "FAILED_PRECONDITION", "TIME_GOES_BACKWARDS")
    session.send(story[2])


@_CHECKS.level(2, rule="S8")
def refuses_a_malformed_request_whole(client: ContractClient) -> None:
    """Check that the error has the field, and that nothing before it is applied."""
    first = client.contract.story()[0]
    accepted = client.session().send(first)
    for field, request in client.contract.malformed().items():
        session = client.session()
        stamped = session.stamped(request)
        _refuses(session, stamped, "INVALID_ARGUMENT", "BAD_FIELD", field, of=f"a bad {field}")
        expect_same(f"a response after a refusal of {field}", session.send(first), accepted)


@_CHECKS.level(4, rule="S9")
def continues_from_a_checkpoint(client: ContractClient) -> None:
    """Check that a session saved after any request continues as if not saved, numbered from 1."""
    session, saved = _resumable(client), list[CheckedSession]()
    for request in client.contract.story():
        answer = session.send(request)
        for restored in saved:
            expect_same("a response of a restored session", restored.send(request), answer)
        if not client.contract.is_between(answer):
            continue
        chunks = session.checkpoint()
        kind = session_pb2.ServiceKind.Name(chunks[0].info.service)
        expect("info.service", kind, f"SERVICE_KIND_{client.contract.service.upper()}")
        expect("info.version is set", bool(chunks[0].info.version), expected=True)
        if max(len(chunk.data) for chunk in chunks) > CHUNK_BYTES_MAX:
            raise CheckError(f"data of a chunk is longer than expected, {CHUNK_BYTES_MAX} bytes")
        saved.append(session.restored(chunks))
    names = {opened.name for opened in (session, *saved)}
    expect("names of the session and of those restored", len(names), len(saved) + 1)


@_CHECKS.level(4, rule="S10")
def refuses_an_invalid_checkpoint(client: ContractClient) -> None:
    """Check one of another service, one that is cut off, and an absent one."""
    session = _resumable(client)
    session.send(client.contract.story()[0])
    chunks = session.checkpoint()
    foreign, cut = list(map(_copy, chunks)), list(map(_copy, chunks))
    kinds = session_pb2.ServiceKind.values()[1:]
    foreign[0].info.service = next(kind for kind in kinds if kind != chunks[0].info.service)
    cut[-1].data = cut[-1].data[:-1]
    code, reason = "FAILED_PRECONDITION", "FOREIGN_CHECKPOINT"
    expect_refusal(lambda: session.restored(foreign), code, reason)
    expect_refusal(lambda: session.restored(cut), "INVALID_ARGUMENT", "BAD_FIELD")
    expect_refusal(lambda: session.restored([]), "INVALID_ARGUMENT", "BAD_FIELD")


@_CHECKS.level(4, rule="S11")
def shows_its_state_without_counting(client: ContractClient) -> None:
    """Check that GetState has no number and changes nothing."""
    looked, other = client.session(), client.session()
    for request in client.contract.story():
        expect_same("a response after GetState", looked.send(request), other.send(request))
        state = looked.state()
        expect_same("GetState again", looked.state(), state)
    expect("GetState shows something", bool(state.ListFields()), expected=True)


def streams_the_responses_of_unary_calls(client: ContractClient) -> None:
    """Check that a stream has the responses of the unary calls, in order."""
    streamed, unary = client.session(), client.session()
    requests = [
        streamed.stamped(request, n) for n, request in enumerate(client.contract.story(), 1)
    ]
    answers = list(client.call(f"Streaming{client.contract.method}", iter(requests)))
    expect("responses of the stream", len(answers), len(requests))
    for request, answer in zip(requests, answers, strict=True):
        expect_same(
            "a response of the stream", streamed.taken(request, answer), unary.send(request)
        )


def _copy(chunk: CheckpointChunk) -> CheckpointChunk:
    return CheckpointChunk.FromString(chunk.SerializeToString())


def _resumable(client: ContractClient) -> CheckedSession:
    session = client.session()
    if not session.opened.resumable:
        raise NotServedError("Session.resumable is false")
    return session


def _is_served(method: str, call: Callable[[], object]) -> bool:
    try:
        call()
    except grpc.RpcError as error:
        status = error.code() if isinstance(error, grpc.Call) else None
        if status is grpc.StatusCode.UNIMPLEMENTED:
            return False
        if status is grpc.StatusCode.UNKNOWN:
            text = f"{method} returned {describe(error)}"
            raise CheckError(f"{text}; what is not served has to return UNIMPLEMENTED") from error
        raise
    return True


def _refuses(
    session: CheckedSession, request: Any, code: str, *reason: str, of: str = "", **metadata: str
) -> None:
    """Check that a request is refused; `of` is its problem, for the error."""
    client = session.client
    try:
        expect_refusal(
            lambda: client.call(client.contract.method, request), code, *reason, **metadata
        )
    except CheckError as error:
        raise CheckError(f"{error} ({of})" if of else str(error)) from None
