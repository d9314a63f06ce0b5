"""Sessions as docs/sessions.md has them, around a small queue, eviction service or scheduler.

A core applies the requests of one session. A checkpoint is the session's requests, from which
another core is made. Batches of a queue or an eviction service are applied to a copy, which takes
the core's place where nothing was refused; a scheduler checks a round before it applies it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.empty_pb2 import Empty
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from reprieve.session.v1beta1 import session_pb2

LENGTH_BYTES = 4
VERSION = "0.1.0"


class RefusedError(Exception):
    """A request that is refused, with its status code, reason, field and metadata."""

    def __init__(self, code: grpc.StatusCode, reason: str, path: str = "", **metadata: str) -> None:
        super().__init__(f"{reason} {path}".strip())
        self.code, self.reason, self.path, self.metadata = code, reason, path, metadata


def bad_field(path: str) -> RefusedError:
    """Return the refusal of a malformed request."""
    return RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "BAD_FIELD", path)


class Core(Protocol):
    """The state of one session."""

    def apply(self, request: Any) -> Any:
        """Apply a batch and return its response. Raises RefusedError."""

    def state(self) -> Any:
        """Return GetState's response."""


@dataclass(slots=True)
class Session:
    """A core with the requests that it has applied, of which the last may come again."""

    core: Core
    requests: list[Any] = field(default_factory=list)
    sequence: int = 0
    answer: Any = None

    def keep(self, request: Any, answer: Any) -> None:
        """Keep a request that was carried out, with its answer."""
        self.requests.append(request)
        self.sequence, self.answer = request.stamp.sequence, answer


class SmallSessions:
    """The RPCs of a service, as gRPC's generated servicers have them.

    new_core: makes the core of a CreateSessionRequest. opened: makes the service's Session message
    of an identifier and a core.
    """

    service: str
    create_type: Any
    apply_type: Any
    checkpoint_version = VERSION

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._created = 0

    def new_core(self, request: Any) -> Any:
        """Return the core of a new session."""
        raise NotImplementedError

    def opened(self, name: str, core: Any) -> Any:
        """Return the service's message of an opened session."""
        raise NotImplementedError

    def CreateSession(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Open a session of its own."""
        del context
        return self._open(Session(self.new_core(request), [request]))

    def _open(self, session: Session) -> Any:
        self._created += 1
        name = f"session-{self._created}"
        self._sessions[name] = session
        return self.opened(name, session.core)

    def DeleteSession(self, request: Any, context: Any) -> Empty:  # noqa: N802
        """Forget a session, or do nothing."""
        del context
        self._sessions.pop(request.session_id, None)
        return Empty()

    def session(self, stamp: session_pb2.Stamp) -> Session:
        """Return the session of a stamp. Raises RefusedError."""
        if not stamp.session_id:
            raise bad_field("stamp.session_id")
        if stamp.session_id not in self._sessions:
            raise RefusedError(grpc.StatusCode.NOT_FOUND, "SESSION_EXPIRED")
        return self._sessions[stamp.session_id]

    def Apply(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Apply a batch as a whole, or return the kept response."""
        with refusing(context):
            session = self.session(request.stamp)
            if (kept := kept_answer(session, request)) is not None:
                return kept
            core = copy.deepcopy(session.core)
            answer = core.apply(request)
            answer.sequence = request.stamp.sequence
            session.core = core
            session.keep(request, answer)
            return answer

    def StreamingApply(self, request_iterator: Iterable[Any], context: Any) -> Iterator[Any]:  # noqa: N802
        """Apply batches in order."""
        for request in request_iterator:
            yield self.Apply(request, context)

    def GetState(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        """Return the state in one part."""
        with refusing(context):
            yield self.session(request.stamp).core.state()

    def CheckpointSession(  # noqa: N802
        self, request: Any, context: Any
    ) -> Iterator[session_pb2.CheckpointChunk]:
        """Save the requests of a session, each after its length."""
        with refusing(context):
            requests = self.session(request.stamp).requests
            encoded = [request.SerializeToString() for request in requests]
            data = b"".join(len(part).to_bytes(LENGTH_BYTES) + part for part in encoded)
            info = session_pb2.CheckpointInfo(
                service=self._kind(), version=self.checkpoint_version, format=1
            )
            yield session_pb2.CheckpointChunk(info=info, data=data)

    def _kind(self) -> session_pb2.ServiceKind.ValueType:
        return session_pb2.ServiceKind.Value(f"SERVICE_KIND_{self.service.upper()}")

    def RestoreSession(  # noqa: N802
        self, request_iterator: Iterable[session_pb2.CheckpointChunk], context: Any
    ) -> Any:
        """Open a session and apply the saved requests to it."""
        chunks = list(request_iterator)
        with refusing(context):
            if not chunks or not chunks[0].HasField("info"):
                raise bad_field("info")
            if not self.accepts(chunks[0].info.service):
                raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, "FOREIGN_CHECKPOINT")
            create, *batches = self.saved(b"".join(chunk.data for chunk in chunks))
            request = self.create_type.FromString(create)
            session = Session(self.new_core(request), [request])
            for batch in map(self.apply_type.FromString, batches):
                session.core.apply(batch)
                session.requests.append(batch)
            return self._open(session)

    def accepts(self, kind: session_pb2.ServiceKind.ValueType) -> bool:
        """Return whether a checkpoint of a service can be restored."""
        return kind == self._kind()

    def saved(self, data: bytes) -> Iterator[bytes]:
        """Yield the requests of a checkpoint. Raises RefusedError where it is cut."""
        while data:
            end = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES])
            if len(data) < end:
                raise bad_field("data")
            yield data[LENGTH_BYTES:end]
            data = data[end:]


def kept_answer(session: Session, request: Any) -> Any:
    """Return the kept response to a request that came before, None for the next one.

    Raises RefusedError for any other number.
    """
    stamp = request.stamp
    if not stamp.HasField("sequence"):
        raise bad_field("stamp.sequence")
    expected = str(session.sequence + 1)
    if session.answer is not None and stamp.sequence == session.sequence:
        if _compared(request) != _compared(session.requests[-1]):
            reason = "SEQUENCE_REUSED"
            raise RefusedError(grpc.StatusCode.ABORTED, reason, expected_sequence=expected)
        return session.answer
    if stamp.sequence != session.sequence + 1:
        reason = "SEQUENCE_MISMATCH"
        raise RefusedError(grpc.StatusCode.ABORTED, reason, expected_sequence=expected)
    return None


def _compared(request: Any) -> Any:
    same = copy.deepcopy(request)
    same.stamp.traceparent = ""
    same.stamp.ClearField("acknowledged")
    return same


@contextmanager
def refusing(context: Any) -> Iterator[None]:
    """End a call where a request is refused."""
    try:
        yield
    except RefusedError as error:
        _abort(context, error)


def _abort(context: Any, error: RefusedError) -> NoReturn:
    """End a call with a refusal's status and its details."""
    details: list[Any] = [
        error_details_pb2.ErrorInfo(
            reason=error.reason, domain="reprieve.internal", metadata=error.metadata
        )
    ]
    if error.path:
        bad = error_details_pb2.BadRequest()
        bad.field_violations.add(field=error.path, description="is required")
        details.append(bad)
    packed = [AnyMessage() for _ in details]
    for target, detail in zip(packed, details, strict=True):
        target.Pack(detail)
    status = status_pb2.Status(code=error.code.value[0], message=str(error), details=packed)
    context.abort_with_status(rpc_status.to_status(status))
    raise AssertionError("abort_with_status raises")


@contextmanager
def serving(register: Callable[[grpc.Server], None]) -> Iterator[str]:
    """Serve in threads of this process, and yield the address."""
    server = grpc.server(ThreadPoolExecutor(2))
    register(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None)
