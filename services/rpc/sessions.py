"""Sessions: their ids, the last request kept for retries, and their checkpoints.

A request's stamp has a session's name and a sequence number. The last number again returns the last
response; the next number is carried out; any other is refused, before anything is changed.

A checkpoint has a service's state as JSON, in one zstd frame, split into chunks. The first chunk
has the name of the service that wrote it, its version and FORMAT; only the same service of the same
version and format reads it.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import orjson
import zstandard
from google.protobuf.message import DecodeError

from reprieve.session.v1beta1 import session_pb2
from services.rpc.errors import (
    FieldError,
    LimitError,
    PreconditionError,
    RefusalError,
    SequenceMismatchError,
    SequenceReusedError,
    SessionExpiredError,
    TimeGoesBackwardsError,
)
from services.rpc.version import package_version
from services.typed import DataError

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


FORMAT = 4
"""Number of the format in which all services write their states; 1 had fields without names."""

CHUNK_BYTES_MAX = 1024 * 1024
STATE_BYTES_MAX = 4 * 1024 * 1024 * 1024
_LEVEL = 3
_NO_STATE = (LookupError, TypeError, ValueError, AssertionError, DecodeError, RefusalError)


class ForeignCheckpointError(PreconditionError):
    """A checkpoint of another service, version or format."""

    reason = "FOREIGN_CHECKPOINT"


def checkpoint_info(service: str, session: Session[Core]) -> session_pb2.CheckpointInfo:
    """Return the info of a checkpoint of `session`; `service` is the service's short name."""
    return session_pb2.CheckpointInfo(
        service=service, version=package_version(), format=FORMAT, at_ns=max(0, session.at_ns)
    )


def restore_session(
    sessions: Sessions[Core], info: session_pb2.CheckpointInfo, core: Core
) -> Session[Core]:
    """Start a session with the state of a checkpoint. Raises LimitError."""
    session = sessions.create(core)
    session.at_ns = info.at_ns
    return session


def write_checkpoint(
    info: session_pb2.CheckpointInfo, state: bytes
) -> Iterator[session_pb2.CheckpointChunk]:
    """Yield the chunks of a checkpoint; `state` is JSON."""
    data = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(state)
    yield session_pb2.CheckpointChunk(info=info, data=data[:CHUNK_BYTES_MAX])
    for start in range(CHUNK_BYTES_MAX, len(data), CHUNK_BYTES_MAX):
        yield session_pb2.CheckpointChunk(data=data[start : start + CHUNK_BYTES_MAX])


async def read_checkpoint(
    service: str, chunks: AsyncIterator[session_pb2.CheckpointChunk]
) -> tuple[session_pb2.CheckpointInfo, Any]:
    """Return the info of a checkpoint of `service`, and its state, loaded from JSON.

    The state is not checked further. Raises FieldError for what is not a checkpoint,
    ForeignCheckpointError for another service's, and LimitError above STATE_BYTES_MAX.
    """
    info: session_pb2.CheckpointInfo | None = None
    reader = zstandard.ZstdDecompressor().decompressobj()
    state = bytearray()
    async for chunk in chunks:
        if info is None:
            info = _checked(service, chunk)
        elif chunk.HasField("info"):
            raise FieldError("info", "is for the first chunk only")
        try:
            state += reader.decompress(chunk.data)
        except zstandard.ZstdError as error:
            raise FieldError("data", f"is not a checkpoint: {error}") from None
        if len(state) > STATE_BYTES_MAX:
            raise LimitError(f"a checkpoint may hold {STATE_BYTES_MAX} bytes of state")
    if info is None:
        raise FieldError("info", "is required: the stream ended before the first one")
    if not reader.eof:
        raise FieldError("data", "is cut off: the last chunks are missing")
    try:
        return info, orjson.loads(state)
    except orjson.JSONDecodeError as error:
        raise FieldError("data", f"is not a checkpoint: {error}") from None


@contextmanager
def reading_state(service: str) -> Iterator[None]:
    """Raise FieldError for a state that cannot be read or that contradicts itself."""
    try:
        yield
    except DataError as error:
        where = f"{error.field}: " if error.field else ""
        raise FieldError("data", f"is not a state of the {service}: {where}{error}") from None
    except _NO_STATE as error:
        raise FieldError("data", f"is not a state of the {service}: {error!r}") from None


def _checked(service: str, chunk: session_pb2.CheckpointChunk) -> session_pb2.CheckpointInfo:
    info = chunk.info
    if not chunk.HasField("info"):
        raise FieldError("info", "is required in the first chunk")
    if info.service != service:
        raise ForeignCheckpointError(
            f"info.service: the {service} service does not read a checkpoint of {info.service!r}"
        )
    if info.version != package_version():
        raise ForeignCheckpointError(
            f"info.version: version {package_version()} does not read a checkpoint of "
            f"version {info.version!r}"
        )
    if info.format != FORMAT:
        raise ForeignCheckpointError(
            f"info.format: version {package_version()} reads format {FORMAT}, and this "
            f"checkpoint has format {info.format or 1}"
        )
    return info
