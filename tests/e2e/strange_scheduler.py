"""A scheduler that binds every pod to the one node, until the request that it answers wrongly."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf.empty_pb2 import Empty
from grpc_status import rpc_status

from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as rpc
from services.rpc.errors import SessionExpiredError
from services.rpc.interceptors.statuses import status_of

NODE = "node-a"
_UNKNOWN_FIELD = bytes([0xFA, 0x7F])
"""The tag of field 2047, which no message of the contract has, for bytes."""
Fault = Callable[["StrangeScheduler", rpc.RunRoundResponse, grpc.ServicerContext], bytes]


class StrangeScheduler(grpc.GenericRpcHandler):
    """Serves CreateSession, DeleteSession and StreamingRunRound, in bytes.

    The response to request number `at` of a session is what `fault` makes of the right one.
    """

    def __init__(self, fault: Fault, at: int) -> None:
        self._fault, self._at = fault, at
        self._cycles = 0
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
        handlers = {
            "CreateSession": lambda _request: rpc.Session(session_id="s1").SerializeToString(),
            "DeleteSession": lambda _request: Empty().SerializeToString(),
        }
        if method == "StreamingRunRound":
            return grpc.stream_stream_rpc_method_handler(self._rounds)
        if method in handlers:
            return grpc.unary_unary_rpc_method_handler(
                lambda request, _context: handlers[method](request)
            )
        return None

    def _rounds(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        for data in requests:
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
            if request.stamp.sequence == self._at:
                yield self._fault(self, response, context)
            else:
                yield response.SerializeToString()

    def close(self) -> None:
        """Serve no longer, and let waiting handlers end."""
        self.closing.set()
        self.server.stop(0).wait()


@contextmanager
def strange_scheduler(fault: Fault, at: int) -> Iterator[str]:
    """Serve one, and yield its address."""
    scheduler = StrangeScheduler(fault, at)
    try:
        yield scheduler.address
    finally:
        scheduler.close()


def silent(
    scheduler: StrangeScheduler, response: rpc.RunRoundResponse, context: grpc.ServicerContext
) -> bytes:
    """Do not answer while the server runs."""
    del context
    scheduler.closing.wait()
    return response.SerializeToString()


def late(
    scheduler: StrangeScheduler, response: rpc.RunRoundResponse, context: grpc.ServicerContext
) -> bytes:
    """Answer some seconds after the deadline of the tests."""
    del context
    scheduler.closing.wait(5.0)
    return response.SerializeToString()


def crash(
    scheduler: StrangeScheduler, response: rpc.RunRoundResponse, context: grpc.ServicerContext
) -> bytes:
    """Close every connection and listen no longer, as a process that ends."""
    del response
    scheduler.server.stop(0)
    context.abort(grpc.StatusCode.UNAVAILABLE, "")
    raise AssertionError("abort raises")


def garbage(*_: object) -> bytes:
    """Answer bytes that are not a message."""
    return b"\xff\xff\xff"


def of_mebibytes(count: int) -> Fault:
    """Return the fault of a message of more than `count` MiB: the right one, and unknown fields."""

    def large(
        _scheduler: StrangeScheduler, response: rpc.RunRoundResponse, _: grpc.ServicerContext
    ) -> bytes:
        unknown = b"x" * (count << 20)
        return response.SerializeToString() + _UNKNOWN_FIELD + _varint(len(unknown)) + unknown

    return large


def _varint(number: int) -> bytes:
    """Return an unsigned integer as protobuf encodes it."""
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def foreign_session(
    _scheduler: StrangeScheduler, _response: rpc.RunRoundResponse, context: grpc.ServicerContext
) -> bytes:
    """Refuse a session that was opened here as if it was another server's."""
    error = SessionExpiredError("session s1 is unknown here")
    context.abort_with_status(rpc_status.to_status(status_of(error)))
    raise AssertionError("abort raises")


def wrong_sequence(
    _scheduler: StrangeScheduler, response: rpc.RunRoundResponse, _: grpc.ServicerContext
) -> bytes:
    """Answer under the number of another request."""
    response.sequence += 7
    return response.SerializeToString()


def unknown_node(
    _scheduler: StrangeScheduler, response: rpc.RunRoundResponse, _: grpc.ServicerContext
) -> bytes:
    """Bind to a node that the cluster does not have."""
    response.rounds[0].outcomes[0].bind.node_name = "nowhere"
    return response.SerializeToString()


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
