"""EvictionService over gRPC: decode, one call into the fleet, encode."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from reprieve.eviction.v1alpha1 import eviction_service_pb2 as pb
from reprieve.eviction.v1alpha1 import eviction_service_pb2_grpc
from reprieve.session.v1alpha1 import session_pb2
from services.eviction.codec.answers import answer_to_message, node_state
from services.eviction.codec.configs import (
    config_from_message,
    config_to_message,
    threshold_to_message,
)
from services.eviction.codec.operations import (
    Clock,
    operation_from_message,
    required_node,
    resume_from_message,
    step_from_message,
)
from services.eviction.codec.pods import pod_from_message
from services.eviction.core.results import StepResult
from services.eviction.fleet import Answer, Fleet, Forget, Operation, Step
from services.eviction.metrics import EvictionMetrics
from services.eviction.saved import fleet_from_plain, fleet_to_json
from services.rpc.checkpoint import (
    checkpoint_info,
    read_checkpoint,
    reading_state,
    restore_session,
    write_checkpoint,
)
from services.rpc.errors import FieldError, StaleError
from services.rpc.sessions import Session, Sessions
from services.rpc.version import package_version

SERVICE = "eviction"
FULL_NAME = "reprieve.eviction.v1alpha1.EvictionService"
_Context = grpc.aio.ServicerContext[Any, Any]
_Response = TypeVar("_Response", bound=Message)


class EvictionServicer(eviction_service_pb2_grpc.EvictionServiceServicer):
    """All sessions of one process; one event loop runs it, so nothing is locked."""

    def __init__(self) -> None:
        self._sessions: Sessions[Fleet] = Sessions(SERVICE)
        self._metrics = EvictionMetrics()

    async def Open(self, request: pb.OpenRequest, context: _Context) -> pb.OpenResponse:
        """Start a session without nodes."""
        read = config_from_message(request.config, field="config")
        session = self._sessions.open(request.session, Fleet(read.config, live=request.live))
        return pb.OpenResponse(
            session=session.name,
            epoch=session.epoch,
            config=config_to_message(read.config),
            thresholds=map(threshold_to_message, read.thresholds),
            warnings=read.warnings,
            version=package_version(),
            resumable=True,
        )

    async def CloseSession(
        self, request: pb.CloseSessionRequest, context: _Context
    ) -> pb.CloseSessionResponse:
        """Forget a session."""
        if not request.session:
            raise FieldError("session", "is required")
        self._sessions.close(request.session)
        return pb.CloseSessionResponse()

    async def Configure(
        self, request: pb.ConfigureRequest, context: _Context
    ) -> pb.ConfigureResponse:
        """Add a node or change its thresholds."""
        session = self._sessions.get(request.stamp)
        if (said := _said(session, request.stamp, pb.ConfigureResponse)) is not None:
            return said
        name = required_node(request.node_name, "")
        read = config_from_message(request.config, field="config")
        session.core.configure(name, read.config)
        answer = pb.ConfigureResponse(
            thresholds=map(threshold_to_message, read.thresholds), warnings=read.warnings
        )
        session.advance(request.stamp, session.at_ns, answer)
        return answer

    async def Forget(self, request: pb.ForgetRequest, context: _Context) -> pb.ForgetResponse:
        """Drop a node's state."""
        session = self._sessions.get(request.stamp)
        if (said := _said(session, request.stamp, pb.ForgetResponse)) is not None:
            return said
        session.core.apply([Forget(node_name=required_node(request.node_name, ""))])
        session.advance(request.stamp, session.at_ns, pb.ForgetResponse())
        return pb.ForgetResponse()

    async def Synchronize(
        self, request: pb.SynchronizeRequest, context: _Context
    ) -> pb.SynchronizeResponse:
        """Run one step of a node's manager."""
        session = self._sessions.get(request.stamp)
        if (said := _said(session, request.stamp, pb.SynchronizeResponse)) is not None:
            return said
        step = step_from_message(request.step, field="step", clock=_clock(session))
        done = self._counted(session.core.apply([step]))
        answer = pb.SynchronizeResponse(answer=answer_to_message(done[0]))
        session.advance(request.stamp, _latest_ns(session, [step]), answer)
        return answer

    async def Resume(self, request: pb.ResumeRequest, context: _Context) -> pb.ResumeResponse:
        """Go on with a step after its collection."""
        session = self._sessions.get(request.stamp)
        if (said := _said(session, request.stamp, pb.ResumeResponse)) is not None:
            return said
        resume = resume_from_message(request.resume, field="resume")
        done = self._counted(session.core.apply([resume]))
        answer = pb.ResumeResponse(answer=answer_to_message(done[0]))
        session.advance(request.stamp, session.at_ns, answer)
        return answer

    async def Admit(self, request: pb.AdmitRequest, context: _Context) -> pb.AdmitResponse:
        """Tell whether a node takes a pod."""
        session = self._sessions.get(request.stamp)
        node = session.core.node(required_node(request.node_name, ""))
        admission = node.manager.admit(pod_from_message(request.pod, field="pod"))
        return pb.AdmitResponse(
            admit=admission.admit, reason=admission.reason, message=admission.message
        )

    async def Stream(
        self, request_iterator: AsyncIterator[pb.StreamRequest], context: _Context
    ) -> AsyncIterator[pb.StreamResponse]:
        """Carry batches of operations."""
        async for request in request_iterator:
            yield self._batch(request)

    async def Evaluate(self, request: pb.EvaluateRequest, context: _Context) -> pb.EvaluateResponse:
        """Run one step without a session."""
        read = config_from_message(request.config, field="config")
        step = step_from_message(request.step, field="step")
        return pb.EvaluateResponse(answer=answer_to_message(Fleet(read.config).apply([step])[0]))

    async def Dump(self, request: pb.DumpRequest, context: _Context) -> pb.DumpResponse:
        """Show the whole state."""
        fleet = self._sessions.get(request.stamp).core
        return pb.DumpResponse(
            nodes=[node_state(name, node.manager, node.at_ns) for name, node in fleet]
        )

    async def GetMetrics(
        self, request: pb.GetMetricsRequest, context: _Context
    ) -> pb.GetMetricsResponse:
        """Show the process's metrics."""
        return pb.GetMetricsResponse(text=self.metrics_text())

    def metrics_text(self) -> str:
        """Return the process's metrics in Prometheus' text format."""
        return self._metrics.text()

    async def Checkpoint(
        self, request: pb.CheckpointRequest, context: _Context
    ) -> AsyncIterator[pb.CheckpointResponse]:
        """Save a session."""
        session = self._sessions.get(request.stamp)
        state = fleet_to_json(session.core)
        for chunk in write_checkpoint(checkpoint_info(SERVICE, session), state):
            yield pb.CheckpointResponse(chunk=chunk)

    async def Restore(
        self, request_iterator: AsyncIterator[pb.RestoreRequest], context: _Context
    ) -> pb.RestoreResponse:
        """Put a saved session in the place of the one of its name."""
        chunks = (request.chunk async for request in request_iterator)
        info, plain = await read_checkpoint(SERVICE, chunks)
        with reading_state(SERVICE):
            fleet = fleet_from_plain(plain)
        session = restore_session(self._sessions, info, fleet)
        return pb.RestoreResponse(session=session.name, epoch=session.epoch)

    def _counted(self, answers: list[Answer]) -> list[Answer]:
        """Let the metrics take in the steps that have ended."""
        for answer in answers:
            if isinstance(answer.outcome, StepResult):
                self._metrics.absorb(answer.outcome)
        return answers

    def _batch(self, request: pb.StreamRequest) -> pb.StreamResponse:
        session = self._sessions.get(request.stamp)
        if (said := _said(session, request.stamp, pb.StreamResponse)) is not None:
            return said
        started_ns = time.perf_counter_ns()
        operations = [
            operation_from_message(each, field=f"operations[{index}]", clock=_clock(session))
            for index, each in enumerate(request.operations)
        ]
        decoded_ns = time.perf_counter_ns()
        done = self._counted(session.core.apply(operations))
        stepped_ns = time.perf_counter_ns()
        answer = pb.StreamResponse(
            answers=map(answer_to_message, done), sequence=request.stamp.sequence
        )
        encoded_ns = time.perf_counter_ns()
        answer.phases.extend(
            [
                session_pb2.Phase(name="decode", wall_ns=decoded_ns - started_ns),
                session_pb2.Phase(name="synchronize", wall_ns=stepped_ns - decoded_ns),
                session_pb2.Phase(name="encode", wall_ns=encoded_ns - stepped_ns),
            ]
        )
        session.advance(request.stamp, _latest_ns(session, operations), answer)
        return answer


def _said(
    session: Session[Fleet], stamp: session_pb2.Stamp, kind: type[_Response]
) -> _Response | None:
    """Return the last answer where the stamp repeats the last request, None where it goes on."""
    answer = session.repeated(stamp)
    if answer is None or isinstance(answer, kind):
        return answer
    raise StaleError(
        f"stamp.sequence {stamp.sequence} was another operation in session {session.name!r}"
    )


def _clock(session: Session[Fleet]) -> Clock | None:
    """Return the wall clock of a live session, held where the machine's is set back."""
    if not session.core.live:
        return None
    return lambda: max(session.at_ns, time.time_ns())


def _latest_ns(session: Session[Fleet], operations: Sequence[Operation]) -> int:
    times_ns = [each.now_ns for each in operations if isinstance(each, Step)]
    return max(session.at_ns, *times_ns) if times_ns else session.at_ns
