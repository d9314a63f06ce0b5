"""Scripts of the scheduling queue through a running QueueService."""

from __future__ import annotations

from collections.abc import Iterable
from queue import SimpleQueue

import grpc
from google.protobuf.message import Message

from replay.conform.queue_scripts import Json, ScriptedQueue, config_message, difference_of
from reprieve.kube.v1beta1 import meta_pb2
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.queue.v1beta1 import queue_service_pb2 as pb
from reprieve.queue.v1beta1.queue_service_pb2_grpc import QueueServiceStub
from reprieve.session.v1beta1 import session_pb2

DEADLINE_S = 20
_METHODS = {
    name: "".join(word.capitalize() for word in name.split("_"))
    for name in queue_pb2.Operation.DESCRIPTOR.fields_by_name
} | {"close": "CloseQueue"}


class UnaryClient:
    """One session, each operation by its own RPC."""

    def __init__(
        self,
        channel: grpc.Channel,
        config: queue_pb2.QueueConfig | None = None,
        *,
        live: bool = False,
    ) -> None:
        self.stub = QueueServiceStub(channel)
        request = pb.OpenRequest(config=config, live=live)
        self.opened = self.stub.Open(request, timeout=DEADLINE_S)
        self.session, self.epoch, self.sequence = self.opened.session, self.opened.epoch, 0

    def reading(self) -> session_pb2.Stamp:
        """Return the stamp of a read."""
        return session_pb2.Stamp(session=self.session, epoch=self.epoch)

    def stamp(self) -> session_pb2.Stamp:
        """Return the stamp of the next request."""
        next_one = self.reading()
        next_one.sequence = self.sequence + 1
        return next_one

    def apply(self, name: str, message: Message, at_ns: int) -> queue_pb2.OperationResult:
        """Do the operation `name` of the contract."""
        request_type = getattr(pb, f"{_METHODS[name]}Request")
        request = request_type(stamp=self.stamp(), at_ns=at_ns, **{name: message})
        answer = getattr(self.stub, _METHODS[name])(request, timeout=DEADLINE_S)
        self.sequence += 1
        result: queue_pb2.OperationResult = answer.result
        return result

    def dump(self) -> queue_pb2.QueueState:
        """Return the whole state."""
        return self.stub.Dump(pb.DumpRequest(stamp=self.reading()), timeout=DEADLINE_S).state

    def nominated(self, node_name: str) -> list[meta_pb2.ObjectReference]:
        """Return a node's nominations."""
        request = pb.ListNominatedRequest(stamp=self.reading(), node_name=node_name)
        return list(self.stub.ListNominated(request, timeout=DEADLINE_S).pods)

    def close(self) -> None:
        """Forget the session."""
        request = pb.CloseSessionRequest(session=self.session)
        self.stub.CloseSession(request, timeout=DEADLINE_S)


class StreamClient(UnaryClient):
    """One session, its operations by the stream."""

    def __init__(self, channel: grpc.Channel, config: queue_pb2.QueueConfig | None = None) -> None:
        super().__init__(channel, config)
        self._requests: SimpleQueue[pb.StreamRequest | None] = SimpleQueue()
        self._answers = self.stub.Stream(iter(self._requests.get, None), timeout=DEADLINE_S)
        self._heads: list[queue_pb2.Head] = []

    def send(self, operations: Iterable[queue_pb2.Operation], heads: int = 0) -> pb.StreamResponse:
        """Send a batch and return its answer."""
        stamp = self.stamp()
        self._requests.put(pb.StreamRequest(stamp=stamp, operations=operations, heads=heads))
        answer = next(self._answers)
        self.sequence += 1
        if answer.sequence != self.sequence:
            raise ValueError(f"an answer to {answer.sequence}, not to {self.sequence}")
        return answer

    def apply(self, name: str, message: Message, at_ns: int) -> queue_pb2.OperationResult:
        """Do an operation as a batch of its own; a pop must be what the heads have announced."""
        answer = self.send([operation(name, message, at_ns)], heads=1)
        if answer.applied != 1:
            raise ValueError(f"{answer.applied} operations were applied, not 1")
        if not answer.results:
            self._heads = list(answer.heads)
            return queue_pb2.OperationResult(code=queue_pb2.OUTCOME_CODE_APPLIED)
        (told,) = answer.results
        if told.result.HasField("popped") and self._heads != [told.result.popped]:
            raise ValueError("a pop is not the head that was announced")
        self._heads = list(answer.heads)
        return told.result

    def close(self) -> None:
        """End the stream."""
        self._requests.put(None)
        for _ in self._answers:
            raise ValueError("an answer came that nobody had asked for")
        super().close()


def operation(name: str, message: Message, at_ns: int) -> queue_pb2.Operation:
    """Return the operation `name` of the contract at its time."""
    made = queue_pb2.Operation(at_ns=at_ns)
    getattr(made, name).CopyFrom(message)
    getattr(made, name).SetInParent()
    return made


def queue_difference(channel: grpc.Channel, mode: str, script: Json, *, stream: bool) -> str:
    """Return where a service first differs from a recorded script, "" where it does not.

    Result and state are compared after each operation, by unary RPCs or by the `stream`.
    """
    config = config_message(mode, script["config"])
    client = StreamClient(channel, config) if stream else UnaryClient(channel, config)
    try:
        run = ScriptedQueue(client, mode)
        return difference_of(mode, script, run.apply, run.state)
    except ValueError as error:
        return str(error)
    finally:
        client.close()
