"""Checkpoints: chunks of a bounded size, and refusals of anything else."""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from collections.abc import AsyncIterator, Sequence

import orjson
import pytest
import zstandard

from reprieve.session.v1beta1 import session_pb2
from services.rpc.checkpoints import (
    CHUNK_BYTES_MAX,
    Checkpoint,
    ForeignCheckpointError,
    checkpoint_info,
    read_checkpoint,
    restore_session,
    write_checkpoint,
)
from services.rpc.errors import FieldError, LimitError
from services.rpc.limits import DEFAULT_LIMITS, Limits
from services.rpc.sessions import Sessions
from services.rpc.version import package_version

Chunks = Sequence[session_pb2.CheckpointChunk]


def _chunks(plain: object) -> Chunks:
    session = Sessions[object]("queue").create(plain)
    session.at_ns = 5
    return list(write_checkpoint(checkpoint_info("queue", session), orjson.dumps(plain)))


def _read(chunks: Chunks, service: str = "queue", limits: Limits = DEFAULT_LIMITS) -> Checkpoint:
    async def stream() -> AsyncIterator[session_pb2.CheckpointChunk]:
        for chunk in chunks:
            yield chunk

    return asyncio.run(read_checkpoint(service, stream(), limits))


def test_a_state_is_read_back_unchanged() -> None:
    """With its info, and with exact 64-bit integers."""
    plain = {"a": [1, None, True, "x"], "least": -(2**63), "most": 2**63 - 1}
    state = _read(_chunks(plain))
    assert (state.state, state.size) == (plain, len(orjson.dumps(plain)))
    info = state.info
    assert (info.service, info.version, info.time_ns) == (
        session_pb2.SERVICE_KIND_QUEUE,
        package_version(),
        5,
    )


def test_a_big_state_comes_in_chunks_of_1_mib_at_most() -> None:
    """Only the first names the whole."""
    plain = random.Random(1).randbytes(2 * CHUNK_BYTES_MAX).hex()  # noqa: S311 - bytes that do not compress
    chunks = _chunks(plain)
    assert len(chunks) > 2
    assert max(len(chunk.data) for chunk in chunks) == CHUNK_BYTES_MAX
    assert [chunk.HasField("info") for chunk in chunks] == [True] + [False] * (len(chunks) - 1)
    assert _read(chunks).state == plain


def test_what_is_not_a_checkpoint_is_refused() -> None:
    """Nothing at all, no info, other bytes, a piece of one."""
    whole = _chunks({"a": 1})[0]
    info, data = whole.info, whole.data
    chunk = session_pb2.CheckpointChunk
    for chunks in (
        [],
        [chunk(data=data)],
        [chunk(info=info, data=b"no zstd")],
        [chunk(info=info, data=data[:-5])],
        [chunk(info=info)],
    ):
        with pytest.raises(FieldError):
            _read(chunks)


def test_data_after_the_end_is_refused() -> None:
    """A chunk too many is a mistake of the caller's."""
    whole = _chunks({"a": 1})[0]
    with pytest.raises(FieldError):
        _read([whole, session_pb2.CheckpointChunk(data=whole.data)])


def test_another_services_checkpoint_is_foreign() -> None:
    """Its state would mean something else."""
    with pytest.raises(ForeignCheckpointError):
        _read(_chunks({}), service="scheduler")


@pytest.mark.parametrize(("field", "value"), [("version", "0.0.1"), ("format", 1), ("format", 0)])
def test_a_checkpoint_of_another_version_or_format_is_refused_by_name(
    field: str, value: str | int
) -> None:
    """The refusal names the supported and the received version."""
    chunk = _chunks({})[0]
    setattr(chunk.info, field, value)
    with pytest.raises(ForeignCheckpointError) as caught:
        _read([chunk])
    assert f"info.{field}: version {package_version()}" in str(caught.value)
    assert str(value or 1) in str(caught.value)


def test_a_restored_session_is_a_new_one_whose_sequence_starts_again() -> None:
    """A checkpoint may be restored more than once, while its session continues."""
    sessions = Sessions[str]("queue")
    saved = sessions.create("core")
    saved.sequence, saved.at_ns = 7, 5
    read = Checkpoint(checkpoint_info("queue", saved), None, 100)
    made = [restore_session(sessions, read, core, objects=3) for core in ("one", "two")]
    assert [(session.sequence, session.at_ns, session.content) for session in made] == [
        (0, 5, "one"),
        (0, 5, "two"),
    ]
    assert len({saved.name, *(session.name for session in made)}) == len(sessions) == 3


def test_what_a_checkpoint_restores_counts_towards_the_limits() -> None:
    """As if requests had brought it: its objects to the session, its bytes to the caller."""
    sessions = Sessions[str]("queue", Limits(session_objects=10, caller_bytes=250))
    read = Checkpoint(checkpoint_info("queue", sessions.create("saved")), None, 100)
    with pytest.raises(LimitError) as error:
        restore_session(sessions, read, "core", objects=11)
    assert error.value.limit == "session_objects"
    made = [restore_session(sessions, read, "core", objects=10) for _ in range(2)]
    with pytest.raises(LimitError) as error:
        restore_session(sessions, read, "core", objects=10)
    assert error.value.limit == "caller_bytes"
    assert len(sessions) == 3
    sessions.delete(made[0].name)
    restore_session(sessions, read, "core", objects=10)


def test_a_checkpoint_that_grows_without_end_is_refused_on_the_way() -> None:
    """With the limit's name, before it fills the memory: a chunk may hold gigabytes of zeros."""
    data = zstandard.ZstdCompressor().compress(bytes(512 * 2**20))
    assert len(data) < CHUNK_BYTES_MAX
    chunk = _chunks({})[0]
    chunk.data = data
    tracemalloc.start()
    with pytest.raises(LimitError) as caught:
        _read([chunk], limits=Limits(checkpoint_bytes=2**20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.limit == "checkpoint_bytes"
    assert peak < 128 * 2**20
