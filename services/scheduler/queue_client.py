"""The scheduler's end of its queue's stream: one session, one batch in flight."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple, TypeVar

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc

from reprieve.queue.v1beta1 import queue_pb2, queue_service_pb2, queue_service_pb2_grpc
from reprieve.session.v1beta1 import session_pb2
from services.rpc.access import PLAIN, ClientTls
from services.rpc.client import LastingChannel
from services.rpc.errors import (
    FieldError,
    PreconditionError,
    RefusalError,
    UnavailableError,
    UnservedError,
)
from services.rpc.interceptors.tracing import outgoing
from services.rpc.local import local_server
from services.rpc.parts import PART_BYTES, chunks
from services.rpc.required import PROBLEM, missing
from services.rpc.responses import ReadingChannel
from services.scheduler.ahead.held import HeldOperations, without_passing
from services.scheduler.batch import AfterAttempts, Batch, QueueReply
from services.scheduler.core.queueing.steps import Head, PopId, Requeue
from services.scheduler.queue_stream import QueueStream, refusal_of, taken

OPERATIONS_MAX = 4096
"""Operations that a queue takes in a batch."""
UNREAD_MAX = 8
"""Answers that may be unread: a stream whose answers are not read blocks."""
WATCH_S = 2.0
"""How often the queue's health is checked, and how long a check may take, s."""
_Answer = TypeVar("_Answer", bound=Message)
_NO_RESPONSE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class QueueLink:
    """The connection to the queue, which serves all sessions of one scheduler.

    Raises AccessError as LastingChannel does.
    """

    def __init__(self, address: str, tls: ClientTls = PLAIN) -> None:
        self.address = address
        self.is_local = local_server(address) is not None
        self.timeouts = tls.timeouts
        self._channel = LastingChannel(address, tls)

    @property
    def stub(self) -> Any:
        """The queue's methods, for a new call."""
        channel: Any = self._channel.current()
        if not self.is_local:
            channel = ReadingChannel(channel, f"the scheduling queue at {self.address}")
        return queue_service_pb2_grpc.QueueServiceStub(channel)

    async def open(self, config: queue_pb2.QueueConfig) -> QueueClientSession:
        """Open a session. Raises FieldError if the queue refuses the configuration."""
        request = queue_service_pb2.CreateSessionRequest(config=config)
        try:
            wait_s = self.timeouts.unreachable
            opened = taken(
                await self.stub.CreateSession(
                    request, timeout=wait_s, wait_for_ready=True, metadata=outgoing()
                )
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise FieldError("config.queue", error.details() or "refused") from error
            raise self.refusal(error) from error
        return QueueClientSession(self, self.complete(opened))

    def stream(self) -> QueueStream:
        """Return a new stream, whose answers have a deadline."""
        return QueueStream(
            self._open_stream,
            self.address,
            self.timeouts,
            responds=self._responds,
            lasts=self.is_local,
        )

    def _open_stream(self) -> Any:
        return self.stub.StreamingApply()

    async def restore(self, chunks: Sequence[session_pb2.CheckpointChunk]) -> QueueClientSession:
        """Restore a saved session.

        Raises FieldError and PreconditionError if the queue refuses the checkpoint.
        """
        restoring = self.stub.RestoreSession(
            iter(chunks), timeout=self.timeouts.checkpoint, wait_for_ready=True
        )
        try:
            restored = taken(await restoring)
        except grpc.aio.AioRpcError as error:
            problem = f"the queue does not restore its part: {error.details() or 'no reason given'}"
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise FieldError("data", problem) from error
            if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                raise PreconditionError(problem) from error
            raise self.refusal(error) from error
        return QueueClientSession(self, self.complete(restored))

    def complete(self, answer: _Answer) -> _Answer:
        """Return an answer of the queue. Raises UnavailableError if a required field is missing."""
        if path := missing(answer):
            raise self.answers_wrongly(f"{path}: {PROBLEM}")
        return answer

    def answers_wrongly(self, problem: str) -> UnavailableError:
        """Return the refusal for an answer that breaks the contract."""
        queue = f"the scheduling queue at {self.address}"
        return UnavailableError(f"{queue} answers wrongly: {problem}")

    def refusal(self, error: grpc.aio.AioRpcError) -> RefusalError:
        """Return the refusal for a failed call, also for one that the queue does not implement."""
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return UnservedError(f"the scheduling queue at {self.address} does not serve this")
        return refusal_of(self.address, error)

    async def watch(self, report: Callable[[bool], Awaitable[None]]) -> None:
        """Report whether the queue responds, now and whenever that changes, until cancelled."""
        before: bool | None = None
        while True:
            responds = await self._responds()
            if responds != before:
                before = responds
                await report(responds)
            await asyncio.sleep(WATCH_S)

    async def _responds(self) -> bool:
        """Return whether the queue responds to a health check; one without them responds, too."""
        check = health_pb2_grpc.HealthStub(self._channel.current()).Check
        try:
            reply = await check(health_pb2.HealthCheckRequest(), timeout=WATCH_S)
        except grpc.aio.AioRpcError as error:
            return error.code() not in _NO_RESPONSE
        serving: bool = reply.status == health_pb2.HealthCheckResponse.SERVING
        return serving

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()


class QueueClientSession:
    """One queue session over one stream; answers come in the order of batches.

    `traceparent` is the context of the span that the next batches belong to. `resumable` is set
    where the queue supports checkpoints, `foreseeable_heads` where a caller may form the next heads
    itself while no pod waits. `held` are operations whose answer nothing waits for.
    """

    def __init__(self, link: QueueLink, opened: queue_service_pb2.Session) -> None:
        self._link = link
        self.config = opened.config
        self.resumable = opened.resumable
        self.foreseeable_heads = opened.foreseeable_heads
        self.held = HeldOperations(without_passing if opened.passes_through else list)
        self._stamp = session_pb2.Stamp(session_id=opened.session_id)
        self.traceparent = ""
        self._sequence = 0
        self._unread: deque[_Sent] = deque()
        self.stream = link.stream()

    async def commit(self, batch: Batch, heads_max: int) -> QueueReply:
        """Send a batch, and return which of its entries the queue accepted, and its heads.

        Raises UnavailableError.
        """
        began = perf_counter_ns()
        held = self.held.take()
        reply, applied = queue_service_pb2.ApplyResponse(), 0
        for request in _requests([*held, *batch.operations], heads_max):
            if request.heads:
                request.attempts_time_ns = batch.at_ns
            reply = await self._ask(request, len(held) - applied)
            applied += reply.applied
            if reply.applied < len(request.operations):
                if not request.heads:
                    following = queue_service_pb2.ApplyRequest(heads=heads_max)
                    reply.MergeFrom(await self._ask(following, 0))
                break
        exchange_ns = perf_counter_ns() - began
        # A queue stops at the first operation that it does not apply in full; `results[-1].pods` is
        # how many pods of that one it took. If it stopped at none, all entries begin before
        # `applied` operations, so that `pods`, then of an earlier operation, decides nothing.
        return QueueReply(
            heads=[*map(_head, reply.heads)],
            accepted=batch.accepted(
                applied - len(held), reply.results[-1].pods if reply.results else 0
            ),
            wakeup_ns=reply.next_wakeup_time_ns if reply.HasField("next_wakeup_time_ns") else None,
            exchange_ns=exchange_ns,
            after=_after(reply.after_attempts) if reply.HasField("after_attempts") else None,
        )

    async def post(
        self, operations: Sequence[queue_pb2.Operation], *, more_follow: bool = False
    ) -> None:
        """Send or hold operations that the queue must accept.

        A refusal, or heads other than those foreseen, raises an error in a later call.
        more_follow: others for the same pods follow, with which they may have no effect.
        """
        await self._send(self.held.add(operations, more_follow=more_follow))

    async def _ask(
        self, request: queue_service_pb2.ApplyRequest, applied_min: int
    ) -> queue_service_pb2.ApplyResponse:
        await self._write(request, applied_min)
        while len(self._unread) > 1:
            await self._read()
        return await self._read()

    async def _send(self, operations: Sequence[queue_pb2.Operation]) -> None:
        """Send operations, and read answers only where too many would be unread."""
        for request in _requests(operations, 0) if operations else ():
            await self._write(request, len(request.operations))
        while len(self._unread) > UNREAD_MAX:
            await self._read()

    async def _write(self, request: queue_service_pb2.ApplyRequest, applied_min: int) -> None:
        self._sequence += 1
        request.stamp.CopyFrom(self._stamp)
        request.stamp.sequence = self._sequence
        request.stamp.traceparent = self.traceparent
        operations = len(request.operations)
        applied_min = min(max(0, applied_min), operations)
        attempts_ns = request.attempts_time_ns
        self._unread.append(
            _Sent(self._sequence, operations, request.heads, applied_min, attempts_ns)
        )
        await self.stream.write(request)

    async def _read(self) -> queue_service_pb2.ApplyResponse:
        answer = self._link.complete(await self.stream.read())
        sent = self._unread.popleft()
        if wrong := _wrong(answer, sent):
            raise self.answers_wrongly(wrong)
        if answer.applied < sent.applied_min:
            raise UnavailableError(
                f"the scheduling queue at {self._link.address} applied {answer.applied} operations "
                f"of {sent.applied_min}, none of which it may refuse"
            )
        return answer

    def answers_wrongly(self, problem: str) -> UnavailableError:
        """Return the refusal for an answer that breaks the contract."""
        return self._link.answers_wrongly(problem)

    async def state(self) -> queue_pb2.QueueState:
        """Return the queue's whole state, with all that was sent before.

        Raises UnavailableError.
        """
        await self._settle()
        request = session_pb2.GetStateRequest(stamp=self._stamp)
        whole = queue_service_pb2.GetStateResponse()
        try:
            async for part in self._link.stub.GetState(request, timeout=self._link.timeouts.call):
                whole.MergeFrom(taken(part))
        except grpc.aio.AioRpcError as error:
            raise self._link.refusal(error) from error
        return self._link.complete(whole).state

    async def _settle(self) -> None:
        """Send the held operations, and read all answers."""
        await self._send(self.held.take())
        while self._unread:
            await self._read()

    async def checkpoint(self) -> list[session_pb2.CheckpointChunk]:
        """Return the session saved, with all that was sent before. Raises UnavailableError."""
        await self._settle()
        request = session_pb2.CheckpointSessionRequest(stamp=self._stamp)
        try:
            most_s = self._link.timeouts.checkpoint
            chunks = self._link.stub.CheckpointSession(request, timeout=most_s)
            return [taken(chunk) async for chunk in chunks]
        except grpc.aio.AioRpcError as error:
            raise self._link.refusal(error) from error

    async def close(self) -> None:
        """End the stream and delete the session, as far as the queue responds."""
        if not self.stream.is_lost:
            with contextlib.suppress(RefusalError, asyncio.InvalidStateError):
                await self._send(self.held.take())
                await self.stream.done_writing()
        with contextlib.suppress(grpc.aio.AioRpcError):
            request = session_pb2.DeleteSessionRequest(session_id=self._stamp.session_id)
            await self._link.stub.DeleteSession(
                request, timeout=self._link.timeouts.unreachable, metadata=outgoing()
            )
        self.stream.cancel()


class _Sent(NamedTuple):
    """A request that is not answered yet, of which `applied_min` operations must be applied.

    `attempts_ns` is when its heads will be tried.
    """

    sequence: int
    operations: int
    heads: int
    applied_min: int
    attempts_ns: int


def _wrong(answer: queue_service_pb2.ApplyResponse, sent: _Sent) -> str:
    """Return which field of an answer breaks the contract, and how; "" if it is valid."""
    if answer.sequence != sent.sequence:
        return f"sequence: is {answer.sequence}, and the request's is {sent.sequence}"
    if answer.applied > sent.operations:
        return f"applied: {answer.applied} of {sent.operations} operations"
    if len(answer.heads) > sent.heads:
        return f"heads: holds {len(answer.heads)}, and {sent.heads} were asked for"
    for index, head in enumerate(answer.heads):
        if wrong := _wrong_head(head):
            return f"heads[{index}].{wrong}"
    after = answer.after_attempts
    for name in ("next_wakeup_time_ns", "refused_wakeup_time_ns"):
        wakeup_ns = getattr(after, name)
        if after.HasField(name) and wakeup_ns < sent.attempts_ns:
            at_ns = sent.attempts_ns
            return f"after_attempts.{name}: {wakeup_ns} is before the attempts at {at_ns}"
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


def _head(message: queue_pb2.Head) -> Head:
    pop = message.pop
    # By place: by keyword this takes longer, and there is one for each attempt.
    return Head(
        PopId(pop.uid, pop.cycle),
        message.attempts,
        message.first_enqueued_time_ns,
        message.queued_time_ns,
        _requeue(message.requeue) if message.HasField("requeue") else None,
    )


def _after(message: queue_service_pb2.AfterAttempts) -> AfterAttempts:
    bound, refused = message.next_wakeup_time_ns, message.refused_wakeup_time_ns
    return AfterAttempts(
        bound if message.HasField("next_wakeup_time_ns") else None,
        refused if message.HasField("refused_wakeup_time_ns") else None,
    )


def _requeue(message: session_pb2.Requeue) -> Requeue:
    active_ns = message.active_time_ns if message.HasField("active_time_ns") else None
    return Requeue(message.event, message.time_ns, active_ns)


def _wrong_head(head: queue_pb2.Head) -> str:
    if head.pop.cycle < 1:
        return f"pop.cycle: {head.pop.cycle} is not a scheduling cycle: cycles count from 1"
    if head.attempts < 1:
        return f"attempts: {head.attempts} is not an attempt: attempts count from 1"
    if head.first_enqueued_time_ns < 0:
        return f"first_enqueued_time_ns: {head.first_enqueued_time_ns} is negative"
    if head.queued_time_ns < 0:
        return f"queued_time_ns: {head.queued_time_ns} is negative"
    requeue = head.requeue  # absent, it reads as times of 0
    if requeue.time_ns < 0:
        return f"requeue.time_ns: {requeue.time_ns} is negative"
    if requeue.HasField("active_time_ns") and requeue.active_time_ns < requeue.time_ns:
        at, before = requeue.active_time_ns, requeue.time_ns
        return f"requeue.active_time_ns: {at} is before {before}, when the pod was moved"
    return ""


def _requests(
    operations: Sequence[queue_pb2.Operation], heads: int
) -> Sequence[queue_service_pb2.ApplyRequest]:
    """Return a batch as the messages that it takes, the last of which requests `heads`."""
    if len(operations) <= OPERATIONS_MAX:
        whole = queue_service_pb2.ApplyRequest(operations=operations, heads=heads)
        if whole.ByteSize() <= PART_BYTES:
            return (whole,)
    cut = chunks(operations, count=OPERATIONS_MAX)
    requests = [queue_service_pb2.ApplyRequest(operations=part) for part in cut]
    requests[-1].heads = heads
    return requests
