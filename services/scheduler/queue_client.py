"""The scheduler's end of its queue's stream: one session, one batch in flight."""

from __future__ import annotations

import contextlib
import secrets
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

import grpc

from reprieve.queue.v1alpha1 import queue_pb2, queue_service_pb2, queue_service_pb2_grpc
from reprieve.session.v1alpha1 import session_pb2
from services.rpc.client import PLAIN, ClientTls, aio_channel, with_deadline
from services.rpc.errors import (
    FieldError,
    PreconditionError,
    RefusalError,
    UnavailableError,
    UnservedError,
)

DEADLINE_S = 30.0
CHECKPOINT_S = 120.0
HELD_MAX = 512
"""Operations that are held at the most until there is something to ask."""
UNREAD_MAX = 8
"""Answers that may be on their way: a stream whose answers nobody reads comes to a halt."""


class QueueLink:
    """A channel to the queue that serves all sessions of one scheduler."""

    def __init__(self, address: str, tls: ClientTls = PLAIN) -> None:
        self.address = address
        self._channel = aio_channel(address, tls)
        self.stub = queue_service_pb2_grpc.SchedulingQueueServiceStub(self._channel)

    async def open(self, config: queue_pb2.QueueConfig) -> QueueSession:
        """Open a session. Raises FieldError where the queue refuses the configuration."""
        request = queue_service_pb2.OpenRequest(config=config)
        try:
            opened = await self.stub.Open(request, timeout=DEADLINE_S, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise FieldError("config.queue", error.details() or "refused") from error
            raise self.unavailable(error) from error
        return QueueSession(self, opened)

    def stream(self) -> Any:
        """Return a new stream, whose answers have a deadline."""
        return with_deadline(self.stub.Stream(), DEADLINE_S)

    async def restore(
        self, chunks: Sequence[session_pb2.CheckpointChunk], config: queue_pb2.QueueConfig
    ) -> QueueSession:
        """Restore a session under a name of its own, so that it takes nobody's place.

        Raises FieldError and PreconditionError where the queue refuses the checkpoint.
        """
        if not chunks or not chunks[0].HasField("info"):
            raise FieldError("chunk.data", "is no scheduler's state: it has no queue's")
        chunks[0].info.session = f"restored-{secrets.token_hex(8)}"
        requests = (queue_service_pb2.RestoreRequest(chunk=chunk) for chunk in chunks)
        try:
            restored = await self.stub.Restore(requests, timeout=CHECKPOINT_S, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            said = f"the queue does not restore its part: {error.details() or 'no reason given'}"
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise FieldError("chunk.data", said) from error
            if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                raise PreconditionError(said) from error
            raise self.refusal(error) from error
        opened = queue_service_pb2.OpenResponse(
            session=restored.session,
            epoch=restored.epoch,
            config=config,
            resumable=True,
            foreseeable_heads=restored.foreseeable_heads,
            passes_through=restored.passes_through,
        )
        return QueueSession(self, opened, chunks[0].info.sequence)

    def refusal(self, error: grpc.aio.AioRpcError) -> RefusalError:
        """Return what a checkpoint that failed means to the scheduler's own caller."""
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return UnservedError(f"the scheduling queue at {self.address} keeps no checkpoints")
        return self.unavailable(error)

    def unavailable(self, error: grpc.aio.AioRpcError) -> UnavailableError:
        """Return what a failed call means to the scheduler's own caller."""
        return UnavailableError(
            f"the scheduling queue at {self.address} answers "
            f"{error.code().name}: {error.details() or 'nothing more'}"
        )

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()


class QueueSession:
    """One queue session over one stream; answers come in the order of batches.

    `traceparent` is the context of the span that the next batches belong to; `resumable` tells
    whether the queue keeps checkpoints, and `foreseeable_heads` whether a caller may form the next
    heads itself while no pod waits. Batches whose answer is known are held until the next one; of
    pods that have come and gone among them the queue is told how many.
    """

    def __init__(
        self, link: QueueLink, opened: queue_service_pb2.OpenResponse, sequence: int = 0
    ) -> None:
        self._link = link
        self.config = opened.config
        self.resumable = opened.resumable
        self.foreseeable_heads = opened.foreseeable_heads
        self._passes_through = opened.passes_through
        self._stamp = session_pb2.Stamp(session=opened.session, epoch=opened.epoch)
        self.traceparent = ""
        self._sequence = sequence
        self._unread: deque[int | None] = deque()
        self._held: list[queue_pb2.Operation] = []
        self._stream = link.stream()

    async def exchange(
        self, operations: Sequence[queue_pb2.Operation], heads: int
    ) -> queue_service_pb2.StreamResponse:
        """Send a batch and return its answer, what was held before it aside.

        Raises UnavailableError.
        """
        held = self._take_held()
        await self._send([*held, *operations] if held else operations, heads, None)
        while len(self._unread) > 1:
            await self._read()
        answer = await self._read()
        if held:
            self._check_applied(answer.applied, len(held))
            answer.applied -= len(held)
        return answer

    async def post(self, operations: Sequence[queue_pb2.Operation]) -> None:
        """Take a batch whose answer is known: all of it is applied.

        A refusal shows later, as does a queue that goes another way after all.
        """
        self._held += operations
        if len(self._held) >= HELD_MAX:
            self._held = self._take_held()
            if len(self._held) >= HELD_MAX // 2:
                await self._flush()

    def _take_held(self) -> list[queue_pb2.Operation]:
        held, self._held = self._held, []
        return without_passing(held) if self._passes_through else held

    async def _flush(self) -> None:
        """Send what is held."""
        held = self._take_held()
        if held:
            await self._send(held, 0, len(held))
        while len(self._unread) > UNREAD_MAX:
            await self._read()

    async def _send(
        self, operations: Sequence[queue_pb2.Operation], heads: int, applied: int | None
    ) -> None:
        self._sequence += 1
        request = queue_service_pb2.StreamRequest(operations=operations, heads=heads)
        request.stamp.CopyFrom(self._stamp)
        request.stamp.sequence = self._sequence
        request.stamp.traceparent = self.traceparent
        try:
            await self._stream.write(request)
        except grpc.aio.AioRpcError as error:
            raise self._link.unavailable(error) from error
        self._unread.append(applied)

    async def _read(self) -> queue_service_pb2.StreamResponse:
        try:
            answer = await self._stream.read()
        except grpc.aio.AioRpcError as error:
            raise self._link.unavailable(error) from error
        except TimeoutError as error:
            raise UnavailableError(
                f"the scheduling queue at {self._link.address} did not answer in {DEADLINE_S} s"
            ) from error
        if not isinstance(answer, queue_service_pb2.StreamResponse):
            raise UnavailableError(await self._why_ended())
        known = self._unread.popleft()
        if known is not None:
            self._check_applied(answer.applied, known)
        return answer

    def _check_applied(self, applied: int, known: int) -> None:
        """Raise UnavailableError where fewer operations were applied than must have been."""
        if applied < known:
            raise UnavailableError(
                f"the scheduling queue at {self._link.address} applied {applied} operations of "
                f"{known}, none of which it may refuse"
            )

    async def dump(self) -> queue_pb2.QueueState:
        """Return the queue's whole state, with all that was sent before."""
        await self._flush()
        while self._unread:
            await self._read()
        request = queue_service_pb2.DumpRequest(stamp=self._stamp)
        answer = await self._link.stub.Dump(request, timeout=DEADLINE_S)
        return answer.state

    async def checkpoint(self) -> list[session_pb2.CheckpointChunk]:
        """Return the session saved, with all that was sent before. Raises UnavailableError."""
        await self._flush()
        while self._unread:
            await self._read()
        request = queue_service_pb2.CheckpointRequest(stamp=self._stamp)
        try:
            answers = self._link.stub.Checkpoint(request, timeout=CHECKPOINT_S)
            return [answer.chunk async for answer in answers]
        except grpc.aio.AioRpcError as error:
            raise self._link.refusal(error) from error

    async def close(self) -> None:
        """End the stream and forget the session."""
        await self._flush()
        await self._stream.done_writing()
        request = queue_service_pb2.CloseSessionRequest(session=self._stamp.session)
        await self._link.stub.CloseSession(request, timeout=DEADLINE_S)

    async def abandon(self) -> None:
        """Forget the session as well as that goes: its queue may have gone."""
        with contextlib.suppress(grpc.aio.AioRpcError):
            self._stream.cancel()
            request = queue_service_pb2.CloseSessionRequest(session=self._stamp.session)
            await self._link.stub.CloseSession(request, timeout=DEADLINE_S)

    async def _why_ended(self) -> str:
        code, details = await self._stream.code(), await self._stream.details()
        return (
            f"the scheduling queue at {self._link.address} ended the stream with "
            f"{code.name}: {details or 'nothing more'}"
        )


_OF_NO_PENDING_POD = frozenset(
    {
        "assigned_pod_add",
        "assigned_pod_update",
        "flush_backoff",
        "flush_leftover",
        "move",
        "pass_through",
    }
)


def without_passing(operations: Sequence[queue_pb2.Operation]) -> list[queue_pb2.Operation]:
    """Return operations that tell a queue the same, with PassThrough for pods that come and go.

    Those are added, popped and done among `operations`, all while no other pod is active.
    """
    came: set[str] = set()
    taken: set[str] = set()
    gone: set[str] = set()
    for operation in operations:
        match operation.WhichOneof("operation"):
            case "add":
                came.add(operation.add.pod.metadata.uid)
            case "commit_pop" if operation.commit_pop.pop.uid in came:
                taken.add(operation.commit_pop.pop.uid)
            case "done" if operation.done.pop.uid in taken:
                gone.add(operation.done.pop.uid)
            case "delete":
                taken.discard(operation.delete.pod.uid)
            case "commit_pop" | "done":
                pass
            case kind if kind not in _OF_NO_PENDING_POD:
                return list(operations)
    return list(_left(operations, gone)) if gone else list(operations)


def _left(
    operations: Iterable[queue_pb2.Operation], gone: Container[str]
) -> Iterator[queue_pb2.Operation]:
    passing: queue_pb2.Operation | None = None
    for operation in operations:
        kind = operation.WhichOneof("operation")
        cycle, pods = 0, 0
        if kind == "commit_pop" and operation.commit_pop.pop.uid in gone:
            cycle, pods = operation.commit_pop.pop.cycle, 1
        elif kind == "pass_through":
            cycle, pods = operation.pass_through.first_cycle, operation.pass_through.pods
        if pods:
            if passing is None:
                passing = queue_pb2.Operation()
                passing.pass_through.first_cycle = cycle
            passing.at_ns = operation.at_ns
            passing.pass_through.pods += pods
        elif not _is_about(operation, kind, gone):
            if passing is not None:
                yield passing
                passing = None
            yield operation
    if passing is not None:
        yield passing


def _is_about(operation: queue_pb2.Operation, kind: str | None, pods: Container[str]) -> bool:
    match kind:
        case "add":
            return operation.add.pod.metadata.uid in pods
        case "done":
            return operation.done.pop.uid in pods
        case "delete":
            return operation.delete.pod.uid in pods
        case _:
            return False
