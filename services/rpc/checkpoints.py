"""Checkpoints: a service's state as JSON, in one zstd frame, split into chunks.

The first chunk has the name and version of the service that wrote it, and FORMAT. Only the same
service with the same version and format can read the checkpoint.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
import zstandard

from reprieve.session.v1beta1 import session_pb2
from services.rpc.errors import FieldError, PreconditionError
from services.rpc.limits import DEFAULT_LIMITS, Limits
from services.rpc.session import Session
from services.rpc.sessions import Sessions
from services.rpc.version import package_version
from services.typed import DataError

Content = TypeVar("Content")

FORMAT = 5
"""Number of the format in which all services write their states."""

_KINDS = {
    "queue": session_pb2.SERVICE_KIND_QUEUE,
    "scheduler": session_pb2.SERVICE_KIND_SCHEDULER,
    "eviction": session_pb2.SERVICE_KIND_EVICTION,
    "autoscaler": session_pb2.SERVICE_KIND_AUTOSCALER,
}
"""The services by their short names."""

_NAMES = {kind: f"the {name} service" for name, kind in _KINDS.items()}

CHUNK_BYTES_MAX = 1024 * 1024
_LEVEL = 3
_PIECE_BYTES = 1024
"""Bytes to decompress at a time; they expand to at most 32 MiB: 4 bytes can be a 128 KiB block."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that was read: its info, the state parsed from JSON, and its size in bytes."""

    info: session_pb2.CheckpointInfo
    state: Any
    size: int


class ForeignCheckpointError(PreconditionError):
    """A checkpoint of another service, version or format."""

    reason = "FOREIGN_CHECKPOINT"


def checkpoint_info(service: str, session: Session[Content]) -> session_pb2.CheckpointInfo:
    """Return the info of a checkpoint of `session`; `service` is the service's short name."""
    return session_pb2.CheckpointInfo(
        service=_KINDS[service],
        version=package_version(),
        format=FORMAT,
        time_ns=max(0, session.at_ns),
    )


def restore_session(
    sessions: Sessions[Content], checkpoint: Checkpoint, content: Content, objects: int
) -> Session[Content]:
    """Start a session with a checkpoint's state, which has `objects` objects. Raises LimitError."""
    session = sessions.create(content, objects, checkpoint.size)
    session.at_ns = checkpoint.info.time_ns
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
    service: str,
    chunks: AsyncIterator[session_pb2.CheckpointChunk],
    limits: Limits = DEFAULT_LIMITS,
) -> Checkpoint:
    """Return a checkpoint of `service`.

    The state is not checked further. Raises FieldError for invalid chunks, ForeignCheckpointError
    for another service's checkpoint, and LimitError above the limit checkpoint_bytes.
    """
    info: session_pb2.CheckpointInfo | None = None
    reader = zstandard.ZstdDecompressor().decompressobj()
    state = bytearray()
    async for chunk in chunks:
        if info is None:
            info = _checked(service, chunk)
        elif chunk.HasField("info"):
            raise FieldError("info", "is for the first chunk only")
        for start in range(0, len(chunk.data), _PIECE_BYTES):
            if reader.eof:
                raise FieldError("data", "is not a checkpoint: bytes follow its end")
            try:
                state += reader.decompress(chunk.data[start : start + _PIECE_BYTES])
            except zstandard.ZstdError as error:
                raise FieldError("data", f"is not a checkpoint: {error}") from None
            limits.check("checkpoint_bytes", len(state), "bytes of state in a checkpoint")
    if info is None:
        raise FieldError("info", "is required: the stream ended before the first one")
    if not reader.eof:
        raise FieldError("data", "is cut off: the last chunks are missing")
    try:
        return Checkpoint(info, orjson.loads(state), len(state))
    except orjson.JSONDecodeError as error:
        raise FieldError("data", f"is not a checkpoint: {error}") from None


@contextmanager
def reading_state(service: str) -> Iterator[None]:
    """Turn any error of reading a state into a FieldError."""
    try:
        yield
    except DataError as error:
        where = f"{error.field}: " if error.field else ""
        raise FieldError("data", f"is not a state of the {service}: {where}{error}") from None
    except Exception as error:  # only the state is read here, so every error means a bad state
        raise FieldError("data", f"is not a state of the {service}: {error!r}") from None


def _checked(service: str, chunk: session_pb2.CheckpointChunk) -> session_pb2.CheckpointInfo:
    info = chunk.info
    if not chunk.HasField("info"):
        raise FieldError("info", "is required in the first chunk")
    if info.service != _KINDS[service]:
        written_by = _NAMES.get(info.service, f"service kind {info.service}")
        raise ForeignCheckpointError(
            f"info.service: the {service} service does not read a checkpoint of {written_by}"
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
