"""The scheduler's end of its queue's stream: one session, one batch in flight."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import grpc

from reprieve.queue.v1beta1 import queue_pb2, queue_service_pb2, queue_service_pb2_grpc
from reprieve.session.v1beta1 import session_pb2
from services.rpc.client import PLAIN, ClientTls, aio_channel, with_deadline
from services.rpc.errors import (
    FieldError,
    PreconditionError,
    RefusalError,
    UnavailableError,
    UnservedError,
)
from services.rpc.parts import PART_BYTES, chunks

DEADLINE_S = 30.0
CHECKPOINT_S = 120.0
HELD_MAX = 512
"""Operations that are held at most until heads are needed."""
OPERATIONS_MAX = 4096
"""Operations that a queue takes in a batch."""
UNREAD_MAX = 8
"""Answers that may be unread: a stream whose answers are not read blocks."""


class QueueLink:
    """A channel to the queue that serves all sessions of one scheduler."""

    def __init__(self, address: str, tls: ClientTls = PLAIN) -> None:
        self.address = address
        self._channel = aio_channel(address, tls)
        self.stub = queue_service_pb2_grpc.QueueServiceStub(self._channel)

    async def open(self, config: queue_pb2.QueueConfig) -> QueueClientSession:
        """Open a session. Raises FieldError where the queue refuses the configuration."""
        request = queue_service_pb2.CreateSessionRequest(config=config)
        try:
            opened = await self.stub.CreateSession(request, timeout=DEADLINE_S, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise FieldError("config.queue", error.details() or "refused") from error
            raise self.unavailable(error) from error
        return QueueClientSession(self, opened)

    def stream(self) -> Any:
        """Return a new stream, whose answers have a deadline."""
        return with_deadline(self.stub.StreamingApply(), DEADLINE_S)

    async def restore(self, chunks: Sequence[session_pb2.CheckpointChunk]) -> QueueClientSession:
        """Restore a saved session.

        Raises FieldError and PreconditionError where the queue refuses the checkpoint.
        """
        restoring = self.stub.RestoreSession(
            iter(chunks), timeout=CHECKPOINT_S, wait_for_ready=True
        )
        try:
            restored = await restoring
        except grpc.aio.AioRpcError as error:
            problem = f"the queue does not restore its part: {error.details() or 'no reason given'}"
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise FieldError("data", problem) from error
            if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                raise PreconditionError(problem) from error
            raise self.refusal(error) from error
        return QueueClientSession(self, restored)

    def refusal(self, error: grpc.aio.AioRpcError) -> RefusalError:
        """Return what the failure of a call that may not be served means to the caller."""
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return UnservedError(f"the scheduling queue at {self.address} does not serve this")
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


class QueueClientSession:
    """One queue session over one stream; answers come in the order of batches.

    `traceparent` is the context of the span that the next batches belong to. `resumable` is set
    where the queue supports checkpoints, `foreseeable_heads` where a caller may form the next heads
    itself while no pod waits. Batches whose answer nothing waits for are held until the next one;
    of pods that are added and deleted within them the queue receives only the number.
    """

    def __init__(self, link: QueueLink, opened: queue_service_pb2.Session) -> None:
        self._link = link
        self.config = opened.config
        self.resumable = opened.resumable
        self.foreseeable_heads = opened.foreseeable_heads
        self._passes_through = opened.passes_through
        self._stamp = session_pb2.Stamp(session=opened.session)
        self.traceparent = ""
        self._sequence = 0
        self._unread: deque[_Sent] = deque()
        self._held: list[queue_pb2.Operation] = []
        self._stream = link.stream()

    async def exchange(
        self, operations: Sequence[queue_pb2.Operation], heads: int
    ) -> queue_service_pb2.ApplyResponse:
        """Send a batch and return its answer, without that to the batches held before.

        Raises UnavailableError.
        """
        held = self._take_held()
        applied = 0
        for request in _requests([*held, *operations] if held else operations, heads):
            answer = await self._ask(request)
            applied += answer.applied
            if answer.applied < len(request.operations):
                if not request.heads:
                    answer.MergeFrom(await self._ask(queue_service_pb2.ApplyRequest(heads=heads)))
                break
        if held:
            self._check_applied(applied, len(held))
        answer.applied = applied - len(held)
        return answer

    async def _ask(
        self, request: queue_service_pb2.ApplyRequest
    ) -> queue_service_pb2.ApplyResponse:
        await self._write(request, is_known=False)
        while len(self._unread) > 1:
            await self._read()
        return await self._read()

    async def post(self, operations: Sequence[queue_pb2.Operation]) -> None:
        """Take a batch whose answer nothing waits for: all of it will be applied.

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
        held = self._take_held()
        if held:
            for request in _requests(held, 0):
                await self._write(request, is_known=True)
        while len(self._unread) > UNREAD_MAX:
            await self._read()

    async def _write(self, request: queue_service_pb2.ApplyRequest, *, is_known: bool) -> None:
        self._sequence += 1
        request.stamp.CopyFrom(self._stamp)
        request.stamp.sequence = self._sequence
        request.stamp.traceparent = self.traceparent
        try:
            await self._stream.write(request)
        except grpc.aio.AioRpcError as error:
            raise self._link.unavailable(error) from error
        except asyncio.InvalidStateError as error:  # the stream had ended before
            raise UnavailableError(await self._why_ended()) from error
        self._unread.append(_Sent(self._sequence, len(request.operations), request.heads, is_known))

    async def _read(self) -> queue_service_pb2.ApplyResponse:
        try:
            answer = await self._stream.read()
        except grpc.aio.AioRpcError as error:
            raise self._link.unavailable(error) from error
        except TimeoutError as error:
            raise UnavailableError(
                f"the scheduling queue at {self._link.address} did not answer in {DEADLINE_S} s"
            ) from error
        if not isinstance(answer, queue_service_pb2.ApplyResponse):
            raise UnavailableError(await self._why_ended())
        sent = self._unread.popleft()
        if wrong := _wrong(answer, sent):
            raise UnavailableError(
                f"the scheduling queue at {self._link.address} answers wrongly: {wrong}"
            )
        if sent.is_known:
            self._check_applied(answer.applied, sent.operations)
        return answer

    def _check_applied(self, applied: int, expected: int) -> None:
        """Raise UnavailableError where fewer operations were applied than must have been."""
        if applied < expected:
            raise UnavailableError(
                f"the scheduling queue at {self._link.address} applied {applied} operations of "
                f"{expected}, none of which it may refuse"
            )

    async def state(self) -> queue_pb2.QueueState:
        """Return the queue's whole state, with all that was sent before.

        Raises UnavailableError.
        """
        await self._settle()
        request = session_pb2.GetStateRequest(stamp=self._stamp)
        whole = queue_service_pb2.GetStateResponse()
        try:
            async for part in self._link.stub.GetState(request, timeout=DEADLINE_S):
                whole.MergeFrom(part)
        except grpc.aio.AioRpcError as error:
            raise self._link.refusal(error) from error
        return whole.state

    async def _settle(self) -> None:
        """Send what is held, and read every answer."""
        await self._flush()
        while self._unread:
            await self._read()

    async def checkpoint(self) -> list[session_pb2.CheckpointChunk]:
        """Return the session saved, with all that was sent before. Raises UnavailableError."""
        await self._settle()
        request = session_pb2.CheckpointSessionRequest(stamp=self._stamp)
        try:
            chunks = self._link.stub.CheckpointSession(request, timeout=CHECKPOINT_S)
            return [chunk async for chunk in chunks]
        except grpc.aio.AioRpcError as error:
            raise self._link.refusal(error) from error

    async def close(self) -> None:
        """End the stream and forget the session; a queue that has gone has forgotten it."""
        try:
            await self._flush()
            await self._stream.done_writing()
            request = session_pb2.DeleteSessionRequest(session=self._stamp.session)
            await self._link.stub.DeleteSession(request, timeout=DEADLINE_S)
        except (UnavailableError, grpc.aio.AioRpcError):
            await self.abandon()

    async def abandon(self) -> None:
        """Forget the session as well as that goes: its queue may have gone."""
        with contextlib.suppress(grpc.aio.AioRpcError):
            self._stream.cancel()
            request = session_pb2.DeleteSessionRequest(session=self._stamp.session)
            await self._link.stub.DeleteSession(request, timeout=DEADLINE_S)

    async def _why_ended(self) -> str:
        code, details = await self._stream.code(), await self._stream.details()
        return (
            f"the scheduling queue at {self._link.address} ended the stream with "
            f"{code.name}: {details or 'nothing more'}"
        )


class _Sent(NamedTuple):
    """A request that is not answered yet; `is_known` says that all of it must be applied."""

    sequence: int
    operations: int
    heads: int
    is_known: bool


def _wrong(answer: queue_service_pb2.ApplyResponse, sent: _Sent) -> str:
    """Return which field of an answer breaks the contract, and how; "" where it is valid."""
    if answer.sequence != sent.sequence:
        return f"sequence: is {answer.sequence}, and the request's is {sent.sequence}"
    if answer.applied > sent.operations:
        return f"applied: {answer.applied} of {sent.operations} operations"
    if len(answer.heads) > sent.heads:
        return f"heads: holds {len(answer.heads)}, and {sent.heads} were asked for"
    for index, head in enumerate(answer.heads):
        if wrong := _wrong_head(head):
            return f"heads[{index}].{wrong}"
    before = -1
    for index, result in enumerate(answer.results):
        path = f"results[{index}]"
        if not before < result.index < sent.operations:
            return f"{path}.index: {result.index} is not in order, of {sent.operations} operations"
        if result.code not in _CODES:
            return f"{path}.code: {result.code} is not a value of the enum that may be sent"
        before = result.index
    return ""


_CODES = frozenset(queue_pb2.OutcomeCode.values()) - {queue_pb2.OUTCOME_CODE_UNSPECIFIED}


def _wrong_head(head: queue_pb2.Head) -> str:
    if not head.pop.uid:
        return "pop.uid: is required"
    if head.pop.cycle < 1:
        return f"pop.cycle: {head.pop.cycle} is not a scheduling cycle: cycles count from 1"
    if head.attempts < 1:
        return f"attempts: {head.attempts} is not an attempt: attempts count from 1"
    if head.first_enqueued_ns < 0:
        return f"first_enqueued_ns: {head.first_enqueued_ns} is negative"
    if head.queued_ns < 0:
        return f"queued_ns: {head.queued_ns} is negative"
    return ""


def _requests(
    operations: Sequence[queue_pb2.Operation], heads: int
) -> Sequence[queue_service_pb2.ApplyRequest]:
    """Return a batch as the messages that it takes, the last of which requests `heads`."""
    whole = queue_service_pb2.ApplyRequest(operations=operations, heads=heads)
    if len(operations) <= OPERATIONS_MAX and whole.ByteSize() <= PART_BYTES:
        return (whole,)
    cut = chunks(operations, count=OPERATIONS_MAX)
    requests = [queue_service_pb2.ApplyRequest(operations=each) for each in cut]
    requests[-1].heads = heads
    return requests


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
    """Return operations of the same effect, with PassThrough for pods that come and go.

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
            case "done" if operation.done.uid in taken:
                gone.add(operation.done.uid)
            case "delete_pod":
                taken.discard(operation.delete_pod.uid)
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
            return operation.done.uid in pods
        case "delete_pod":
            return operation.delete_pod.uid in pods
        case _:
            return False
