"""SchedulerService around the small scheduler: rounds, their windows, and broken sessions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.empty_pb2 import Empty

from reprieve.kube.v1beta1 import object_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2_grpc
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as rpc
from reprieve.session.v1beta1 import session_pb2
from tests.conformance_mutants.scheduler_rules import Breach, Difference
from tests.conformance_mutants.small_scheduler import SmallScheduler
from tests.conformance_mutants.small_sessions import (
    VERSION,
    RefusedError,
    Session,
    SmallSessions,
    bad_field,
    kept_answer,
    refusing,
    serving,
)


@dataclass(slots=True)
class Rounds:
    """The rounds of one session, of which the last one was at `time_ns`."""

    scheduler: SmallScheduler
    time_ns: int = 0

    def apply(
        self, request: rpc.RunRoundRequest, *, one_round: bool = False
    ) -> rpc.RunRoundResponse:
        """Run a round, and those of its window as long as each pod is bound."""
        scheduler = self.scheduler
        made = [scheduler.run(request.round)]
        for foreseen in () if one_round else request.window:
            is_bound = all(outcome.HasField("bind") for outcome in made[-1].outcomes)
            if (not is_bound or scheduler.pending) and not scheduler.breaks(Breach.WINDOWS_GO_ON):
                break
            made[-1].window_continues = True
            made.append(scheduler.run(foreseen.round, foreseen.confirmations))
        self.time_ns = request.round.time_ns
        return rpc.RunRoundResponse(sequence=request.stamp.sequence, rounds=made)

    def state(self) -> rpc.GetStateResponse:
        """Return the state."""
        return rpc.GetStateResponse(state=self.scheduler.state())


class SmallSchedulerService(SmallSessions, scheduler_service_pb2_grpc.SchedulerServiceServicer):
    """Serves every RPC; `difference` is what it does in another way."""

    service = "scheduler"
    create_type, apply_type = rpc.CreateSessionRequest, rpc.RunRoundRequest

    def __init__(self, difference: Difference | None = None) -> None:
        super().__init__()
        self._difference = difference
        self._shared = SmallScheduler(difference)
        if self._breaks(Breach.CHECKPOINT_HAS_NO_VERSION):
            self.checkpoint_version = ""

    def _breaks(self, *breaches: Breach) -> bool:
        return self._difference in breaches

    # Sessions

    def new_core(self, request: rpc.CreateSessionRequest) -> Rounds:
        """Return the rounds of a session with an empty cluster."""
        del request
        shares = self._breaks(Breach.SESSIONS_SHARE)
        return Rounds(self._shared if shares else SmallScheduler(self._difference))

    def opened(self, name: str, core: Any) -> rpc.Session:
        """Return a session that serves every feature."""
        del core
        return rpc.Session(
            session_id=name,
            version=VERSION,
            implementation="small",
            windows=True,
            resumable=not self._breaks(Breach.HIDES_CHECKPOINTS),
        )

    def DeleteSession(self, request: Any, context: Any) -> Empty:  # noqa: N802
        """Delete a session, if there is one of that name."""
        with refusing(context):
            if self._breaks(Breach.DELETES_ONCE):
                self.session(session_pb2.Stamp(session_id=request.session_id))
        return (
            Empty()
            if self._breaks(Breach.KEEPS_DELETED)
            else super().DeleteSession(request, context)
        )

    def accepts(self, kind: session_pb2.ServiceKind.ValueType) -> bool:
        """Return whether a checkpoint of a service can be restored."""
        return super().accepts(kind) or self._breaks(Breach.RESTORES_FOREIGN)

    def saved(self, data: bytes) -> Iterator[bytes]:
        """Yield the requests of a checkpoint."""
        requests = super().saved(data)
        yield next(requests)
        try:
            kept = list(requests)
        except RefusedError:
            if not self._breaks(Breach.RESTORES_PARTS):
                raise
            return
        yield from () if self._breaks(Breach.RESTORES_EMPTY) else kept

    # Rounds

    def RunRound(self, request: rpc.RunRoundRequest, context: Any) -> rpc.RunRoundResponse:  # noqa: N802
        """Run a round, and those of its window."""
        answer: rpc.RunRoundResponse = self._answer(
            request, context, one_round=Breach.WINDOWS_OF_ONE_ROUND
        )
        return answer

    def StreamingRunRound(  # noqa: N802
        self, request_iterator: Iterable[rpc.RunRoundRequest], context: Any
    ) -> Iterator[rpc.RunRoundResponse]:
        """Run rounds in their order."""
        if self._breaks(Breach.FAILS_STREAMS):
            context.abort(grpc.StatusCode.UNKNOWN, "the method has too few parameters")
        for request in request_iterator:
            answer = self._answer(request, context, one_round=Breach.STREAMS_ONE_ROUND)
            if self._breaks(Breach.STREAMS_BACKWARDS):
                answer.sequence += 1
            yield answer

    def _answer(self, request: rpc.RunRoundRequest, context: Any, *, one_round: Breach) -> Any:
        with refusing(context):
            session = self.session(request.stamp)
            if (kept := self._kept(session, request)) is not None:
                return kept
            self._check(session, request)
            answer = _rounds_of(session).apply(request, one_round=self._breaks(one_round))
            session.keep(request, answer)
            return answer

    def _kept(self, session: Session, request: rpc.RunRoundRequest) -> Any:
        """Return the kept answer of a request that came before."""
        is_numbered = request.stamp.HasField("sequence")
        if is_numbered and self._breaks(Breach.TAKES_ANY_NUMBER):
            return None
        if not is_numbered and self._breaks(Breach.NUMBER_IS_OPTIONAL):
            return None
        is_repeated = session.answer is not None and request.stamp.sequence == session.sequence
        if is_repeated and self._breaks(Breach.REPEATS):
            return None
        if is_repeated and self._breaks(Breach.TAKES_NUMBERS_TWICE):
            return session.answer
        if is_repeated and self._breaks(Breach.READS_TRACES) and request != session.requests[-1]:
            raise RefusedError(grpc.StatusCode.ABORTED, "SEQUENCE_REUSED")
        return kept_answer(session, request)

    def _check(self, session: Session, request: rpc.RunRoundRequest) -> None:
        """Refuse a request that is malformed, before anything of it is applied."""
        if not request.HasField("round"):
            raise self._malformed(session, request, "round")
        is_early = request.round.time_ns < _rounds_of(session).time_ns
        if is_early and not self._breaks(Breach.TAKES_TIME_BACK):
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, "TIME_GOES_BACKWARDS")
        for number, answer in enumerate(request.round.answers):
            if not answer.pop.uid:
                raise self._malformed(session, request, f"round.answers[{number}].pop.uid")
        for number, event in enumerate(request.round.events):
            if path := _malformed_event(event):
                raise self._malformed(session, request, f"round.events[{number}].{path}")

    def _malformed(self, session: Session, request: rpc.RunRoundRequest, path: str) -> RefusedError:
        if self._breaks(Breach.APPLIES_A_PART) and request.round.events:
            part = scheduler_pb2.Round(
                time_ns=request.round.time_ns, events=request.round.events[:1]
            )
            _rounds_of(session).scheduler.run(part)
        return bad_field("request" if self._breaks(Breach.NAMES_NO_FIELD) else path)

    # Reads

    def EvaluatePod(  # noqa: N802
        self, request: rpc.EvaluatePodRequest, context: Any
    ) -> Iterator[rpc.EvaluatePodResponse]:
        """Evaluate a pending pod, or a new one."""
        with refusing(context):
            scheduler = _rounds_of(self.session(request.stamp)).scheduler
            is_known = request.pod.uid in scheduler.pending
            pod = scheduler.pods.get(request.pod.uid, request.new_pod)
            if request.HasField("new_pod") and self._breaks(Breach.EVALUATES_NO_NEW_PODS):
                raise bad_field("pod.uid")
            is_refused = not is_known and not request.HasField("new_pod")
            if is_refused and not self._breaks(Breach.EVALUATES_UNKNOWN):
                raise RefusedError(grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
            yield rpc.EvaluatePodResponse(evaluation=scheduler.evaluate(pod))

    def GetState(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        """Return the state."""
        yield from super().GetState(request, context)
        if self._breaks(Breach.STATE_COUNTS):
            self.session(request.stamp).sequence += 1


def serving_scheduler(
    service: scheduler_service_pb2_grpc.SchedulerServiceServicer,
) -> AbstractContextManager[str]:
    """Serve a scheduler, and yield its address."""

    def register(server: grpc.Server) -> None:
        scheduler_service_pb2_grpc.add_SchedulerServiceServicer_to_server(service, server)

    return serving(register)


def _rounds_of(session: Session) -> Rounds:
    assert isinstance(session.core, Rounds)
    return session.core


def _malformed_event(event: scheduler_pb2.Event) -> str:
    """Return the path of a field that an event lacks, "" if none."""
    kind = event.WhichOneof("event")
    if kind is None:
        return "event"
    thing: object_pb2.KubernetesObject = event.update if kind == "update" else event.add
    if thing.HasField("pod") and not thing.pod.metadata.uid:
        return f"{kind}.pod.metadata.uid"
    return ""
