"""SchedulerService around the small scheduler: sessions, numbered requests, windows, refusals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.empty_pb2 import Empty
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from reprieve.kube.v1beta1 import object_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2_grpc
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as rpc
from reprieve.session.v1beta1 import session_pb2
from tests.conformance_mutants.scheduler_rules import Breach, Difference
from tests.conformance_mutants.small_scheduler import SmallScheduler

LENGTH_BYTES = 4
VERSION = "0.1.0"


class RefusedError(Exception):
    """A request that is refused, with its status code, reason, field and metadata."""

    def __init__(
        self, code: grpc.StatusCode, reason: str, field: str = "", **metadata: str
    ) -> None:
        super().__init__(f"{reason} {field}".strip())
        self.code, self.reason, self.field, self.metadata = code, reason, field, metadata


def bad_field(path: str) -> RefusedError:
    """Return the refusal of a malformed request."""
    return RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "BAD_FIELD", path)


@dataclass(slots=True)
class Session:
    """A scheduler with the requests that it has carried out, of which the last may come again."""

    scheduler: SmallScheduler
    sequence: int = 0
    time_ns: int = 0
    requests: list[rpc.RunRoundRequest] = field(default_factory=list)
    last: rpc.RunRoundRequest | None = None
    answer: rpc.RunRoundResponse | None = None


class SmallSchedulerService(scheduler_service_pb2_grpc.SchedulerServiceServicer):
    """Serves every RPC; `difference` is what it does in another way."""

    def __init__(self, difference: Difference | None = None) -> None:
        self._difference = difference
        self._sessions: dict[str, Session] = {}
        self._created = 0
        self._shared = SmallScheduler(difference)

    def _breaks(self, *breaches: Breach) -> bool:
        return self._difference in breaches

    # Sessions

    def CreateSession(self, request: Any, context: Any) -> rpc.Session:  # noqa: N802
        """Start a session with an empty cluster."""
        del request, context
        shares = self._breaks(Breach.SESSIONS_SHARE)
        return self._opened(self._shared if shares else SmallScheduler(self._difference))

    def _opened(self, scheduler: SmallScheduler) -> rpc.Session:
        self._created += 1
        name = f"session-{self._created}"
        self._sessions[name] = Session(scheduler)
        return rpc.Session(
            session_id=name,
            version=VERSION,
            implementation="small",
            windows=True,
            resumable=not self._breaks(Breach.HIDES_CHECKPOINTS),
        )

    def DeleteSession(self, request: Any, context: Any) -> Empty:  # noqa: N802
        """Delete a session, if there is one of that name."""
        if request.session_id not in self._sessions and self._breaks(Breach.DELETES_ONCE):
            _abort(context, RefusedError(grpc.StatusCode.NOT_FOUND, "SESSION_EXPIRED"))
        if not self._breaks(Breach.KEEPS_DELETED):
            self._sessions.pop(request.session_id, None)
        return Empty()

    def _session(self, stamp: session_pb2.Stamp) -> Session:
        if not stamp.session_id:
            raise bad_field("stamp.session_id")
        if stamp.session_id not in self._sessions:
            raise RefusedError(grpc.StatusCode.NOT_FOUND, "SESSION_EXPIRED")
        return self._sessions[stamp.session_id]

    # Rounds

    def RunRound(self, request: rpc.RunRoundRequest, context: Any) -> rpc.RunRoundResponse:  # noqa: N802
        """Run a round, and those of its window."""
        return self._answer(request, context, one_round=Breach.WINDOWS_OF_ONE_ROUND)

    def StreamingRunRound(  # noqa: N802
        self, request_iterator: Iterable[rpc.RunRoundRequest], context: Any
    ) -> Iterator[rpc.RunRoundResponse]:
        """Run rounds in their order."""
        for request in request_iterator:
            answer = self._answer(request, context, one_round=Breach.STREAMS_ONE_ROUND)
            if self._breaks(Breach.STREAMS_BACKWARDS):
                answer.sequence += 1
            yield answer

    def _answer(
        self, request: rpc.RunRoundRequest, context: Any, *, one_round: Breach
    ) -> rpc.RunRoundResponse:
        try:
            session = self._session(request.stamp)
            if (kept := self._kept(session, request)) is not None:
                return kept
            self._check(session, request)
        except RefusedError as error:
            _abort(context, error)
        answer = rpc.RunRoundResponse(sequence=request.stamp.sequence)
        answer.rounds.extend(self._rounds(session, request, one_round=self._breaks(one_round)))
        session.sequence = request.stamp.sequence
        session.time_ns = request.round.time_ns
        session.last, session.answer = request, answer
        session.requests.append(request)
        return answer

    def _kept(self, session: Session, request: rpc.RunRoundRequest) -> rpc.RunRoundResponse | None:
        """Return the kept answer of a request that came before."""
        stamp, expected = request.stamp, str(session.sequence + 1)
        if not stamp.HasField("sequence"):
            if self._breaks(Breach.NUMBER_IS_OPTIONAL):
                return None
            raise bad_field("stamp.sequence")
        if self._breaks(Breach.TAKES_ANY_NUMBER):
            return None
        aborted = grpc.StatusCode.ABORTED
        if session.last is not None and stamp.sequence == session.sequence:
            if self._breaks(Breach.REPEATS):
                return None
            one, other = (self._compared(it) for it in (request, session.last))
            if one != other and not self._breaks(Breach.TAKES_NUMBERS_TWICE):
                raise RefusedError(aborted, "SEQUENCE_REUSED", expected_sequence=expected)
            return session.answer
        if stamp.sequence != session.sequence + 1:
            raise RefusedError(aborted, "SEQUENCE_MISMATCH", expected_sequence=expected)
        return None

    def _compared(self, request: rpc.RunRoundRequest) -> rpc.RunRoundRequest:
        copy = rpc.RunRoundRequest()
        copy.CopyFrom(request)
        if not self._breaks(Breach.READS_TRACES):
            copy.stamp.traceparent = ""
            copy.stamp.ClearField("acknowledged")
        return copy

    def _check(self, session: Session, request: rpc.RunRoundRequest) -> None:
        """Refuse a request that is malformed, before anything of it is applied."""
        if not request.HasField("round"):
            raise self._malformed(session, request, "round")
        is_early = request.round.time_ns < session.time_ns
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
            session.scheduler.run(part)
        return bad_field("request" if self._breaks(Breach.NAMES_NO_FIELD) else path)

    def _rounds(
        self, session: Session, request: rpc.RunRoundRequest, *, one_round: bool
    ) -> list[scheduler_pb2.RoundOutcomes]:
        """Return the outcomes of a round, and of its window as long as each pod is bound."""
        scheduler = session.scheduler
        made = [scheduler.run(request.round)]
        for foreseen in () if one_round else request.window:
            is_bound = all(outcome.HasField("bind") for outcome in made[-1].outcomes)
            if (not is_bound or scheduler.pending) and not self._breaks(Breach.WINDOWS_GO_ON):
                break
            made[-1].window_continues = True
            made.append(scheduler.run(foreseen.round, foreseen.confirmations))
        return made

    # Reads

    def EvaluatePod(  # noqa: N802
        self, request: rpc.EvaluatePodRequest, context: Any
    ) -> Iterator[rpc.EvaluatePodResponse]:
        """Evaluate a pending pod, or a new one."""
        try:
            scheduler = self._session(request.stamp).scheduler
            is_known = request.pod.uid in scheduler.pending
            pod = scheduler.pods.get(request.pod.uid, request.new_pod)
            if request.HasField("new_pod") and self._breaks(Breach.EVALUATES_NO_NEW_PODS):
                raise bad_field("pod.uid")
            is_refused = not is_known and not request.HasField("new_pod")
            if is_refused and not self._breaks(Breach.EVALUATES_UNKNOWN):
                raise RefusedError(grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
        except RefusedError as error:
            _abort(context, error)
        yield rpc.EvaluatePodResponse(evaluation=scheduler.evaluate(pod))

    def GetState(self, request: Any, context: Any) -> Iterator[rpc.GetStateResponse]:  # noqa: N802
        """Return the state."""
        try:
            session = self._session(request.stamp)
        except RefusedError as error:
            _abort(context, error)
        if self._breaks(Breach.STATE_COUNTS):
            session.sequence += 1
        yield rpc.GetStateResponse(state=session.scheduler.state())

    # Checkpoints: the requests, by which a new session comes to the same state

    def CheckpointSession(  # noqa: N802
        self, request: Any, context: Any
    ) -> Iterator[session_pb2.CheckpointChunk]:
        """Save the requests of a session."""
        try:
            session = self._session(request.stamp)
        except RefusedError as error:
            _abort(context, error)
        data = bytearray()
        for kept in session.requests:
            encoded = kept.SerializeToString()
            data += len(encoded).to_bytes(LENGTH_BYTES) + encoded
        version = "" if self._breaks(Breach.CHECKPOINT_HAS_NO_VERSION) else VERSION
        info = session_pb2.CheckpointInfo(
            service=session_pb2.SERVICE_KIND_SCHEDULER, version=version, format=1
        )
        yield session_pb2.CheckpointChunk(info=info, data=bytes(data))

    def RestoreSession(  # noqa: N802
        self, request_iterator: Iterable[session_pb2.CheckpointChunk], context: Any
    ) -> rpc.Session:
        """Start a session and run the saved requests in it."""
        chunks = list(request_iterator)
        try:
            requests = list(self._saved(chunks))
        except RefusedError as error:
            _abort(context, error)
        scheduler = SmallScheduler(self._difference)
        opened = self._opened(scheduler)
        session = self._sessions[opened.session_id]
        for request in () if self._breaks(Breach.RESTORES_EMPTY) else requests:
            self._rounds(session, request, one_round=False)
            session.requests.append(request)
            session.time_ns = request.round.time_ns
        return opened

    def _saved(self, chunks: list[session_pb2.CheckpointChunk]) -> Iterator[rpc.RunRoundRequest]:
        if not chunks or not chunks[0].HasField("info"):
            raise bad_field("info")
        is_foreign = chunks[0].info.service != session_pb2.SERVICE_KIND_SCHEDULER
        if is_foreign and not self._breaks(Breach.RESTORES_FOREIGN):
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, "FOREIGN_CHECKPOINT")
        data = b"".join(chunk.data for chunk in chunks)
        while data:
            end = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES])
            if len(data) < end:
                if self._breaks(Breach.RESTORES_PARTS):
                    return
                raise bad_field("data")
            yield rpc.RunRoundRequest.FromString(data[LENGTH_BYTES:end])
            data = data[end:]


def _malformed_event(event: scheduler_pb2.Event) -> str:
    """Return the path of a field that an event lacks, "" if none."""
    kind = event.WhichOneof("event")
    if kind is None:
        return "event"
    thing: object_pb2.KubernetesObject = event.update if kind == "update" else event.add
    if thing.HasField("pod") and not thing.pod.metadata.uid:
        return f"{kind}.pod.metadata.uid"
    return ""


def _abort(context: Any, error: RefusedError) -> NoReturn:
    """End a call with a refusal's status and its details."""
    code, _ = error.code.value
    info = error_details_pb2.ErrorInfo(
        reason=error.reason, domain="reprieve.internal", metadata=error.metadata
    )
    details: list[Any] = [info]
    if error.field:
        bad = error_details_pb2.BadRequest()
        bad.field_violations.add(field=error.field, description="is required")
        details.append(bad)
    packed = [AnyMessage() for _ in details]
    for target, detail in zip(packed, details, strict=True):
        target.Pack(detail)
    status = status_pb2.Status(code=code, message=str(error), details=packed)
    context.abort_with_status(rpc_status.to_status(status))
    raise AssertionError("abort_with_status raises")


@contextmanager
def serving(service: scheduler_service_pb2_grpc.SchedulerServiceServicer) -> Iterator[str]:
    """Serve a scheduler in threads of this process and yield its address."""
    server = grpc.server(ThreadPoolExecutor(2))
    scheduler_service_pb2_grpc.add_SchedulerServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None)
