"""QueueService over gRPC: read, one call of the core, write.

Every operation goes through the table in operations.py; a request that is refused has changed
nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from google.protobuf.empty_pb2 import Empty

from reprieve.queue.v1beta1 import queue_service_pb2 as pb
from reprieve.queue.v1beta1 import queue_service_pb2_grpc
from reprieve.session.v1beta1 import session_pb2
from services.queue.checkpoint import QueueSession, session_from_plain, session_to_json
from services.queue.codec import pending_views, state_message, write_head
from services.queue.config_codec import config_message
from services.queue.core.results import SubQueue
from services.queue.metrics import QueueMetrics
from services.queue.session import (
    Clock,
    apply_batch,
    expire_leases,
    give_back,
    owners_of,
    read_batch,
)
from services.rpc.checkpoint import (
    checkpoint_info,
    read_checkpoint,
    reading_state,
    restore_session,
    write_checkpoint,
)
from services.rpc.errors import FieldError, LimitError, RefusalError
from services.rpc.parts import PART_BYTES, split
from services.rpc.sessions import Session, Sessions
from services.rpc.version import package_version

SERVICE = "queue"
FULL_NAME = "reprieve.queue.v1beta1.QueueService"
HEADS_MAX = 4096
"""Heads that are shown at most: so many stay below what a message may have."""

OPERATIONS_MAX = 4096
"""Operations that a batch may have, so that neither do their results."""

_WATCHED_HEADS = 10
_HEAD_BYTES = 48
"""What a head has beside its names, at most."""
_WATCH_PERIOD_NS = 1_000_000_000
_Context = grpc.aio.ServicerContext[Any, Any]


class QueueServicer(queue_service_pb2_grpc.QueueServiceServicer):
    """All sessions of one process; one event loop runs it, so nothing is locked.

    `wall_clock_ns` stamps the operations of live sessions that come without a time.
    """

    def __init__(self, *, wall_clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._sessions: Sessions[QueueSession] = Sessions(SERVICE)
        self._metrics = QueueMetrics()
        self._wall_clock_ns = wall_clock_ns

    async def CreateSession(
        self, request: pb.CreateSessionRequest, context: _Context
    ) -> pb.Session:
        """Start a session with an empty queue."""
        core = QueueSession.start(request.config, live=request.live, metrics=self._metrics)
        session = self._sessions.create(core)
        session.at_ns = 0
        return _shown(session)

    async def DeleteSession(
        self, request: session_pb2.DeleteSessionRequest, context: _Context
    ) -> Empty:
        """Forget a session."""
        self._sessions.delete(request.session)
        return Empty()

    async def Apply(self, request: pb.ApplyRequest, context: _Context) -> pb.ApplyResponse:
        """Carry out a batch."""
        return self.apply(request)

    async def StreamingApply(
        self, request_iterator: AsyncIterator[pb.ApplyRequest], context: _Context
    ) -> AsyncIterator[pb.ApplyResponse]:
        """Carry out batches; owners whose stream ends have gone."""
        held: dict[str, session_pb2.Stamp] = {}
        try:
            async for request in request_iterator:
                if self._sessions.get(request.stamp).core.live:
                    held |= dict.fromkeys(owners_of(request), request.stamp)
                yield self.apply(request)
        finally:
            for owner, stamp in held.items():
                self._left(owner, stamp)

    async def GetState(
        self, request: session_pb2.GetStateRequest, context: _Context
    ) -> AsyncIterator[pb.GetStateResponse]:
        """Show the whole state."""
        session = self._sessions.get(request.stamp)
        core = session.core
        state = state_message(
            core.queue.snapshot(),
            limits=core.config.backoff,
            at_ns=session.at_ns,
            next_wakeup_ns=core.queue.next_wakeup_ns(session.at_ns),
        )
        for part in split(pb.GetStateResponse(state=state)):
            yield part

    async def WatchPending(
        self, request: pb.WatchPendingRequest, context: _Context
    ) -> AsyncIterator[pb.WatchPendingResponse]:
        """Show counts and first pods whenever they have changed, until the session ends."""
        period_ns = request.period_ns if request.HasField("period_ns") else _WATCH_PERIOD_NS
        if period_ns <= 0:
            raise FieldError("period_ns", "must be above 0; leave it out for 1 s")
        heads = request.heads if request.HasField("heads") else _WATCHED_HEADS
        count = _checked(heads, HEADS_MAX // len(SubQueue), "heads", "shown of each sub-queue")
        shown, seen = None, None
        while True:
            session = self._sessions.get(request.stamp)
            if session.core.revision != seen:
                seen = session.core.revision
                gates = session.core.reader.has_gates
                views = pending_views(session.core.queue, count, has_gates=gates)
                while count > 1 and sum(view.ByteSize() for view in views) > PART_BYTES:
                    count //= 2
                    views = pending_views(session.core.queue, count, has_gates=gates)
                if views != shown:
                    shown = views
                    yield pb.WatchPendingResponse(sub_queues=views, at_ns=session.at_ns)
            await asyncio.sleep(period_ns / 1e9)

    def metrics_text(self) -> str:
        """Return the process's metrics in Prometheus' text format."""
        return self._metrics.text(session.core.queue for session in self._sessions)

    async def CheckpointSession(
        self, request: session_pb2.CheckpointSessionRequest, context: _Context
    ) -> AsyncIterator[session_pb2.CheckpointChunk]:
        """Save a session."""
        session = self._sessions.get(request.stamp)
        state = session_to_json(session.core)
        for chunk in write_checkpoint(checkpoint_info(SERVICE, session), state):
            yield chunk

    async def RestoreSession(
        self, request_iterator: AsyncIterator[session_pb2.CheckpointChunk], context: _Context
    ) -> pb.Session:
        """Start a session that goes on where a saved one stood."""
        info, plain = await read_checkpoint(SERVICE, request_iterator)
        with reading_state(SERVICE):
            core = session_from_plain(plain, self._metrics)
        return _shown(restore_session(self._sessions, info, core))

    def apply(self, request: pb.ApplyRequest) -> pb.ApplyResponse:
        """Answer a batch; raises what refuses it."""
        session = self._sessions.get(request.stamp)
        counts = not session.core.live or request.stamp.HasField("sequence")
        if counts and (said := session.repeated(request)) is not None:
            repeated: pb.ApplyResponse = said
            return repeated
        queue, heads = session.core.queue, _checked(request.heads, HEADS_MAX, "heads", "shown")
        _checked(len(request.operations), OPERATIONS_MAX, "operations", "taken in a batch")
        steps = read_batch(request.operations, self._clock(session), session.core.reader)
        expire_leases(session, steps[0][2] if steps else session.at_ns)
        applied = apply_batch(queue, steps, at_ns=session.at_ns)
        answer = pb.ApplyResponse(
            applied=applied.count,
            results=applied.results,
            next_wakeup_ns=queue.next_wakeup_ns(applied.at_ns),
        )
        size = 0
        for popped in queue.heads(heads):
            if size > PART_BYTES:
                break
            head = answer.heads.add()
            write_head(head, popped)
            size += len(popped.pod.uid) + len(popped.nominated_node_name) + _HEAD_BYTES
        session.core.revision += 1
        if counts:
            answer.sequence = request.stamp.sequence
            session.advance(request, applied.at_ns, answer)
        else:
            session.at_ns = applied.at_ns
        self._metrics.absorb(queue)
        return answer

    def _left(self, owner: str, stamp: session_pb2.Stamp) -> None:
        try:
            session = self._sessions.get(stamp)
        except RefusalError:  # the session was deleted: nothing is held in it
            return
        give_back(session, [owner], self._clock(session))
        session.answer = None  # what was popped under that number has gone back

    def _clock(self, session: Session[QueueSession]) -> Clock:
        arrival_ns = self._wall_clock_ns() if session.core.live else None
        return Clock(session.at_ns, arrival_ns=arrival_ns)


def _shown(session: Session[QueueSession]) -> pb.Session:
    core = session.core
    return pb.Session(
        session=session.name,
        config=config_message(core.config, core.asked),
        version=package_version(),
        resumable=True,
        foreseeable_heads=True,
        passes_through=core.queue.passes_through,
    )


def _checked(count: int, most: int, field: str, done: str) -> int:
    if count > most:
        raise LimitError(f"{field}: {count} are more than the {most} that are {done}")
    return count
