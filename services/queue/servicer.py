"""QueueService over gRPC: each method decodes, calls the core once, and encodes.

Every operation is a row of the table in operations.py. A refused request changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.empty_pb2 import Empty

from reprieve.queue.v1beta1 import queue_service_pb2 as pb
from reprieve.queue.v1beta1 import queue_service_pb2_grpc
from reprieve.session.v1beta1 import session_pb2
from services.kube.time import SECOND_NS
from services.queue.checkpoint import session_from_plain, session_to_json
from services.queue.codec import pending_views, state_message, write_head
from services.queue.config_codec import config_message
from services.queue.core.results import SubQueue
from services.queue.core.scheduling_queue import SchedulingQueue
from services.queue.metrics import QueueMetrics
from services.queue.session import (
    AppliedBatch,
    QueueSession,
    RequestClock,
    apply_batch,
    expire_leases,
    owners_of,
    read_batch,
    release_owner,
)
from services.rpc.checkpoints import (
    checkpoint_info,
    read_checkpoint,
    reading_state,
    restore_session,
    write_checkpoint,
)
from services.rpc.errors import FieldError, LimitError
from services.rpc.limits import DEFAULT_LIMITS, Limits
from services.rpc.parts import PART_BYTES, split
from services.rpc.session import Session, check_time_ns
from services.rpc.sessions import Sessions
from services.rpc.version import package_version

if TYPE_CHECKING:
    from prometheus_client import Metric

SERVICE = "queue"
FULL_NAME = "reprieve.queue.v1beta1.QueueService"
HEADS_MAX = 4096
"""Limit for the heads in a response; it keeps the response below the size limit of a message."""

OPERATIONS_MAX = 4096
"""Limit for the operations in a batch; it keeps their results below the same size limit."""

_WATCHED_HEADS = 10
_HEAD_BYTES = 48
"""Upper bound for the size of a head without its names."""
_WATCH_PERIOD_NS = SECOND_NS
_Context = grpc.aio.ServicerContext[Any, Any]


class QueueServicer(queue_service_pb2_grpc.QueueServiceServicer):
    """All sessions of one process. One event loop runs all calls, so no locks are needed.

    `wall_clock_ns` is the time of an operation without a time, in live sessions.
    """

    def __init__(
        self, limits: Limits = DEFAULT_LIMITS, *, wall_clock_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._sessions: Sessions[QueueSession] = Sessions(SERVICE, limits)
        self._metrics = QueueMetrics()
        self._wall_clock_ns = wall_clock_ns

    async def CreateSession(
        self, request: pb.CreateSessionRequest, context: _Context
    ) -> pb.Session:
        self._sessions.check_free()
        content = QueueSession.start(request.config, live=request.live, metrics=self._metrics)
        session = self._sessions.create(content)
        session.at_ns = 0
        return _session_message(session)

    async def DeleteSession(
        self, request: session_pb2.DeleteSessionRequest, context: _Context
    ) -> Empty:
        self._sessions.delete(request.session_id)
        return Empty()

    async def Apply(self, request: pb.ApplyRequest, context: _Context) -> pb.ApplyResponse:
        return self.apply(request)

    async def StreamingApply(
        self, request_iterator: AsyncIterator[pb.ApplyRequest], context: _Context
    ) -> AsyncIterator[pb.ApplyResponse]:
        owners: dict[str, Session[QueueSession]] = {}
        with self._sessions.call() as call:
            try:
                async for request in request_iterator:
                    session = call.get(request.stamp)
                    if session.content.live:
                        owners |= dict.fromkeys(owners_of(request), session)
                    yield self._apply(session, request)
            finally:
                for owner, session in owners.items():
                    self._release(owner, session)

    async def GetState(
        self, request: session_pb2.GetStateRequest, context: _Context
    ) -> AsyncIterator[pb.GetStateResponse]:
        with self._sessions.call() as call:
            session = call.get(request.stamp)
            content = session.content
            state = state_message(
                content.queue.snapshot(),
                limits=content.config.backoff,
                at_ns=session.at_ns,
                next_wakeup_ns=content.queue.next_wakeup_ns(session.at_ns),
            )
            for part in split(pb.GetStateResponse(state=state)):
                yield part

    async def WatchPending(
        self, request: pb.WatchPendingRequest, context: _Context
    ) -> AsyncIterator[pb.WatchPendingResponse]:
        period_ns = (
            request.period_duration_ns
            if request.HasField("period_duration_ns")
            else _WATCH_PERIOD_NS
        )
        if period_ns <= 0:
            raise FieldError("period_duration_ns", "must be above 0; leave it out for 1 s")
        heads = request.heads if request.HasField("heads") else _WATCHED_HEADS
        count = _checked(heads, HEADS_MAX // len(SubQueue), "heads", "returned of each sub-queue")
        sent, revision = None, None
        with self._sessions.call():
            while True:
                session = self._sessions.get(request.stamp, counts=False)
                if session.content.revision != revision:
                    revision = session.content.revision
                    queue = session.content.queue
                    views = pending_views(queue, count)
                    while count > 1 and sum(view.ByteSize() for view in views) > PART_BYTES:
                        count //= 2
                        views = pending_views(queue, count)
                    if views != sent:
                        sent = views
                        yield pb.WatchPendingResponse(sub_queues=views, time_ns=session.at_ns)
                await asyncio.sleep(period_ns / 1e9)

    def collect(self) -> Iterable[Metric]:
        """Describe the metrics of the process."""
        return self._metrics.collect(session.content.queue for session in self._sessions)

    async def CheckpointSession(
        self, request: session_pb2.CheckpointSessionRequest, context: _Context
    ) -> AsyncIterator[session_pb2.CheckpointChunk]:
        with self._sessions.call() as call:
            session = call.get(request.stamp)
            state = session_to_json(session.content)
            for chunk in write_checkpoint(checkpoint_info(SERVICE, session), state):
                yield chunk

    async def RestoreSession(
        self, request_iterator: AsyncIterator[session_pb2.CheckpointChunk], context: _Context
    ) -> pb.Session:
        with self._sessions.call():
            self._sessions.check_free()
            saved = await read_checkpoint(SERVICE, request_iterator, self._sessions.limits)
        with reading_state(SERVICE):
            content = session_from_plain(saved.state, self._metrics)
        session = restore_session(self._sessions, saved, content, content.queue.object_count)
        return _session_message(session)

    def apply(self, request: pb.ApplyRequest) -> pb.ApplyResponse:
        """Apply a batch, or return the last response again. Raises RefusalError."""
        return self._apply(self._sessions.get(request.stamp), request)

    def _apply(self, session: Session[QueueSession], request: pb.ApplyRequest) -> pb.ApplyResponse:
        answer: pb.ApplyResponse | None
        answer = session.repeated_or_new(request, live=session.content.live)
        if answer is not None:
            return answer
        queue, operations = session.content.queue, request.operations
        heads = _checked(request.heads, HEADS_MAX, "heads", "returned")
        count = _checked(len(operations), OPERATIONS_MAX, "operations", "accepted in a batch")
        self._sessions.make_room(session, queue.object_count, count, count)
        steps = read_batch(operations, self._clock(session), session.content.reader)
        attempts_ns = _attempts_ns(request, steps[-1][2] if steps else session.at_ns)
        if session.content.live:
            attempts_ns = None  # other callers may come between
        try:
            expire_leases(session, steps[0][2] if steps else session.at_ns)
            applied = apply_batch(queue, steps, at_ns=session.at_ns)
            answer = _answer(queue, applied, heads, attempts_ns)
        except Exception as error:
            session.set_broken(error)
            raise
        session.content.revision += 1
        session.complete(request, applied.at_ns, answer)
        self._metrics.absorb(queue)
        return answer

    def _release(self, owner: str, session: Session[QueueSession]) -> None:
        release_owner(session, owner, self._clock(session))
        session.answer = None  # the stored response contains pops that are now undone

    def _clock(self, session: Session[QueueSession]) -> RequestClock:
        arrival_ns = self._wall_clock_ns() if session.content.live else None
        return RequestClock(session.at_ns, arrival_ns=arrival_ns)


def _session_message(session: Session[QueueSession]) -> pb.Session:
    content = session.content
    return pb.Session(
        session_id=session.name,
        config=config_message(content.config, content.requested),
        version=package_version(),
        resumable=True,
        foreseeable_heads=True,
        passes_through=content.queue.passes_through,
    )


def _attempts_ns(request: pb.ApplyRequest, last_ns: int) -> int | None:
    """Return when the caller will try the heads. Raises FieldError for a time before `last_ns`."""
    if not request.HasField("attempts_time_ns"):
        return None
    if request.attempts_time_ns < last_ns:
        problem = f"{request.attempts_time_ns} ns lies before the last operation at {last_ns} ns"
        raise FieldError("attempts_time_ns", problem)
    return check_time_ns("attempts_time_ns", request.attempts_time_ns)


def _answer(
    queue: SchedulingQueue, applied: AppliedBatch, heads: int, attempts_ns: int | None
) -> pb.ApplyResponse:
    answer = pb.ApplyResponse(
        applied=applied.count,
        results=applied.results,
        next_wakeup_time_ns=queue.next_wakeup_ns(
            applied.at_ns if attempts_ns is None else attempts_ns
        ),
    )
    size = 0
    for popped in queue.heads(heads):
        if size > PART_BYTES:
            break
        head = answer.heads.add()
        write_head(head, popped)
        size += len(popped.pod.uid) + len(popped.nominated_node_name) + _HEAD_BYTES
    if attempts_ns is not None:
        after = queue.after_attempts(len(answer.heads), attempts_ns)
        if after is not None:
            answer.after_attempts.SetInParent()
            if after.wakeup_ns is not None:
                answer.after_attempts.next_wakeup_time_ns = after.wakeup_ns
            if after.refused_wakeup_ns is not None:
                answer.after_attempts.refused_wakeup_time_ns = after.refused_wakeup_ns
    return answer


def _checked(count: int, limit: int, field: str, done: str) -> int:
    if count > limit:
        raise LimitError(field, f"{field}: {count} are more than the {limit} that are {done}")
    return count
