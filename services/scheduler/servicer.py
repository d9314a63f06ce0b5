"""SchedulerService over gRPC: decode, one call of the session, encode."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any

import grpc

from reprieve.queue.v1alpha1 import queue_pb2
from reprieve.scheduler.v1alpha1 import scheduler_pb2, scheduler_service_pb2_grpc
from reprieve.scheduler.v1alpha1 import scheduler_service_pb2 as service_pb2
from services.config.scheduler import SchedulerConfiguration
from services.rpc.checkpoint import (
    checkpoint_info,
    read_checkpoint,
    reading_state,
    restore_session,
    write_checkpoint,
)
from services.rpc.errors import (
    FieldError,
    PreconditionError,
    RefusalError,
    StaleError,
)
from services.rpc.sessions import Session, Sessions
from services.rpc.version import IMPLEMENTATION, package_version
from services.scheduler import evaluation
from services.scheduler.configuration import (
    DEFAULT_RULES,
    connected_extenders,
    options_of,
    queue_config_of,
    read_configuration,
    refuse_extenders,
)
from services.scheduler.core.registry import SERVED, Registry
from services.scheduler.deciding import Deciding
from services.scheduler.extenders.answers import Answers, Noting, Recorded
from services.scheduler.extenders.connect import Connected
from services.scheduler.extenders.sources import Sources
from services.scheduler.queue_client import QueueLink, QueueSession
from services.scheduler.saved import fill, saved_session, session_to_json
from services.scheduler.session import BATCH_SIZE, SchedulerSession

SERVICE = "scheduler"
ROUNDS_PER_ANSWER = 32
"""Rounds of a window that are answered in one message, while the next ones are run."""
_Context = grpc.aio.ServicerContext[Any, Any]


class SchedulerServicer(scheduler_service_pb2_grpc.SchedulerServiceServicer):
    """All sessions of one scheduler process; its queue's address is given at its start.

    `registry` has the plugins that profiles may name. Without `asks_extenders`, configurations that
    list extenders are refused.
    """

    def __init__(
        self, queue: QueueLink, registry: Registry = SERVED, *, asks_extenders: bool = True
    ) -> None:
        self._queue = queue
        self._registry = registry
        self._asks_extenders = asks_extenders
        self._sessions: Sessions[SchedulerSession] = Sessions(SERVICE)
        self._busy: set[SchedulerSession] = set()

    async def Open(
        self, request: service_pb2.OpenRequest, context: _Context
    ) -> service_pb2.OpenResponse:
        file = self._read(request.config)
        asked = queue_config_of(request.config, file)
        options_of(request.config, file, asked.mode)
        self._sessions.check_free(request.session)
        queue = await self._queue.open(asked)
        try:
            core = self._session(request.config, file, queue)
            session = self._sessions.open(request.session, core)
        except RefusalError:
            await queue.close()
            raise
        return service_pb2.OpenResponse(
            session=session.name,
            epoch=session.epoch,
            config=core.config,
            warnings=file.warnings,
            version=package_version(),
            implementation=IMPLEMENTATION,
            resumable=queue.resumable,
            scheduler_names=core.core.scheduler_names,
            windows=not core.extenders,
        )

    async def CloseSession(
        self, request: service_pb2.CloseSessionRequest, context: _Context
    ) -> service_pb2.CloseSessionResponse:
        if not request.session:
            raise FieldError("session", "is required")
        session = self._sessions.close(request.session)
        if session is not None:
            _close(session.core.extenders)
            await session.core.queue.close()
        return service_pb2.CloseSessionResponse()

    async def RunRound(
        self, request: service_pb2.RunRoundRequest, context: _Context
    ) -> service_pb2.RunRoundResponse:
        answers = [answer async for answer in self._round(request, ())]
        return service_pb2.RunRoundResponse(outcomes=answers[0].outcomes[0])

    async def Stream(
        self, request_iterator: AsyncIterator[service_pb2.StreamRequest], context: _Context
    ) -> AsyncIterator[service_pb2.StreamResponse]:
        async for request in request_iterator:
            async for answer in self._round(request, request.window):
                yield answer

    async def Evaluate(
        self, request: service_pb2.EvaluateRequest, context: _Context
    ) -> service_pb2.EvaluateResponse:
        file = self._read(request.config)
        extenders = _extenders(request.config, file, Sources(), Answers())
        options = options_of(request.config, file, "v1.34", extenders)
        deciding = Deciding(blocks=bool(extenders))
        try:
            found = await deciding.run(
                lambda: evaluation.evaluate(request, options, self._registry)
            )
        finally:
            _close(extenders)
        return service_pb2.EvaluateResponse(evaluation=found)

    async def EvaluatePending(
        self, request: service_pb2.EvaluatePendingRequest, context: _Context
    ) -> service_pb2.EvaluatePendingResponse:
        session = self._sessions.get(request.stamp)
        found = await session.core.deciding.run(lambda: _evaluated(session, request))
        state = await session.core.queue.dump()
        entry = next((each for each in state.entries if each.pod.uid == request.pod.uid), None)
        return service_pb2.EvaluatePendingResponse(evaluation=found, entry=entry)

    async def Dump(
        self, request: service_pb2.DumpRequest, context: _Context
    ) -> service_pb2.DumpResponse:
        session = self._sessions.get(request.stamp)
        state = await session.core.deciding.run(
            lambda: evaluation.state_of(session.core, session.at_ns)
        )
        state.queue.CopyFrom(await session.core.queue.dump())
        return service_pb2.DumpResponse(state=state)

    async def Checkpoint(
        self, request: service_pb2.CheckpointRequest, context: _Context
    ) -> AsyncIterator[service_pb2.CheckpointResponse]:
        session = self._sessions.get(request.stamp)
        with self._alone(session):
            info = checkpoint_info(SERVICE, session)
            queue = await session.core.queue.checkpoint()
            state = session_to_json(session.core, queue)
        for chunk in write_checkpoint(info, state):
            yield service_pb2.CheckpointResponse(chunk=chunk)

    async def Restore(
        self, request_iterator: AsyncIterator[service_pb2.RestoreRequest], context: _Context
    ) -> service_pb2.RestoreResponse:
        chunks = (request.chunk async for request in request_iterator)
        info, plain = await read_checkpoint(SERVICE, chunks)
        replaced = self._sessions.find(info.session)
        core = await self._restored(plain)
        try:
            session = restore_session(self._sessions, info, core)
        except RefusalError:
            await core.queue.close()
            raise
        if replaced is not None:
            _close(replaced.core.extenders)
            await replaced.core.queue.abandon()
        return service_pb2.RestoreResponse(session=session.name, epoch=session.epoch)

    async def _restored(self, plain: object) -> SchedulerSession:
        """Return the session that a checkpoint stands for, with its queue's."""
        with reading_state(SERVICE):
            saved = saved_session(plain)
        queue = await self._queue.restore(saved.queue, saved.config.queue)
        try:
            with reading_state(SERVICE):
                core = self._session(saved.config, self._read(saved.config), queue)
                fill(core, saved)
                return core
        except FieldError:
            await queue.close()
            raise

    def _session(
        self,
        config: scheduler_pb2.SchedulerConfig,
        file: SchedulerConfiguration,
        queue: QueueSession,
    ) -> SchedulerSession:
        """Return a new session. Raises FieldError."""
        sources, answers = Sources(), Answers()
        extenders = _extenders(config, file, sources, answers)
        try:
            options = options_of(config, file, queue.config.mode, extenders)
        except RefusalError:
            _close(extenders)
            raise
        binds_elsewhere = any(each.bind_verb for each in file.extenders)
        batch_size = 1 if binds_elsewhere else config.batch_size or BATCH_SIZE
        return SchedulerSession(
            options,
            queue,
            _in_force(config, queue.config, batch_size),
            registry=self._registry,
            extenders=extenders,
            sources=sources,
            answers=answers,
        )

    def _read(self, config: scheduler_pb2.SchedulerConfig) -> SchedulerConfiguration:
        file = read_configuration(config, self._registry)
        if not self._asks_extenders and not config.recorded_extenders:
            refuse_extenders(file)
        return file

    async def _round(
        self,
        request: service_pb2.RunRoundRequest | service_pb2.StreamRequest,
        window: Sequence[service_pb2.Foreseen],
    ) -> AsyncIterator[service_pb2.StreamResponse]:
        """Run a round alone in its session, and those of its window; answer in parts."""
        session = self._sessions.get(request.stamp)
        repeated = session.repeated(request.stamp)
        if isinstance(repeated, list):
            for answer in repeated:
                yield answer
            return
        if not request.HasField("round"):
            raise FieldError("round", "is required")
        session.check_time("round.at_ns", request.round.at_ns)
        session.core.queue.traceparent = request.stamp.traceparent
        answers = [service_pb2.StreamResponse(sequence=request.stamp.sequence)]
        with self._alone(session):
            async for outcomes in session.core.run(request.round, window):
                if len(answers[-1].outcomes) == ROUNDS_PER_ANSWER:
                    yield answers[-1]
                    answers.append(service_pb2.StreamResponse(sequence=request.stamp.sequence))
                answers[-1].outcomes.append(outcomes)
        session.advance(request.stamp, session.core.at_ns, answers)
        yield answers[-1]

    @contextlib.contextmanager
    def _alone(self, session: Session[SchedulerSession]) -> Iterator[None]:
        """Keep others out of a session meanwhile. Raises a refusal where it is not free."""
        if session.core.broken:
            raise PreconditionError(
                f"session {session.name!r} broke half-way through a round "
                f"({session.core.broken}): restore it from a checkpoint, or open a new one"
            )
        if session.core in self._busy:
            raise StaleError(f"a round of session {session.name!r} is being run: wait for it")
        self._busy.add(session.core)
        try:
            yield
        finally:
            self._busy.discard(session.core)


def _extenders(
    config: scheduler_pb2.SchedulerConfig,
    file: SchedulerConfiguration,
    sources: Sources,
    answers: Answers,
) -> tuple[Connected, ...]:
    wrap = Recorded if config.recorded_extenders else Noting
    return tuple(wrap(each, answers) for each in connected_extenders(file, sources))


def _evaluated(
    session: Session[SchedulerSession], request: service_pb2.EvaluatePendingRequest
) -> scheduler_pb2.Evaluation:
    session.core.answers.begin(request.pod.uid, request.attempt)
    return evaluation.evaluate_pending(session.core.core, request, session.at_ns)


def _close(extenders: Iterable[Connected]) -> None:
    for extender in extenders:
        extender.close()


def _in_force(
    config: scheduler_pb2.SchedulerConfig, queue: queue_pb2.QueueConfig, batch_size: int
) -> scheduler_pb2.SchedulerConfig:
    in_force = scheduler_pb2.SchedulerConfig()
    in_force.CopyFrom(config)
    in_force.rules = config.rules or DEFAULT_RULES
    in_force.batch_size = batch_size
    in_force.queue.CopyFrom(queue)
    return in_force
