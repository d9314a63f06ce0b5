"""Services that answer rightly, until the request that they answer wrongly.

The scheduler binds every pod to the one node, the eviction service finds no node under pressure,
and of the queues one has no pods, and one has all of them.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from grpc_status import rpc_status

from reprieve.eviction.v1beta1 import eviction_pb2
from reprieve.eviction.v1beta1 import eviction_service_pb2 as eviction_rpc
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.queue.v1beta1 import queue_service_pb2 as queue_rpc
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as rpc
from services.rpc.errors import SessionExpiredError
from services.rpc.interceptors.statuses import status_of
from tests.conformance_mutants.small_queue import SmallQueue

NODE = "node-a"
_UNKNOWN_FIELD = bytes([0xFA, 0x7F])
"""The tag of field 2047, which no message of the contract has, for bytes."""
Fault = Callable[["StrangeService", Any, grpc.ServicerContext], bytes]


class StrangeService(grpc.GenericRpcHandler):
    """Serves CreateSession, DeleteSession and one stream, in bytes.

    The response to request number `at` of a session is what `fault` makes of the right one.
    """

    stream: str
    session: bytes

    def __init__(self, fault: Fault, at: int) -> None:
        self._fault, self._at = fault, at
        self.closing = threading.Event()
        self.server = grpc.server(
            ThreadPoolExecutor(8), options=[("grpc.max_send_message_length", -1)]
        )
        self.server.add_generic_rpc_handlers((self,))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a method; on the wire each is a stream."""
        method = handler_call_details.method.rpartition("/")[2]
        responses = {"CreateSession": self.session, "DeleteSession": Empty().SerializeToString()}
        if method == self.stream:
            return grpc.stream_stream_rpc_method_handler(self._answers)
        if method in responses:
            return grpc.unary_unary_rpc_method_handler(lambda _request, _context: responses[method])
        return None

    def _answers(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        for data in requests:
            sequence, response = self.answer(data)
            if sequence == self._at:
                yield self._fault(self, response, context)
            else:
                yield response.SerializeToString()

    def answer(self, data: bytes) -> tuple[int, Message]:
        """Return a request's number, and the right response to it."""
        raise NotImplementedError

    def close(self) -> None:
        """Serve no longer, and let waiting handlers end."""
        self.closing.set()
        self.server.stop(0).wait()


class StrangeScheduler(StrangeService):
    """Binds every pod to NODE."""

    stream = "StreamingRunRound"
    session = rpc.Session(session_id="s1").SerializeToString()
    _cycles = 0

    def answer(self, data: bytes) -> tuple[int, Message]:
        """Return the outcomes of a round."""
        request = rpc.RunRoundRequest.FromString(data)
        response = rpc.RunRoundResponse(sequence=request.stamp.sequence)
        outcomes = response.rounds.add()
        for event in request.round.events:
            if event.HasField("add") and event.add.HasField("pod"):
                self._cycles += 1
                outcome = outcomes.outcomes.add(time_ns=request.round.time_ns, attempts=1)
                outcome.pop.uid = event.add.pod.metadata.uid
                outcome.pop.cycle = self._cycles
                outcome.bind.node_name = NODE
        return request.stamp.sequence, response


class StrangeEviction(StrangeService):
    """Finds no node under pressure, and looks at each every ten seconds."""

    stream = "StreamingApply"
    session = eviction_rpc.Session(session_id="s1").SerializeToString()

    def answer(self, data: bytes) -> tuple[int, Message]:
        """Return the results of a batch."""
        request = eviction_rpc.ApplyRequest.FromString(data)
        response = eviction_rpc.ApplyResponse(
            sequence=request.stamp.sequence, applied=len(request.operations)
        )
        for operation in request.operations:
            kind = operation.WhichOneof("operation")
            if kind == "remove_node":
                continue
            result = response.results.add(node_name=getattr(operation, kind or "").node_name)
            if kind == "configure":
                result.configured.SetInParent()
            elif kind == "admit":
                result.admission.admit = True
            else:
                _calm(result.step, operation.step.time_ns)
        return request.stamp.sequence, response


def _calm(step: eviction_pb2.StepResult, time_ns: int) -> None:
    step.next_step_time_ns = time_ns + 10_000_000_000
    for condition in ("MemoryPressure", "DiskPressure", "PIDPressure"):
        step.conditions.add(type=condition, status="False")


class StrangeQueue(StrangeService):
    """Accepts every operation, and never has a head."""

    stream = "StreamingApply"
    session = queue_rpc.Session(session_id="s1").SerializeToString()

    def answer(self, data: bytes) -> tuple[int, Message]:
        """Return that the whole batch was applied."""
        request = queue_rpc.ApplyRequest.FromString(data)
        number = request.stamp.sequence
        return number, queue_rpc.ApplyResponse(sequence=number, applied=len(request.operations))


class WorkingQueue(StrangeService):
    """Keeps the rules of a queue, in one session after the other."""

    stream = "StreamingApply"
    _config = queue_pb2.QueueConfig(rules="v1.34")
    session = queue_rpc.Session(session_id="s1", config=_config).SerializeToString()
    _core: SmallQueue

    def answer(self, data: bytes) -> tuple[int, Message]:
        """Apply a batch."""
        request = queue_rpc.ApplyRequest.FromString(data)
        number = request.stamp.sequence
        if number == 1:
            self._core = SmallQueue(self._config, None)
        response = self._core.apply(request)
        response.sequence = number
        return number, response


@contextmanager
def strange_service(kind: type[StrangeService], fault: Fault, at: int) -> Iterator[str]:
    """Serve one, and yield its address."""
    service = kind(fault, at)
    try:
        yield service.address
    finally:
        service.close()


def strange_scheduler(fault: Fault, at: int) -> AbstractContextManager[str]:
    """Serve a scheduler, and yield its address."""
    return strange_service(StrangeScheduler, fault, at)


def silent(service: StrangeService, response: Message, context: grpc.ServicerContext) -> bytes:
    """Do not answer while the server runs."""
    del context
    service.closing.wait()
    return response.SerializeToString()


def late(service: StrangeService, response: Message, context: grpc.ServicerContext) -> bytes:
    """Answer some seconds after the deadline of the tests."""
    del context
    service.closing.wait(5.0)
    return response.SerializeToString()


def crash(service: StrangeService, response: Message, context: grpc.ServicerContext) -> bytes:
    """Close every connection and listen no longer, as a process that ends."""
    del response
    service.server.stop(0)
    context.abort(grpc.StatusCode.UNAVAILABLE, "")
    raise AssertionError("abort raises")


def garbage(*_: object) -> bytes:
    """Answer bytes that are not a message."""
    return b"\xff\xff\xff"


def of_mebibytes(count: int) -> Fault:
    """Return the fault of a message of more than `count` MiB: the right one, and unknown fields."""

    def large(_service: StrangeService, response: Any, _: grpc.ServicerContext) -> bytes:
        unknown = b"x" * (count << 20)
        return (
            bytes(response.SerializeToString()) + _UNKNOWN_FIELD + _varint(len(unknown)) + unknown
        )

    return large


def _varint(number: int) -> bytes:
    """Return an unsigned integer as protobuf encodes it."""
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def foreign_session(
    _service: StrangeService, _response: Message, context: grpc.ServicerContext
) -> bytes:
    """Refuse a session that was opened here as if it was another server's."""
    error = SessionExpiredError("session s1 is unknown here")
    context.abort_with_status(rpc_status.to_status(status_of(error)))
    raise AssertionError("abort raises")


def wrong_sequence(_service: StrangeService, response: Any, _: grpc.ServicerContext) -> bytes:
    """Answer under the number of another request."""
    response.sequence += 7
    return bytes(response.SerializeToString())


def unknown_node(_service: StrangeService, response: Any, _: grpc.ServicerContext) -> bytes:
    """Bind to a node that the cluster does not have."""
    response.rounds[0].outcomes[0].bind.node_name = "nowhere"
    return bytes(response.SerializeToString())


@contextmanager
def listening(says: bytes) -> Iterator[str]:
    """Listen without HTTP/2, say something to each connection, and yield the address."""
    listener = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connections.append(connection)
            connection.sendall(says)

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()
        for connection in connections:
            connection.close()
