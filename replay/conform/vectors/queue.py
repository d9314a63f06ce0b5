"""Plays scripts of the scheduling queue against a running QueueService."""

from __future__ import annotations

from collections.abc import Iterable
from queue import SimpleQueue

import grpc

from replay.conform.vectors.queue_scripts import (
    Argument,
    Json,
    ScriptedQueue,
    config_message,
    difference_of,
)
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.queue.v1beta1 import queue_service_pb2 as pb
from reprieve.queue.v1beta1.queue_service_pb2_grpc import QueueServiceStub
from reprieve.session.v1beta1 import session_pb2
from services.rpc.parts import merged

DEADLINE_S = 20


class UnaryQueueSession:
    """One session, each batch sent by a unary call."""

    def __init__(
        self,
        channel: grpc.Channel,
        config: queue_pb2.QueueConfig | None = None,
        *,
        live: bool = False,
    ) -> None:
        self.stub = QueueServiceStub(channel)
        request = pb.CreateSessionRequest(config=config, live=live)
        self.opened = self.stub.CreateSession(request, timeout=DEADLINE_S)
        self.session, self.sequence = self.opened.session_id, 0

    def reading(self) -> session_pb2.Stamp:
        """Return the stamp of a read."""
        return session_pb2.Stamp(session_id=self.session)

    def stamp(self) -> session_pb2.Stamp:
        """Return the stamp of the next request."""
        return session_pb2.Stamp(session_id=self.session, sequence=self.sequence + 1)

    def send(self, operations: Iterable[queue_pb2.Operation], heads: int = 0) -> pb.ApplyResponse:
        """Send a batch and return its answer."""
        request = pb.ApplyRequest(stamp=self.stamp(), operations=operations, heads=heads)
        answer = self.exchange(request)
        self.sequence += 1
        if answer.sequence != self.sequence:
            raise ValueError(
                f"the response is to request {answer.sequence}, not to {self.sequence}"
            )
        return answer

    def exchange(self, request: pb.ApplyRequest) -> pb.ApplyResponse:
        """Return the answer to a request."""
        answer: pb.ApplyResponse = self.stub.Apply(request, timeout=DEADLINE_S)
        return answer

    def apply(self, name: str, argument: Argument, at_ns: int) -> queue_pb2.OperationResult:
        """Apply the contract's operation `name` as a separate batch."""
        return _only_result(self.send([operation(name, argument, at_ns)]))

    def state(self) -> queue_pb2.QueueState:
        """Return the whole state."""
        request = session_pb2.GetStateRequest(stamp=self.reading())
        parts = self.stub.GetState(request, timeout=DEADLINE_S)
        return merged(parts, pb.GetStateResponse()).state

    def close(self) -> None:
        """Delete the session."""
        request = session_pb2.DeleteSessionRequest(session_id=self.session)
        self.stub.DeleteSession(request, timeout=DEADLINE_S)


class StreamQueueSession(UnaryQueueSession):
    """One session, its batches sent by the stream."""

    def __init__(self, channel: grpc.Channel, config: queue_pb2.QueueConfig | None = None) -> None:
        super().__init__(channel, config)
        self._requests: SimpleQueue[pb.ApplyRequest | None] = SimpleQueue()
        requests = iter(self._requests.get, None)
        self._answers = self.stub.StreamingApply(requests, timeout=DEADLINE_S)
        self._heads: list[queue_pb2.Head] = []

    def exchange(self, request: pb.ApplyRequest) -> pb.ApplyResponse:
        """Return the answer to a request."""
        self._requests.put(request)
        return next(self._answers)

    def apply(self, name: str, argument: Argument, at_ns: int) -> queue_pb2.OperationResult:
        """Apply an operation as a separate batch; a pop must return the announced head."""
        answer = self.send([operation(name, argument, at_ns)], heads=1)
        result = _only_result(answer)
        if result.HasField("popped") and self._heads != [result.popped]:
            raise ValueError("a pop did not return the announced head")
        self._heads = list(answer.heads)
        return result

    def close(self) -> None:
        """End the stream."""
        self._requests.put(None)
        for _ in self._answers:
            raise ValueError("the stream has a response without a request")
        super().close()


def operation(name: str, argument: Argument, at_ns: int) -> queue_pb2.Operation:
    """Return the operation `name` of the contract at its time."""
    return queue_pb2.Operation(time_ns=at_ns, **{name: argument})  # type: ignore[arg-type] # the name's own


def _only_result(answer: pb.ApplyResponse) -> queue_pb2.OperationResult:
    """Return the result of a batch of one operation; an absent one means APPLIED."""
    if answer.applied != 1:
        raise ValueError(f"{answer.applied} operations were applied, not 1")
    if not answer.results:
        return queue_pb2.OperationResult(code=queue_pb2.OUTCOME_CODE_APPLIED)
    (result,) = answer.results
    return result


def queue_difference(
    channel: grpc.Channel,
    mode: str,
    script: Json,
    session: type[UnaryQueueSession] = UnaryQueueSession,
) -> str:
    """Return where a service first differs from a recorded script, "" if it does not.

    Result and state are compared after each operation.
    """
    client = session(channel, config_message(mode, script["config"]))
    try:
        run = ScriptedQueue(client, mode)
        return difference_of(mode, script, run.apply, run.state)
    except ValueError as error:
        return str(error)
    finally:
        client.close()


def streamed_queue_difference(channel: grpc.Channel, mode: str, script: Json) -> str:
    """Return the same as `queue_difference`, over the stream."""
    return queue_difference(channel, mode, script, StreamQueueSession)
