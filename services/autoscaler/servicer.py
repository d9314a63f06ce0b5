"""AutoscalerService over gRPC: decode, one call of the session, encode.

Its metrics are Cluster Autoscaler's, with upstream's names. Source: kubernetes/autoscaler 1.36
metrics/metrics.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.empty_pb2 import Empty

from reprieve.autoscaler.v1beta1 import autoscaler_pb2, autoscaler_service_pb2_grpc
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2 as pb
from reprieve.session.v1beta1 import session_pb2
from services.autoscaler.checkpoint import session_from_plain, session_to_json
from services.autoscaler.session import AutoscalerSession
from services.autoscaler.state import state_to_message
from services.rpc.checkpoints import (
    checkpoint_info,
    read_checkpoint,
    reading_state,
    restore_session,
    write_checkpoint,
)
from services.rpc.limits import DEFAULT_LIMITS, Limits
from services.rpc.parts import split
from services.rpc.prometheus import counter
from services.rpc.session import Session
from services.rpc.sessions import Sessions
from services.rpc.version import package_version

if TYPE_CHECKING:
    from prometheus_client import Metric

SERVICE = "autoscaler"
FULL_NAME = "reprieve.autoscaler.v1beta1.AutoscalerService"
_Context = grpc.aio.ServicerContext[Any, Any]


class AutoscalerServicer(autoscaler_service_pb2_grpc.AutoscalerServiceServicer):
    """All sessions of one process. One event loop runs it, so that it needs no locks."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._sessions: Sessions[AutoscalerSession] = Sessions(SERVICE, limits)
        self._metrics = AutoscalerMetrics()

    async def CreateSession(
        self, request: pb.CreateSessionRequest, context: _Context
    ) -> pb.Session:
        self._sessions.check_free()
        return _session_message(self._sessions.create(AutoscalerSession(request.config)))

    async def DeleteSession(
        self, request: session_pb2.DeleteSessionRequest, context: _Context
    ) -> Empty:
        self._sessions.delete(request.session_id)
        return Empty()

    async def Apply(self, request: pb.ApplyRequest, context: _Context) -> pb.ApplyResponse:
        return self._apply(self._sessions.get(request.stamp), request)

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
            for part in split(state_to_message(call.get(request.stamp).content)):
                yield part

    async def CheckpointSession(
        self, request: session_pb2.CheckpointSessionRequest, context: _Context
    ) -> AsyncIterator[session_pb2.CheckpointChunk]:
        with self._sessions.call() as call:
            session = call.get(request.stamp)
            session.content.check_between_steps()
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
            content = session_from_plain(saved.state)
        return _session_message(
            restore_session(self._sessions, saved, content, content.object_count)
        )

    def collect(self) -> Iterable[Metric]:
        """Describe the metrics of the process."""
        return self._metrics.collect()

    def _apply(
        self, session: Session[AutoscalerSession], request: pb.ApplyRequest
    ) -> pb.ApplyResponse:
        answer: pb.ApplyResponse | None = session.repeated(request)
        if answer is not None:
            return answer
        content, count = session.content, len(request.changes)
        adds = content.most_added(request.changes)
        self._sessions.make_room(session, content.object_count, count, adds)
        changes = content.decode(request.changes)
        at_ns = session.at_ns
        has_step = request.HasField("step")
        if has_step:
            content.check(request.step)
            at_ns = session.check_time("step.time_ns", request.step.time_ns)
        try:
            content.apply(changes)
            answer = content.take(request.step) if has_step else content.answer()
        except Exception as error:
            session.set_broken(error)
            raise
        self._metrics.absorb(answer)
        session.complete(request, at_ns, answer)
        return answer


def _session_message(session: Session[AutoscalerSession]) -> pb.Session:
    return pb.Session(session_id=session.name, version=package_version(), resumable=True)


class AutoscalerMetrics:
    """The metrics of one process, over all its sessions."""

    __slots__ = ("_failed_scale_ups", "_scaled_down", "_scaled_up")

    def __init__(self) -> None:
        # Each is there before it grows: a scraper sees no growth in a series' first value.
        self._scaled_up: Counter[tuple[()]] = Counter({(): 0})
        self._scaled_down: Counter[tuple[str]] = Counter({("empty",): 0, ("underutilized",): 0})
        self._failed_scale_ups: Counter[tuple[str]] = Counter({("cloudProviderError",): 0})

    def absorb(self, answer: pb.ApplyResponse) -> None:
        """Count what a scan has decided."""
        if not answer.HasField("report"):
            return
        report = answer.report
        for scale_up in (report.scale_up, report.min_size_scale_up):
            self._absorb_scale_up(scale_up)
        for deletion in report.deletions:
            reason = "underutilized" if deletion.drained else "empty"
            self._scaled_down[reason,] += 1

    def _absorb_scale_up(self, report: autoscaler_pb2.ScaleUpReport) -> None:
        for increase in report.groups:
            self._scaled_up[()] += increase.to_size - increase.from_size
        self._failed_scale_ups["cloudProviderError",] += len(report.failed_groups)

    def collect(self) -> Iterator[Metric]:
        """Describe the metrics."""
        yield counter(
            "cluster_autoscaler_scaled_up_nodes_total",
            "Number of nodes added by CA.",
            (),
            self._scaled_up,
        )
        yield counter(
            "cluster_autoscaler_scaled_down_nodes_total",
            "Number of nodes removed by CA.",
            ("reason",),
            self._scaled_down,
        )
        yield counter(
            "cluster_autoscaler_failed_scale_ups_total",
            "Number of times scale-up operation has failed.",
            ("reason",),
            self._failed_scale_ups,
        )
