"""SchedulingQueueService over gRPC: read, one call of the core, write.

Every operation, unary or in a stream, goes through the table in operations.py; a request that is
refused has changed nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from reprieve.queue.v1alpha1 import queue_service_pb2 as pb
from reprieve.queue.v1alpha1 import queue_service_pb2_grpc
from reprieve.session.v1alpha1 import session_pb2
from services.queue.batch import Clock, apply_batch, expire_leases, give_back, owners_of, read_batch
from services.queue.codec import pod_ref_message, write_head
from services.queue.config_codec import config_message
from services.queue.core.outcome import NotNext
from services.queue.dump import pending_views, state_message
from services.queue.metrics import QueueMetrics
from services.queue.operations import read_named, result_message
from services.queue.saved import QueueSession, session_from_plain, session_to_json
from services.rpc.checkpoint import (
    checkpoint_info,
    read_checkpoint,
    reading_state,
    restore_session,
    write_checkpoint,
)
from services.rpc.errors import FieldError, LimitError, RefusalError, StaleError
from services.rpc.sessions import Session, Sessions, StampLike
from services.rpc.version import package_version

SERVICE = "queue"
FULL_NAME = "reprieve.queue.v1alpha1.SchedulingQueueService"
HEADS_MAX = 65536
_WATCHED_HEADS = 10
_WATCH_PERIOD_MS = 1000
_Context = grpc.aio.ServicerContext[Any, Any]
_Response = TypeVar("_Response", bound=Message)


class _Request(Protocol):
    """What every unary operation's request has, beside the operation itself."""

    @property
    def stamp(self) -> session_pb2.Stamp: ...
    @property
    def at_ns(self) -> int: ...


def _unary(name: str, response: type[Message]) -> Any:
    """Return the method that answers the unary operation `name` with a `response`."""

    async def call(self: SchedulingQueueServicer, request: _Request, _context: _Context) -> Message:
        return self.apply(name, request, response)

    return call


class SchedulingQueueServicer(queue_service_pb2_grpc.SchedulingQueueServiceServicer):
    """All sessions of one process; one event loop runs it, so nothing is locked.

    `wall_clock_ns` stamps the operations of live sessions that come without a time.
    """

    def __init__(self, *, wall_clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._sessions: Sessions[QueueSession] = Sessions(SERVICE)
        self._metrics = QueueMetrics()
        self._wall_clock_ns = wall_clock_ns

    async def Open(self, request: pb.OpenRequest, context: _Context) -> pb.OpenResponse:
        """Start a session with an empty queue."""
        core = QueueSession.start(request.config, live=request.live, metrics=self._metrics)
        session = self._sessions.open(request.session, core)
        session.at_ns = 0
        return pb.OpenResponse(
            session=session.name,
            epoch=session.epoch,
            config=config_message(core.config, core.asked),
            version=package_version(),
            resumable=True,
            foreseeable_heads=True,
            passes_through=core.queue.passes_through,
        )

    async def CloseSession(
        self, request: pb.CloseSessionRequest, context: _Context
    ) -> pb.CloseSessionResponse:
        """Forget a session."""
        if not request.session:
            raise FieldError("session", "is required")
        self._sessions.close(request.session)
        return pb.CloseSessionResponse()

    async def Stream(
        self, request_iterator: AsyncIterator[pb.StreamRequest], context: _Context
    ) -> AsyncIterator[pb.StreamResponse]:
        """Carry batches of operations; owners whose stream ends have gone."""
        held: dict[str, session_pb2.Stamp] = {}
        try:
            async for request in request_iterator:
                if self._sessions.get(request.stamp).core.live:
                    held |= dict.fromkeys(owners_of(request), request.stamp)
                yield self.batch(request)
        finally:
            for owner, stamp in held.items():
                self._left(owner, stamp)

    Add = _unary("add", pb.AddResponse)
    Update = _unary("update", pb.UpdateResponse)
    Delete = _unary("delete", pb.DeleteResponse)
    Pop = _unary("pop", pb.PopResponse)
    CommitPop = _unary("commit_pop", pb.CommitPopResponse)
    AddUnschedulable = _unary("add_unschedulable", pb.AddUnschedulableResponse)
    CommitUnschedulable = _unary("commit_unschedulable", pb.CommitUnschedulableResponse)
    Done = _unary("done", pb.DoneResponse)
    Move = _unary("move", pb.MoveResponse)
    AssignedPodAdd = _unary("assigned_pod_add", pb.AssignedPodAddResponse)
    AssignedPodUpdate = _unary("assigned_pod_update", pb.AssignedPodUpdateResponse)
    Nominate = _unary("nominate", pb.NominateResponse)
    DeleteNomination = _unary("delete_nomination", pb.DeleteNominationResponse)
    Activate = _unary("activate", pb.ActivateResponse)
    FlushBackoff = _unary("flush_backoff", pb.FlushBackoffResponse)
    FlushLeftover = _unary("flush_leftover", pb.FlushLeftoverResponse)
    CloseQueue = _unary("close", pb.CloseQueueResponse)
    SetGates = _unary("set_gates", pb.SetGatesResponse)
    RenewLeases = _unary("renew_leases", pb.RenewLeasesResponse)
    ReleaseOwner = _unary("release_owner", pb.ReleaseOwnerResponse)

    async def ListNominated(
        self, request: pb.ListNominatedRequest, context: _Context
    ) -> pb.ListNominatedResponse:
        """List a node's nominated pods."""
        session = self._sessions.get(request.stamp)
        if not request.node_name:
            raise FieldError("node_name", "is required")
        nominated = session.core.queue.nominated_for(request.node_name)
        return pb.ListNominatedResponse(pods=map(pod_ref_message, nominated))

    async def Dump(self, request: pb.DumpRequest, context: _Context) -> pb.DumpResponse:
        """Show the whole state."""
        session = self._sessions.get(request.stamp)
        core = session.core
        return pb.DumpResponse(
            state=state_message(
                core.queue.snapshot(),
                limits=core.config.backoff,
                at_ns=session.at_ns,
                next_wakeup_ns=core.queue.next_wakeup_ns(session.at_ns) or 0,
            )
        )

    async def WatchPending(
        self, request: pb.WatchPendingRequest, context: _Context
    ) -> AsyncIterator[pb.WatchPendingResponse]:
        """Show counts and first pods whenever they have changed, until the session ends."""
        period_s = (request.period_ms or _WATCH_PERIOD_MS) / 1000
        count = _checked_heads(request.heads) or _WATCHED_HEADS
        shown, seen = None, None
        while True:
            session = self._sessions.get(request.stamp)
            if session.core.revision != seen:
                seen = session.core.revision
                gates = session.core.reader.has_gates
                views = pending_views(session.core.queue, count, has_gates=gates)
                if views != shown:
                    shown = views
                    yield pb.WatchPendingResponse(sub_queues=views, at_ns=session.at_ns)
            await asyncio.sleep(period_s)

    async def GetMetrics(
        self, request: pb.GetMetricsRequest, context: _Context
    ) -> pb.GetMetricsResponse:
        """Show the process's metrics."""
        return pb.GetMetricsResponse(text=self.metrics_text())

    def metrics_text(self) -> str:
        """Return the process's metrics in Prometheus' text format."""
        return self._metrics.text(session.core.queue for session in self._sessions)

    async def Checkpoint(
        self, request: pb.CheckpointRequest, context: _Context
    ) -> AsyncIterator[pb.CheckpointResponse]:
        """Save a session."""
        session = self._sessions.get(request.stamp)
        state = session_to_json(session.core)
        for chunk in write_checkpoint(checkpoint_info(SERVICE, session), state):
            yield pb.CheckpointResponse(chunk=chunk)

    async def Restore(
        self, request_iterator: AsyncIterator[pb.RestoreRequest], context: _Context
    ) -> pb.RestoreResponse:
        """Put a saved session in the place of the one of its name."""
        chunks = (request.chunk async for request in request_iterator)
        info, plain = await read_checkpoint(SERVICE, chunks)
        with reading_state(SERVICE):
            core = session_from_plain(plain, self._metrics)
        session = restore_session(self._sessions, info, core)
        return pb.RestoreResponse(
            session=session.name,
            epoch=session.epoch,
            foreseeable_heads=True,
            passes_through=core.queue.passes_through,
        )

    def batch(self, request: pb.StreamRequest) -> pb.StreamResponse:
        """Answer one request of a stream; raises what refuses it."""
        session = self._sessions.get(request.stamp)
        if (said := _said(session, request.stamp, pb.StreamResponse)) is not None:
            return said
        queue, heads = session.core.queue, _checked_heads(request.heads)
        steps = read_batch(request.operations, self._clock(session), session.core.reader)
        expire_leases(session, steps[0][2] if steps else session.at_ns)
        applied = apply_batch(queue, steps, at_ns=session.at_ns)
        answer = pb.StreamResponse(
            applied=applied.count,
            results=applied.results,
            next_wakeup_ns=queue.next_wakeup_ns(applied.at_ns) or 0,
            sequence=request.stamp.sequence,
        )
        for popped in queue.heads(heads):
            write_head(answer.heads.add(), popped)
        _advance(session, request.stamp, applied.at_ns, answer)
        self._metrics.absorb(queue)
        return answer

    def apply(self, name: str, request: _Request, response: type[_Response]) -> _Response:
        """Answer the unary operation `name`, with a `response`; raises what refuses it."""
        session = self._sessions.get(request.stamp)
        if (said := _said(session, request.stamp, response)) is not None:
            return said
        at_ns = self._clock(session).read(request.at_ns)
        kind, argument = read_named(name, getattr(request, name), session.core.reader)
        expire_leases(session, at_ns)
        queue = session.core.queue
        outcome = kind.apply(queue, argument, at_ns)
        if isinstance(outcome, NotNext) and not outcome.committed:
            at_ns = session.at_ns
        answer = response(
            result=result_message(outcome), next_wakeup_ns=queue.next_wakeup_ns(at_ns) or 0
        )
        _advance(session, request.stamp, at_ns, answer)
        self._metrics.absorb(queue)
        return answer

    def _left(self, owner: str, stamp: session_pb2.Stamp) -> None:
        try:
            session = self._sessions.get(stamp)
        except RefusalError:  # the session was closed or restored: nothing is held in it
            return
        give_back(session, [owner], self._clock(session))

    def _clock(self, session: Session[QueueSession]) -> Clock:
        arrival_ns = self._wall_clock_ns() if session.core.live else None
        return Clock(session.at_ns, arrival_ns=arrival_ns)


def _said(
    session: Session[QueueSession], stamp: StampLike, response: type[_Response]
) -> _Response | None:
    """Return what a repeated request was answered, None for a new one.

    Several callers may share a live session; theirs have no number and no answer is kept.
    """
    if session.core.live and stamp.sequence == 0:
        return None
    said = session.repeated(stamp)
    if said is None or isinstance(said, response):
        return said
    raise StaleError(f"stamp.sequence {stamp.sequence} was another operation's: repeat that one")


def _advance(session: Session[QueueSession], stamp: StampLike, at_ns: int, answer: Message) -> None:
    session.core.revision += 1
    if stamp.sequence:
        session.advance(stamp, at_ns, answer)
    else:
        session.at_ns = at_ns


def _checked_heads(count: int) -> int:
    if count > HEADS_MAX:
        raise LimitError(f"heads: {count} are more than the {HEADS_MAX} that are shown at most")
    return count
