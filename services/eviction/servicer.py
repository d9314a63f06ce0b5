"""EvictionService over gRPC: each method decodes, calls the fleet once, and encodes.

Its metrics are the kubelet's eviction metrics, with upstream's names and labels. Source: kubernetes
v1.32 pkg/kubelet/metrics/metrics.go (Evictions, EvictionStatsAge) and
pkg/kubelet/eviction/eviction_manager.go (synchronize, localStorageEviction), which count them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.empty_pb2 import Empty

from reprieve.eviction.v1beta1 import eviction_service_pb2 as pb
from reprieve.eviction.v1beta1 import eviction_service_pb2_grpc
from reprieve.session.v1beta1 import session_pb2
from services.eviction.checkpoint import fleet_from_plain, fleet_to_json
from services.eviction.codec.answers import node_state, result_message
from services.eviction.codec.configs import (
    config_from_message,
    config_to_message,
    read_config,
    threshold_to_message,
)
from services.eviction.codec.operations import WallClock, operation_from_message
from services.eviction.core.results import StepResult
from services.eviction.core.signals import Signal
from services.eviction.fleet import Fleet, Operation, ParsedConfig, StepNode
from services.kube.time import SECOND_NS
from services.rpc.checkpoints import (
    checkpoint_info,
    read_checkpoint,
    reading_state,
    restore_session,
    write_checkpoint,
)
from services.rpc.limits import DEFAULT_LIMITS, Limits
from services.rpc.parts import PART_BYTES, split
from services.rpc.prometheus import HistogramCounts, counter, histogram
from services.rpc.session import Session
from services.rpc.sessions import Sessions
from services.rpc.version import package_version

if TYPE_CHECKING:
    from prometheus_client import Metric

SERVICE = "eviction"
FULL_NAME = "reprieve.eviction.v1beta1.EvictionService"
_Context = grpc.aio.ServicerContext[Any, Any]


class EvictionServicer(eviction_service_pb2_grpc.EvictionServiceServicer):
    """All sessions of one process. One event loop runs all calls, so no locks are needed."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._sessions: Sessions[Fleet] = Sessions(SERVICE, limits)
        self._metrics = EvictionMetrics()

    async def CreateSession(
        self, request: pb.CreateSessionRequest, context: _Context
    ) -> pb.Session:
        self._sessions.check_free()
        read = config_from_message(request.config, field="config")
        session = self._sessions.create(Fleet(read.config, live=request.live))
        return _session_message(session, read)

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
        with self._sessions.call() as call:
            async for request in request_iterator:
                yield self._apply(call.get(request.stamp), request)

    async def GetState(
        self, request: session_pb2.GetStateRequest, context: _Context
    ) -> AsyncIterator[pb.GetStateResponse]:
        with self._sessions.call() as call:
            fleet = call.get(request.stamp).content
            nodes = [node_state(name, node.manager, node.at_ns) for name, node in fleet]
            for part in split(pb.GetStateResponse(nodes=nodes)):
                yield part

    def collect(self) -> Iterable[Metric]:
        """Describe the metrics of the process."""
        return self._metrics.collect()

    async def CheckpointSession(
        self, request: session_pb2.CheckpointSessionRequest, context: _Context
    ) -> AsyncIterator[session_pb2.CheckpointChunk]:
        with self._sessions.call() as call:
            session = call.get(request.stamp)
            state = fleet_to_json(session.content)
            for chunk in write_checkpoint(checkpoint_info(SERVICE, session), state):
                yield chunk

    async def RestoreSession(
        self, request_iterator: AsyncIterator[session_pb2.CheckpointChunk], context: _Context
    ) -> pb.Session:
        with self._sessions.call():
            self._sessions.check_free()
            saved = await read_checkpoint(SERVICE, request_iterator, self._sessions.limits)
        with reading_state(SERVICE):
            fleet = fleet_from_plain(saved.state)
            read = read_config(fleet.config)
        session = restore_session(self._sessions, saved, fleet, fleet.object_count)
        return _session_message(session, read)

    def apply(self, request: pb.ApplyRequest) -> pb.ApplyResponse:
        """Apply a batch, or return the last response again. Raises RefusalError."""
        return self._apply(self._sessions.get(request.stamp), request)

    def _apply(self, session: Session[Fleet], request: pb.ApplyRequest) -> pb.ApplyResponse:
        answer: pb.ApplyResponse | None
        answer = session.repeated_or_new(request, live=session.content.live)
        if answer is not None:
            return answer
        started_ns, fleet = time.perf_counter_ns(), session.content
        count = len(request.operations)
        self._sessions.make_room(session, fleet.object_count, count, count)
        operations = [
            operation_from_message(operation, field=f"operations[{index}]", clock=_clock(session))
            for index, operation in enumerate(request.operations)
        ]
        decoded_ns = time.perf_counter_ns()
        try:
            done = fleet.apply(operations)
            stepped_ns = time.perf_counter_ns()
            results = list(map(result_message, done))
            while len(operations) > 1 and sum(result.ByteSize() for result in results) > PART_BYTES:
                fleet.take_back()
                operations = operations[: len(operations) // 2]
                done = fleet.apply(operations)
                results = list(map(result_message, done))
        except Exception:
            fleet.take_back()
            raise
        for step in done:
            if isinstance(step.outcome, StepResult):
                self._metrics.absorb(step.outcome)
        answer = pb.ApplyResponse(applied=len(operations), results=results)
        encoded_ns = time.perf_counter_ns()
        answer.phases.extend(
            [
                session_pb2.Phase(name="decode", wall_duration_ns=decoded_ns - started_ns),
                session_pb2.Phase(name="synchronize", wall_duration_ns=stepped_ns - decoded_ns),
                session_pb2.Phase(name="encode", wall_duration_ns=encoded_ns - stepped_ns),
            ]
        )
        session.complete(request, _latest_ns(session, operations), answer)
        return answer


def _session_message(session: Session[Fleet], read: ParsedConfig) -> pb.Session:
    return pb.Session(
        session_id=session.name,
        config=config_to_message(read.config),
        thresholds=map(threshold_to_message, read.thresholds),
        warnings=read.warnings,
        version=package_version(),
        resumable=True,
    )


def _clock(session: Session[Fleet]) -> WallClock | None:
    """Return the wall clock of a live session, which never decreases; None for other sessions."""
    if not session.content.live:
        return None
    return lambda: max(session.at_ns, time.time_ns())


def _latest_ns(session: Session[Fleet], operations: Sequence[Operation]) -> int:
    times_ns = [operation.now_ns for operation in operations if isinstance(operation, StepNode)]
    return max(session.at_ns, *times_ns) if times_ns else session.at_ns


_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class EvictionMetrics:
    """The metrics of one process, over all its sessions."""

    __slots__ = ("_evictions", "_stats_age")

    def __init__(self) -> None:
        # Every signal starts at 0: a scraper cannot see an increase in a series' first value.
        self._evictions: Counter[tuple[str]] = Counter({(signal.value,): 0 for signal in Signal})
        self._stats_age: dict[tuple[str], HistogramCounts] = {}

    def absorb(self, result: StepResult) -> None:
        """Count a completed step.

        An eviction counts under its signal, or under the exceeded limit on local storage.
        """
        for eviction in result.evictions:
            self._evictions[eviction.cause,] += 1
        for signal, age_ns in result.stats_ages_ns:
            counts = self._stats_age.get((signal.value,))
            if counts is None:
                counts = self._stats_age[signal.value,] = HistogramCounts(_SECONDS)
            counts.observe(age_ns / SECOND_NS)

    def collect(self) -> Iterator[Metric]:
        """Describe the metrics."""
        yield counter(
            "kubelet_evictions",
            "Cumulative number of pod evictions by eviction signal",
            ("eviction_signal",),
            self._evictions,
        )
        yield histogram(
            "kubelet_eviction_stats_age_seconds",
            "Time between when stats are collected, and when pod is evicted based on those stats "
            "by eviction signal",
            ("eviction_signal",),
            self._stats_age,
        )
