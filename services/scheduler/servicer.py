"""SchedulerService over gRPC: decode, one call of the session, encode."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.empty_pb2 import Empty

from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2_grpc
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as service_pb2
from reprieve.session.v1beta1 import session_pb2
from services.framework.plugins.in_tree import SERVED, Registry
from services.rpc.checkpoints import (
    checkpoint_info,
    read_checkpoint,
    reading_state,
    restore_session,
    write_checkpoint,
)
from services.rpc.errors import BusyError, RefusalError, UnavailableError
from services.rpc.limits import DEFAULT_LIMITS, Limits
from services.rpc.parts import PART_BYTES, split
from services.rpc.session import Session
from services.rpc.sessions import Call, Sessions
from services.rpc.version import IMPLEMENTATION, package_version
from services.scheduler import evaluation
from services.scheduler.checkpoint import fill, saved_session, session_to_json
from services.scheduler.config.file import SchedulerConfiguration
from services.scheduler.configuration import (
    DEFAULT_RULES,
    connected,
    options_of,
    queue_config_of,
    read_configuration,
)
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS
from services.scheduler.extenders.allowed import NO_EXTENDERS, AllowedExtenders
from services.scheduler.extenders.answers import SessionExtenders
from services.scheduler.metrics import SchedulerMetrics
from services.scheduler.queue_client import QueueClientSession, QueueLink
from services.scheduler.session import BATCH_SIZE, SchedulerSession
from services.scheduler.under_way import UnderWay

if TYPE_CHECKING:
    from prometheus_client import Metric

SERVICE = "scheduler"
ROUNDS_PER_ANSWER = 32
"""Rounds of a window that are answered in one message, while the next ones are run."""
WHOLE_BYTES = PART_BYTES // 2
"""Outcomes after which an answer that is one message has no further round of a window."""
_FREE_S = 0.01
"""How often a call that waits for the end of a round checks for it, s."""
_Context = grpc.aio.ServicerContext[Any, Any]


class SchedulerServicer(scheduler_service_pb2_grpc.SchedulerServiceServicer):
    """All sessions of one scheduler process, over one link to its queue.

    `registry` has the plugins that profiles may name, `allowed` the extenders that configurations
    may list. Without `metrics` nothing is counted.
    """

    def __init__(
        self,
        queue: QueueLink,
        registry: Registry = SERVED,
        *,
        allowed: AllowedExtenders = NO_EXTENDERS,
        limits: Limits = DEFAULT_LIMITS,
        metrics: SchedulerMetrics | None = None,
    ) -> None:
        self._queue = queue
        self._registry = registry
        self._allowed = allowed
        self._sessions: Sessions[SchedulerSession] = Sessions(SERVICE, limits, self._expired)
        self._metrics = metrics
        self._busy: set[SchedulerSession] = set()
        self._ending: set[asyncio.Task[None]] = set()

    async def CreateSession(
        self, request: service_pb2.CreateSessionRequest, context: _Context
    ) -> service_pb2.Session:
        file = self._read(request.config)
        queue_config = queue_config_of(request.config, file)
        options_of(request.config, file, queue_config)
        self._sessions.check_free()
        queue = await self._queue.open(queue_config)
        async with _closed_unless_done(queue):
            content = self._session(request.config, file, queue)
            session = self._sessions.create(content)
        return _shown(session, file)

    async def DeleteSession(
        self, request: session_pb2.DeleteSessionRequest, context: _Context
    ) -> Empty:
        session = self._sessions.delete(request.session_id)
        if session is not None:
            with contextlib.suppress(UnavailableError):
                await self._until_free(session)
            await _end(session)
        return Empty()

    async def RunRound(
        self, request: service_pb2.RunRoundRequest, context: _Context
    ) -> service_pb2.RunRoundResponse:
        whole = service_pb2.RunRoundResponse()
        with self._sessions.call() as call:
            async for answer in self._round(call, request, WHOLE_BYTES):
                whole.MergeFrom(answer)
        return whole

    async def StreamingRunRound(
        self, request_iterator: AsyncIterator[service_pb2.RunRoundRequest], context: _Context
    ) -> AsyncIterator[service_pb2.RunRoundResponse]:
        with self._sessions.call() as call:
            async for request in request_iterator:
                async for answer in self._round(call, request, sys.maxsize):
                    yield answer

    async def EvaluatePod(
        self, request: service_pb2.EvaluatePodRequest, context: _Context
    ) -> AsyncIterator[service_pb2.EvaluatePodResponse]:
        with self._sessions.call() as call:
            async with self._alone(call, request.stamp) as session:
                judged = await session.content.runner.run(lambda: _evaluated(session, request))
                state = await session.content.queue.state()
            entry = next(
                (entry for entry in state.entries if entry.pod.uid == request.pod.uid), None
            )
            answer = service_pb2.EvaluatePodResponse(evaluation=judged, entry=entry)
            for part in split(answer):
                yield part

    async def GetState(
        self, request: session_pb2.GetStateRequest, context: _Context
    ) -> AsyncIterator[service_pb2.GetStateResponse]:
        with self._sessions.call() as call:
            async with self._alone(call, request.stamp) as session:
                state = await session.content.runner.run(
                    lambda: evaluation.state_of(session.content, max(0, session.at_ns))
                )
                state.queue.CopyFrom(await session.content.queue.state())
            for part in split(service_pb2.GetStateResponse(state=state)):
                yield part

    async def CheckpointSession(
        self, request: session_pb2.CheckpointSessionRequest, context: _Context
    ) -> AsyncIterator[session_pb2.CheckpointChunk]:
        with self._sessions.call() as call:
            async with self._alone(call, request.stamp) as session:
                info = checkpoint_info(SERVICE, session)
                queue = await session.content.queue.checkpoint()
                state = session_to_json(session.content, queue)
            for chunk in write_checkpoint(info, state):
                yield chunk

    async def RestoreSession(
        self, request_iterator: AsyncIterator[session_pb2.CheckpointChunk], context: _Context
    ) -> service_pb2.Session:
        with self._sessions.call():
            self._sessions.check_free()
            saved = await read_checkpoint(SERVICE, request_iterator, self._sessions.limits)
        content = await self._restored(saved.state)
        async with _closed_unless_done(content.queue):
            file = self._read(content.config)
            session = restore_session(self._sessions, saved, content, content.object_count)
        return _shown(session, file)

    async def _restored(self, plain: object) -> SchedulerSession:
        """Restore the session of a checkpoint, with its queue's."""
        with reading_state(SERVICE):
            saved = saved_session(plain)
        queue = await self._queue.restore(saved.queue)
        async with _closed_unless_done(queue):
            with reading_state(SERVICE):
                content = self._session(saved.config, self._read(saved.config), queue)
                fill(content, saved)
                return content

    def _session(
        self,
        config: scheduler_pb2.SchedulerConfig,
        file: SchedulerConfiguration,
        queue: QueueClientSession,
    ) -> SchedulerSession:
        """Return a new session. Raises FieldError; UnavailableError if the queue is at fault."""
        if queue.config.rules not in QUEUE_TRAITS:
            served = ", ".join(sorted(QUEUE_TRAITS))
            problem = f"config.rules: {queue.config.rules!r} is not one of {served}"
            raise queue.answers_wrongly(problem)
        connect = None if config.recorded_extenders else partial(connected, file, self._allowed)
        extenders = SessionExtenders(file.extenders, connect)
        try:
            options = options_of(config, file, queue.config, extenders.connected)
        except RefusalError:
            extenders.close()
            raise
        binds_elsewhere = any(extender.bind_verb for extender in file.extenders)
        batch_size = 1 if binds_elsewhere else config.batch_size or BATCH_SIZE
        return SchedulerSession(
            options,
            queue,
            _in_force(config, queue.config, batch_size),
            registry=self._registry,
            extenders=extenders,
            metrics=self._metrics,
            limits=self._sessions.limits,
        )

    def collect(self) -> Iterable[Metric]:
        """Describe the metrics of the process; none where they are not counted."""
        if self._metrics is None:
            return ()
        return self._metrics.collect(session.content.scheduler for session in self._sessions)

    def _read(self, config: scheduler_pb2.SchedulerConfig) -> SchedulerConfiguration:
        return read_configuration(config, self._registry)

    async def _round(
        self, call: Call[SchedulerSession], request: service_pb2.RunRoundRequest, window_bytes: int
    ) -> AsyncIterator[service_pb2.RunRoundResponse]:
        """Run a round alone in its session, and those of its window; answer in parts.

        The window ends with the round whose outcomes complete `window_bytes`.
        """
        session = call.get(request.stamp)
        under_way = session.content.under_way
        if under_way is not None and not session.is_repeated(request, under_way.request):
            await under_way.finish()
            session, under_way = call.get(request.stamp), None
        if under_way is None:
            repeated: list[service_pb2.RunRoundResponse] | None = session.repeated(request)
            if repeated is not None:
                for answer in repeated:
                    yield answer
                return
            under_way = self._begin(session, request, window_bytes)
        async for answer in under_way.follow():
            yield answer

    def _begin(
        self,
        session: Session[SchedulerSession],
        request: service_pb2.RunRoundRequest,
        window_bytes: int,
    ) -> UnderWay[service_pb2.RunRoundResponse]:
        """Return the request as one under way. Raises a refusal."""
        content = session.content
        session.check_time("round.time_ns", request.round.time_ns)
        if content in self._busy:
            raise BusyError("another request of the session is being carried out: wait for it")
        events = len(request.round.events)
        self._sessions.make_room(session, content.object_count, events, events)
        content.queue.traceparent = request.stamp.traceparent
        under_way = UnderWay[service_pb2.RunRoundResponse](
            request, lambda begun: _rounds(session, request, begun.answers, window_bytes)
        )
        content.under_way, content.queue.stream.on_trouble = under_way, under_way.interrupt
        return under_way

    async def _until_free(self, session: Session[SchedulerSession]) -> None:
        """Wait until the session carries out no request. Raises UnavailableError."""
        content = session.content
        while content.under_way is not None or content in self._busy:
            if content.under_way is not None:
                await content.under_way.finish()
            else:
                await asyncio.sleep(_FREE_S)

    @contextlib.asynccontextmanager
    async def _alone(
        self, call: Call[SchedulerSession], stamp: session_pb2.Stamp
    ) -> AsyncIterator[Session[SchedulerSession]]:
        """Wait for the session that `stamp` names, and keep others out of it meanwhile."""
        await self._until_free(call.get(stamp))
        session = call.get(stamp)  # it may have been deleted meanwhile
        self._busy.add(session.content)
        try:
            yield session
        finally:
            self._busy.discard(session.content)

    def _expired(self, session: Session[SchedulerSession]) -> None:
        task = asyncio.ensure_future(_end(session))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


async def _rounds(
    session: Session[SchedulerSession],
    request: service_pb2.RunRoundRequest,
    answers: list[service_pb2.RunRoundResponse],
    window_bytes: int,
) -> AsyncIterator[None]:
    """Run a request's rounds and add to `answers`; yield where there is a further one."""
    content = session.content
    answer = service_pb2.RunRoundResponse(sequence=request.stamp.sequence)
    answer_bytes = run_bytes = 0

    def has_room() -> bool:
        return run_bytes < window_bytes

    try:
        async for outcomes in content.run(request.round, request.window, has_room):
            size = outcomes.ByteSize()
            count = len(answer.rounds)
            if count and (count == ROUNDS_PER_ANSWER or answer_bytes + size > PART_BYTES):
                answers.append(answer)
                yield
                answer = service_pb2.RunRoundResponse(sequence=request.stamp.sequence)
                answer_bytes = 0
            answer.rounds.append(outcomes)
            answer_bytes += size
            run_bytes += size
        answers.append(answer)
        session.advance(request, content.at_ns, answers)
    finally:
        content.under_way = content.queue.stream.on_trouble = None
        session.broken = content.broken


@contextlib.asynccontextmanager
async def _closed_unless_done(queue: QueueClientSession) -> AsyncIterator[None]:
    """Close the queue's session where the block raises, be it by a caller that has gone."""
    try:
        yield
    except BaseException:
        await queue.close()
        raise


async def _end(session: Session[SchedulerSession]) -> None:
    """Release what a session holds beside its memory: requests, extenders, its queue's session."""
    if session.content.under_way is not None:
        await session.content.under_way.cancel()
    session.content.extenders.close()
    await session.content.queue.close()


def _evaluated(
    session: Session[SchedulerSession], request: service_pb2.EvaluatePodRequest
) -> scheduler_pb2.Evaluation:
    uid = request.pod.uid or request.new_pod.metadata.uid
    session.content.extenders.answers.begin(uid, request.attempt or 1)
    return evaluation.evaluate_pod(session.content.scheduler, request, session.at_ns)


def _shown(session: Session[SchedulerSession], file: SchedulerConfiguration) -> service_pb2.Session:
    content = session.content
    return service_pb2.Session(
        session_id=session.name,
        config=content.config,
        warnings=file.warnings,
        version=package_version(),
        implementation=IMPLEMENTATION,
        resumable=content.queue.resumable,
        scheduler_names=content.scheduler.scheduler_names,
        windows=not content.extenders.connected,
    )


def _in_force(
    config: scheduler_pb2.SchedulerConfig, queue: queue_pb2.QueueConfig, batch_size: int
) -> scheduler_pb2.SchedulerConfig:
    in_force = scheduler_pb2.SchedulerConfig()
    in_force.CopyFrom(config)
    in_force.rules = config.rules or DEFAULT_RULES
    in_force.batch_size = batch_size
    in_force.queue.CopyFrom(queue)
    return in_force
