"""The services as a replay knows them: by their protos and their addresses."""

from __future__ import annotations

import contextlib
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import grpc

from replay.backends.errors import BackendError, ConfigurationError
from replay.backends.stream import Exchange, describe
from reprieve.eviction.v1alpha1 import eviction_pb2, eviction_service_pb2_grpc
from reprieve.eviction.v1alpha1 import eviction_service_pb2 as eviction_rpc
from reprieve.kube.v1alpha1 import pod_pb2
from reprieve.scheduler.v1alpha1 import scheduler_pb2, scheduler_service_pb2_grpc
from reprieve.scheduler.v1alpha1 import scheduler_service_pb2 as scheduler_rpc
from reprieve.session.v1alpha1 import session_pb2
from services.kube.pod import DEFAULT_SCHEDULER
from services.rpc.client import PLAIN, ClientTls, channel

DEADLINE_S = 30.0
CHECKPOINT_S = 120.0
_REFUSED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED)
Request = TypeVar("Request")
Answer = TypeVar("Answer")


class _Session(Generic[Request, Answer]):
    """One session with a service: opened, streamed through, closed."""

    def __init__(
        self,
        service: str,
        address: str,
        make_stub: Callable[[grpc.Channel], Any],
        open_request: object,
        close_request: Callable[..., object],
        tls: ClientTls,
    ) -> None:
        """Open the session.

        Raises BackendError where the service cannot be reached, and ConfigurationError where it
        refuses what it was asked to do.
        """
        self._named = f"the {service} at {address}"
        self._close_request = close_request
        self._channel = channel(address, tls)
        self._stub = make_stub(self._channel)
        try:
            self.opened = self._stub.Open(open_request, timeout=DEADLINE_S)
        except grpc.RpcError as error:
            self._channel.close()
            text = f"the {service} at {address} opened no session: {describe(error)}"
            refused = isinstance(error, grpc.Call) and error.code() in _REFUSED
            raise (ConfigurationError if refused else BackendError)(text) from error
        self._stamp = session_pb2.Stamp(session=self.opened.session, epoch=self.opened.epoch)
        open_stream: Callable[[Iterator[Request]], Any] = self._stub.Stream
        self._stream: Exchange[Request, Answer] = Exchange(open_stream, service, address)

    def follow(self, traceparent: str) -> None:
        """Let the service's own spans belong to the trace of that context."""
        self._stamp.traceparent = traceparent

    def close(self) -> None:
        """Forget the session and hang up."""
        self._stream.close()
        self._forget()
        self._channel.close()

    def _next_stamp(self) -> session_pb2.Stamp:
        """Return the stamp of the next request."""
        self._stamp.sequence += 1
        return self._stamp

    def _now(self) -> session_pb2.Stamp:
        """Return a stamp for a call that does not count."""
        return session_pb2.Stamp(session=self._stamp.session, epoch=self._stamp.epoch)

    def _ask(self, method: str, request: Any) -> Any:
        """Call a method that reads the session as it stands. Raises BackendError."""
        request.stamp.session, request.stamp.epoch = self._stamp.session, self._stamp.epoch
        request.stamp.traceparent = self._stamp.traceparent
        return self._call(method, request)

    def _call(self, method: str, request: object) -> Any:
        """Call a method of the service. Raises BackendError."""
        try:
            return getattr(self._stub, method)(request, timeout=DEADLINE_S)
        except grpc.RpcError as error:
            raise BackendError(f"{self._named} answers {describe(error)}") from error

    def _forget(self) -> None:
        """Let the service forget the session; one that has gone is no fault here."""
        with contextlib.suppress(grpc.RpcError):
            self._stub.CloseSession(
                self._close_request(session=self._stamp.session), timeout=DEADLINE_S
            )


class SchedulerService(_Session[scheduler_rpc.StreamRequest, scheduler_rpc.StreamResponse]):
    """A session with a SchedulerService; `rounds` counts those whose outcomes were taken."""

    def __init__(
        self, address: str, config: scheduler_pb2.SchedulerConfig, tls: ClientTls = PLAIN
    ) -> None:
        super().__init__(
            "scheduler",
            address,
            scheduler_service_pb2_grpc.SchedulerServiceStub,
            scheduler_rpc.OpenRequest(config=config),
            scheduler_rpc.CloseSessionRequest,
            tls,
        )
        self.opened: scheduler_rpc.OpenResponse
        self._answered: deque[scheduler_pb2.RoundOutcomes] = deque()
        self.rounds = 0

    @property
    def names(self) -> frozenset[str]:
        """Return the scheduler names whose pods it schedules."""
        return frozenset(self.opened.scheduler_names or (DEFAULT_SCHEDULER,))

    @property
    def implementation(self) -> str:
        """Return what it calls itself, name and version; "" where it says neither."""
        return f"{self.opened.implementation} {self.opened.version}".strip()

    @property
    def takes_windows(self) -> bool:
        """Tell whether rounds may be told ahead."""
        return self.opened.windows

    def tell(
        self, round_: scheduler_pb2.Round, window: Sequence[scheduler_rpc.Foreseen] = ()
    ) -> None:
        """Tell a round, or go on with one, and the rounds that will follow it."""
        stamp = self._next_stamp()
        request = scheduler_rpc.StreamRequest(stamp=stamp, round=round_, window=window)
        self._stream.send(request)

    def checkpoint(self) -> Sequence[session_pb2.CheckpointChunk]:
        """Return the session's state; every round told is answered. Raises BackendError."""
        request = scheduler_rpc.CheckpointRequest(stamp=self._now())
        try:
            answers = self._stub.Checkpoint(request, timeout=CHECKPOINT_S)
            return [answer.chunk for answer in answers]
        except grpc.RpcError as error:
            raise BackendError(f"the scheduler saves no checkpoint: {describe(error)}") from error

    def restore(self, chunks: Iterable[session_pb2.CheckpointChunk]) -> None:
        """Go on in a session that a checkpoint makes, under a name of its own.

        Raises BackendError where the service does not take it; the session is the old one then.
        """
        kept = list(chunks)
        sequence = kept[0].info.sequence if kept else 0
        if kept:
            kept[0].info.session = f"restored-{secrets.token_hex(8)}"
        requests = (scheduler_rpc.RestoreRequest(chunk=chunk) for chunk in kept)
        try:
            restored = self._stub.Restore(requests, timeout=CHECKPOINT_S)
        except grpc.RpcError as error:
            raise BackendError(f"the scheduler restores nothing: {describe(error)}") from error
        self._forget()
        stamp = self._stamp
        stamp.session, stamp.epoch, stamp.sequence = restored.session, restored.epoch, sequence

    def evaluate_pending(
        self, request: scheduler_rpc.EvaluatePendingRequest
    ) -> scheduler_rpc.EvaluatePendingResponse:
        """Return every verdict about a pending pod of the session. Raises grpc.RpcError."""
        request.stamp.CopyFrom(self._now())
        response: scheduler_rpc.EvaluatePendingResponse = self._stub.EvaluatePending(
            request, timeout=CHECKPOINT_S
        )
        return response

    def answer(self) -> scheduler_pb2.RoundOutcomes:
        """Return what was decided of the first round not answered yet. Raises BackendError."""
        if not self._answered:
            self._answered.extend(self._stream.receive().outcomes)
        self.rounds += 1
        outcomes = self._answered.popleft()
        for outcome in outcomes.outcomes:
            if outcome.HasField("refusals") and not _is_whole(outcome.refusals):
                raise BackendError(
                    f"{self._named} answers refusals whose columns do not fit together"
                )
        return outcomes


def _is_whole(refusals: scheduler_pb2.Refusals) -> bool:
    """Tell whether every column has an entry for each pod, and every place is there."""
    pods = len(refusals.uids)
    columns = (
        refusals.refused_by,
        refusals.attempts,
        refusals.first_enqueued_ns,
        refusals.queued_ns,
        refusals.wall_ns,
    )
    return (
        all(len(column) == pods for column in columns)
        and max(refusals.refused_by, default=0) < len(refusals.verdicts)
        and all(
            len(step.places) == len(step.wall_ns) and max(step.places, default=0) < pods
            for step in refusals.steps
        )
    )


class EvictionService(_Session[eviction_rpc.StreamRequest, eviction_rpc.StreamResponse]):
    """A session with an EvictionService."""

    def __init__(
        self, address: str, config: eviction_pb2.EvictionConfig, tls: ClientTls = PLAIN
    ) -> None:
        super().__init__(
            "eviction service",
            address,
            eviction_service_pb2_grpc.EvictionServiceStub,
            eviction_rpc.OpenRequest(config=config),
            eviction_rpc.CloseSessionRequest,
            tls,
        )
        self.opened: eviction_rpc.OpenResponse

    def step(
        self, operations: Sequence[eviction_rpc.NodeOperation]
    ) -> Sequence[eviction_rpc.StepAnswer]:
        """Carry out a batch; one answer for each step, in order. Raises BackendError."""
        stamp = self._next_stamp()
        request = eviction_rpc.StreamRequest(stamp=stamp, operations=operations)
        return self._stream.exchange(request).answers

    def admit(self, node_name: str, pod: pod_pb2.Pod) -> eviction_rpc.AdmitResponse:
        """Ask whether a node takes a pod. Raises BackendError."""
        request = eviction_rpc.AdmitRequest(node_name=node_name, pod=pod)
        answer: eviction_rpc.AdmitResponse = self._ask("Admit", request)
        return answer
