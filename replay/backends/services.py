"""The services as a replay uses them: sessions over gRPC at an address, or in this process."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc

from replay.backends.duplex import Duplex
from replay.backends.responses import ResponseError, checked
from replay.backends.stream import Exchange, describe, failed, is_lost, is_overdue, silent
from replay.errors import BackendError, ConfigurationError, ServiceLostError, ServiceSilentError
from reprieve.autoscaler.v1beta1 import autoscaler_pb2, autoscaler_service_pb2_grpc
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2 as autoscaler_rpc
from reprieve.eviction.v1beta1 import eviction_pb2, eviction_service_pb2_grpc
from reprieve.eviction.v1beta1 import eviction_service_pb2 as eviction_rpc
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2_grpc
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as scheduler_rpc
from reprieve.session.v1beta1 import session_pb2
from services.kube.pod import DEFAULT_SCHEDULER
from services.kube.time import DAY_NS, format_duration
from services.rpc.access import PLAIN, ClientTls
from services.rpc.client import channel
from services.rpc.kube import rfc3339
from services.rpc.parts import MESSAGE_BYTES_MAX, chunks, merged, split
from services.rpc.required import PROBLEM, missing

FAST_PATHS = {
    scheduler_pb2.FAST_PATH_UNSPECIFIED: "",
    scheduler_pb2.FAST_PATH_NOMINATED_NODE: "nominatedNode",
    scheduler_pb2.FAST_PATH_SINGLE_FEASIBLE_NODE: "singleFeasibleNode",
}
"""Upstream's names of the reasons to take a node without scoring."""

_REFUSED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED)
_EPOCH_FROM_NS = 365 * DAY_NS
"""A later virtual time is one since the Unix epoch: a relative trace begins at 0."""
_UNKNOWN_SESSION = "unknown"
_SOON_S = 5.0
Request = TypeVar("Request")
Answer = TypeVar("Answer")


class _Session(Generic[Request, Answer]):
    """One session with a service: opened, streamed through, closed."""

    def __init__(
        self,
        service: str,
        address: str,
        make_stub: Callable[[grpc.Channel], Any],
        request: object,
        stream: str,
        tls: ClientTls,
    ) -> None:
        """Open the session.

        Raises BackendError if the service cannot be reached, and ConfigurationError if it
        refuses the request.
        """
        self._service = service
        self._make_stub = make_stub
        self._request = request
        self._stream_name = stream
        self._tls = tls
        self._timeouts = tls.timeouts
        self._stamp = session_pb2.Stamp()
        self._awaited: tuple[int, int | None] = (0, None)
        self._open(address, ())

    def reopen(self, address: str, chunks: Sequence[session_pb2.CheckpointChunk]) -> None:
        """Open another session, as in a checkpoint or new without one, and end the former.

        Raises ServiceLostError if the service cannot be reached, and BackendError if it
        refuses the checkpoint.
        """
        former = self._stamp.session_id
        self._stream.close()
        self._channel.close()
        self._open(address, chunks)
        self._delete(former)

    def _open(self, address: str, chunks: Sequence[session_pb2.CheckpointChunk]) -> None:
        self._title = f"the {self._service} at {address}"
        self._channel = channel(address, self._tls)
        self._stub = self._make_stub(checked(self._channel, self._title))
        self._awaited = (0, None)
        try:
            if chunks:
                opened = self._stub.RestoreSession(iter(chunks), timeout=self._timeouts.checkpoint)
            else:
                opened = self._stub.CreateSession(self._request, timeout=self._timeouts.call)
        except ResponseError:
            self._channel.close()
            raise
        except grpc.RpcError as error:
            self._channel.close()
            if is_overdue(error):
                timeout = "checkpoint" if chunks else "call"
                raise silent(self._title, timeout, getattr(self._timeouts, timeout)) from error
            text = f"{self._title} opened no session: {describe(error)}"
            if is_lost(error):
                raise ServiceLostError(text) from error
            refused = isinstance(error, grpc.Call) and error.code() in _REFUSED
            raise (ConfigurationError if refused else BackendError)(text) from error
        if path := missing(opened):
            self._channel.close()
            raise self.invalid(path, PROBLEM)
        self.opened = opened
        self._stamp.session_id, self._stamp.sequence = opened.session_id, 0
        open_stream: Callable[[], Duplex] = getattr(self._stub, self._stream_name)
        unary = getattr(self._stub, self._stream_name.removeprefix("Streaming"))
        self._stream: Exchange[Request, Answer] = Exchange(
            open_stream, self._service, address, unary, self._timeouts.response
        )

    def checkpoint(self) -> Sequence[session_pb2.CheckpointChunk]:
        """Return the session's state; every request must have its response. Raises BackendError."""
        request = session_pb2.CheckpointSessionRequest(stamp=self._unnumbered_stamp())
        try:
            return list(self._stub.CheckpointSession(request, timeout=self._timeouts.checkpoint))
        except grpc.RpcError as error:
            raise failed(f"{self._title} saved no checkpoint:", error) from error

    def follow(self, traceparent: str) -> None:
        """Make the service's own spans part of the trace of a W3C traceparent."""
        self._stamp.traceparent = traceparent

    def close(self) -> None:
        """Delete the session and close the channel."""
        self._stream.close()
        self._delete(self._stamp.session_id)
        self._channel.close()

    def _next_stamp(self) -> session_pb2.Stamp:
        self._stamp.sequence += 1
        return self._stamp

    def _unnumbered_stamp(self) -> session_pb2.Stamp:
        return session_pb2.Stamp(
            session_id=self._stamp.session_id, traceparent=self._stamp.traceparent
        )

    def invalid(
        self, field: str, problem: str, *, time_ns: int | None = None, about: str = ""
    ) -> BackendError:
        """Return the error of a response that breaks the contract, with the request's place.

        time_ns: virtual time of the part that is invalid, in place of the request's. about: the
        object that it is about, such as "pod default/web".
        """
        text = f"{self._title} returned an invalid response: {field}: {problem}"
        return BackendError(text + self._place(time_ns, about))

    def _place(self, time_ns: int | None = None, about: str = "") -> str:
        """Return the request that is being answered, as the end of a message; "" without any."""
        sequence, awaited_ns = self._awaited
        time_ns = awaited_ns if time_ns is None else time_ns
        at = f" at {_moment(time_ns)}" if time_ns is not None else ""
        parts = [f"request {sequence}{at}" if sequence else "", about]
        text = ", ".join(filter(None, parts))
        return f" ({text})" if text else ""

    def _receive(self, sequence: int, time_ns: int | None) -> Answer:
        """Return the next response; it must be that of request `sequence`. Raises BackendError.

        time_ns: the request's virtual time, for errors.
        """
        self._awaited = (sequence, time_ns)
        try:
            answer: Any = self._stream.receive()
        except ServiceSilentError as error:
            if not self._answers_calls():
                raise ServiceLostError(f"{error}{self._place()}") from error
            # Another session would bring it to the same request: the run ends, and is not repeated.
            text = f"{error}; the service still answers other calls{self._place()}"
            raise BackendError(text) from error
        except BackendError as error:
            raise type(error)(f"{error}{self._place()}") from error
        if answer.sequence != sequence:
            problem = f"is {answer.sequence}, but the request's is {sequence}"
            is_set = answer.HasField("sequence")
            raise self.invalid("sequence", problem if is_set else PROBLEM)
        received: Answer = answer
        return received

    def _answers_calls(self) -> bool:
        """Return whether the service answers a call that every service serves, and soon."""
        request = session_pb2.DeleteSessionRequest(session_id=_UNKNOWN_SESSION)
        try:
            self._stub.DeleteSession(request, timeout=min(self._timeouts.call, _SOON_S))
        except grpc.RpcError as error:
            return not is_lost(error)
        return True

    def _delete(self, session: str) -> None:
        """Delete a session; an error is ignored, as the service may have ended.

        gRPC raises a ValueError if the channel was closed, as it is after a vain `reopen`.
        """
        with contextlib.suppress(grpc.RpcError, ValueError):
            request = session_pb2.DeleteSessionRequest(session_id=session)
            within = self._stamp.traceparent
            metadata = (("traceparent", within),) if within else ()
            self._stub.DeleteSession(request, timeout=self._timeouts.call, metadata=metadata)


class SchedulerService(_Session[scheduler_rpc.RunRoundRequest, scheduler_rpc.RunRoundResponse]):
    """A session with a SchedulerService; `rounds` counts those whose outcomes were received."""

    def __init__(
        self, address: str, config: scheduler_pb2.SchedulerConfig, tls: ClientTls = PLAIN
    ) -> None:
        super().__init__(
            "scheduler",
            address,
            scheduler_service_pb2_grpc.SchedulerServiceStub,
            scheduler_rpc.CreateSessionRequest(config=config),
            "StreamingRunRound",
            tls,
        )
        self.opened: scheduler_rpc.Session
        self._answered: deque[scheduler_pb2.RoundOutcomes] = deque()
        self._expected: deque[_Expected] = deque()
        self.rounds = 0

    @property
    def names(self) -> frozenset[str]:
        """Return the scheduler names whose pods it schedules."""
        return frozenset(self.opened.scheduler_names or (DEFAULT_SCHEDULER,))

    @property
    def implementation(self) -> str:
        """Return the service's own name and version, "" if it has neither."""
        return f"{self.opened.implementation} {self.opened.version}".strip()

    @property
    def takes_windows(self) -> bool:
        """Return whether rounds of later instants may be sent ahead."""
        windows: bool = self.opened.windows
        return windows

    def send_round(
        self, round_: scheduler_pb2.Round, request: scheduler_rpc.RunRoundRequest | None = None
    ) -> None:
        """Send a round or a further part of one, and the rounds that will follow it.

        These are in `request`, the rest of which is filled in. Raises ConfigurationError if one of
        the round's objects is too large for a message.
        """
        request = request or scheduler_rpc.RunRoundRequest()
        request.round.CopyFrom(round_)
        if request.ByteSize() > MESSAGE_BYTES_MAX:
            *parts, last = _parts(round_)
            for part in parts:
                self._send(scheduler_rpc.RunRoundRequest(round=part), is_part=True)
            request.round.CopyFrom(last)
        self._send(request, is_part=False)

    def _send(self, request: scheduler_rpc.RunRoundRequest, *, is_part: bool) -> None:
        request.stamp.CopyFrom(self._next_stamp())
        self._expected.append(
            _Expected(
                sequence=request.stamp.sequence,
                time_ns=request.round.time_ns,
                is_part=is_part,
                rounds=1 + len(request.window),
                events_only=request.round.events_only,
                max_pods=request.round.max_pods,
            )
        )
        self._stream.send(request)

    def reopen(
        self, address: str, chunks: Sequence[session_pb2.CheckpointChunk], rounds: int = 0
    ) -> None:
        """Reopen as _Session.reopen does; `rounds` is the number of rounds at the checkpoint."""
        self._answered.clear()
        self._expected.clear()
        self.rounds = rounds
        super().reopen(address, chunks)

    def reconfigure(self, config: scheduler_pb2.SchedulerConfig, tls: ClientTls) -> None:
        """Set how later sessions are opened."""
        self._request = scheduler_rpc.CreateSessionRequest(config=config)
        self._tls, self._timeouts = tls, tls.timeouts

    def list_objects(self, events: Iterable[scheduler_pb2.Event], at_ns: int) -> None:
        """Send a new session the objects that exist at `at_ns`, before its first round.

        Raises BackendError; ConfigurationError if an object is too large for a message.
        """
        rounds = self.rounds
        for chunk in chunks(list(events)):
            self.send_round(scheduler_pb2.Round(time_ns=at_ns, events=chunk, events_only=True))
            self.receive_outcomes()
        self.rounds = rounds

    def restore(self, chunks: Iterable[session_pb2.CheckpointChunk]) -> None:
        """Replace the session by one that is restored from a checkpoint.

        Raises BackendError if the service refuses the checkpoint; the session then stays.
        """
        try:
            restored = self._stub.RestoreSession(iter(chunks), timeout=self._timeouts.checkpoint)
        except grpc.RpcError as error:
            text = f"the scheduler did not restore a checkpoint: {describe(error)}"
            raise BackendError(text) from error
        self._delete(self._stamp.session_id)
        self._stamp.session_id, self._stamp.sequence = restored.session_id, 0

    def evaluate(
        self, request: scheduler_rpc.EvaluatePodRequest
    ) -> scheduler_rpc.EvaluatePodResponse:
        """Return every verdict about a pending pod of the session. Raises grpc.RpcError."""
        request.stamp.CopyFrom(self._unnumbered_stamp())
        parts = self._stub.EvaluatePod(request, timeout=self._timeouts.checkpoint)
        whole: scheduler_rpc.EvaluatePodResponse
        whole = merged(parts, scheduler_rpc.EvaluatePodResponse())
        return whole

    def receive_outcomes(self) -> scheduler_pb2.RoundOutcomes:
        """Return the outcomes of the first round that has none yet. Raises BackendError."""
        while not self._answered:
            expected = self._expected[0]
            answer = self._receive(expected.sequence, expected.time_ns)
            if not answer.rounds:
                raise self.invalid("rounds", f"{PROBLEM}: one for each round")
            self._check_rounds(answer, expected)
            if not answer.rounds[-1].window_continues:
                self._expected.popleft()
            if not expected.is_part:
                self._answered.extend(answer.rounds)
        self.rounds += 1
        return self._answered.popleft()

    def _check_rounds(self, answer: scheduler_rpc.RunRoundResponse, expected: _Expected) -> None:
        """Check outcomes by the rounds that were sent. Raises BackendError."""
        expected.rounds -= len(answer.rounds)
        if expected.rounds < 0:
            raise self.invalid("rounds", f"has {-expected.rounds} more than rounds were sent")
        for index, outcomes in enumerate(answer.rounds):
            path = f"rounds[{index}]"
            if not outcomes.window_continues and index + 1 < len(answer.rounds):
                raise self.invalid(
                    f"{path}.window_continues", "is required where the next round's follow"
                )
            if expected.events_only and outcomes.outcomes:
                raise self.invalid(f"{path}.outcomes", "has pods, but the round has events only")
            if expected.max_pods and len(outcomes.outcomes) > expected.max_pods:
                problem = f"has more pods than the round's max_pods, {expected.max_pods}"
                raise self.invalid(f"{path}.outcomes", problem)


@dataclass(slots=True)
class _Expected:
    """A request without its complete response: its unanswered `rounds`, and what they allow.

    `time_ns`: the time of its first round. `is_part`: it has only a part of a round's events.
    """

    sequence: int
    time_ns: int
    is_part: bool
    rounds: int
    events_only: bool
    max_pods: int


def _parts(round_: scheduler_pb2.Round) -> list[scheduler_pb2.Round]:
    """Return a round split into parts that each fit a message; all but the last are events only.

    A part has the time of its last event, since events that waited are older than the round and
    none may lie before the part that precedes it. Raises ConfigurationError if one object is too
    large.
    """
    parts = list(split(round_))
    for part in parts:
        timed = part.events or part.answers
        part.time_ns = timed[-1].time_ns if timed and part is not parts[-1] else round_.time_ns
        part.number, part.events_only = round_.number, True
        part.ClearField("max_pods")
        if part.ByteSize() > MESSAGE_BYTES_MAX:
            raise ConfigurationError(
                f"the trace has an object of {part.ByteSize()} bytes at {round_.time_ns} ns; a "
                f"message may have at most {MESSAGE_BYTES_MAX} bytes"
            )
    parts[-1].events_only = round_.events_only
    if round_.HasField("max_pods"):
        parts[-1].max_pods = round_.max_pods
    return parts


class EvictionService(_Session[eviction_rpc.ApplyRequest, eviction_rpc.ApplyResponse]):
    """A session with an EvictionService."""

    def __init__(
        self, address: str, config: eviction_pb2.EvictionConfig, tls: ClientTls = PLAIN
    ) -> None:
        super().__init__(
            "eviction service",
            address,
            eviction_service_pb2_grpc.EvictionServiceStub,
            eviction_rpc.CreateSessionRequest(config=config),
            "StreamingApply",
            tls,
        )
        self.opened: eviction_rpc.Session

    def apply(
        self, operations: Sequence[eviction_rpc.Operation]
    ) -> Sequence[eviction_rpc.OperationResult]:
        """Apply operations; return one result for each except removals, in order.

        Raises BackendError.
        """
        results: list[eviction_rpc.OperationResult] = []
        for chunk in chunks(operations):
            unapplied = chunk
            while unapplied:
                stamp = self._next_stamp()
                self._stream.send(eviction_rpc.ApplyRequest(stamp=stamp, operations=unapplied))
                answer = self._receive(stamp.sequence, _time_ns(unapplied))
                if not 0 < answer.applied <= len(unapplied):
                    problem = f"is {answer.applied}, of {len(unapplied)} operations"
                    raise self.invalid("applied", problem)
                for index, phase in enumerate(answer.phases):
                    if path := missing(phase):
                        raise self.invalid(f"phases[{index}].{path}", PROBLEM)
                    if phase.wall_duration_ns < 0:
                        problem = f"{phase.wall_duration_ns} is negative"
                        raise self.invalid(f"phases[{index}].wall_duration_ns", problem)
                results += answer.results
                unapplied = unapplied[answer.applied :]
        return results


class AutoscalerService(_Session[autoscaler_rpc.ApplyRequest, autoscaler_rpc.ApplyResponse]):
    """A session with an AutoscalerService."""

    def __init__(
        self, address: str, config: autoscaler_pb2.AutoscalerConfig, tls: ClientTls = PLAIN
    ) -> None:
        super().__init__(
            "autoscaler",
            address,
            autoscaler_service_pb2_grpc.AutoscalerServiceStub,
            autoscaler_rpc.CreateSessionRequest(config=config),
            "StreamingApply",
            tls,
        )
        self.opened: autoscaler_rpc.Session

    def apply(
        self, changes: Sequence[autoscaler_rpc.Change], step: autoscaler_rpc.Step
    ) -> autoscaler_rpc.ApplyResponse:
        """Send changes, and the step after them; return the result of the step.

        Raises BackendError.
        """
        parts = list(chunks(changes)) or [[]]
        for part in parts[:-1]:
            self._exchange(autoscaler_rpc.ApplyRequest(changes=part), step.time_ns)
        answer = self._exchange(
            autoscaler_rpc.ApplyRequest(changes=parts[-1], step=step), step.time_ns
        )
        next_part = autoscaler_rpc.Step(time_ns=step.time_ns, next_part=autoscaler_rpc.NextPart())
        while answer.more:
            answer.more = False
            answer.MergeFrom(
                self._exchange(autoscaler_rpc.ApplyRequest(step=next_part), step.time_ns)
            )
        return answer

    def _exchange(
        self, request: autoscaler_rpc.ApplyRequest, time_ns: int
    ) -> autoscaler_rpc.ApplyResponse:
        stamp = self._next_stamp()
        request.stamp.CopyFrom(stamp)
        self._stream.send(request)
        return self._receive(stamp.sequence, time_ns)


def _time_ns(operations: Sequence[eviction_rpc.Operation]) -> int | None:
    """Return the time of the first step among operations, None without one."""
    steps = (operation.step for operation in operations if operation.HasField("step"))
    return next((step.time_ns for step in steps), None)


def _moment(time_ns: int) -> str:
    """Return a virtual time for users: RFC 3339 for one since the epoch, else since the start."""
    if time_ns < _EPOCH_FROM_NS:
        return format_duration(max(0, time_ns))
    return rfc3339.text(time_ns, None)
