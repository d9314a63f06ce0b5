"""What connections cost a service before it knows who calls: streams, metadata, their number."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
from collections.abc import Iterator

import grpc
import pytest

from replay.backends.processes import EmbeddedServices
from reprieve.queue.v1beta1 import queue_service_pb2, queue_service_pb2_grpc
from services.rpc.client import channel
from services.rpc.health_check import why_not_serving
from services.rpc.limits import DEFAULT_LIMITS

pytestmark = pytest.mark.e2e
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + struct.pack(">I", 0)[1:] + bytes([4, 0, 0, 0, 0, 0])
SETTINGS, MAX_CONCURRENT_STREAMS = 4, 3
CONNECTIONS = 1200


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Start services under the usual soft limit of open files, and return where the queue is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    with contextlib.ExitStack() as stack:
        try:
            services = stack.enter_context(EmbeddedServices(eviction=False))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        yield services.addresses["queue"]


def connected(address: str) -> socket.socket:
    """Return a new connection to a service."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def settings_of(connection: socket.socket) -> dict[int, int]:
    """Begin HTTP/2, and return the settings that the service announces."""
    connection.sendall(PREFACE)
    data = connection.recv(9, socket.MSG_WAITALL)
    size = int.from_bytes(data[:3])
    assert data[3] == SETTINGS
    payload = connection.recv(size, socket.MSG_WAITALL)
    return dict(struct.iter_unpack(">HI", payload))


def test_a_connection_has_streams_for_the_sessions_of_one_caller(address: str) -> None:
    """Each stream's metadata takes memory before its caller is known."""
    with connected(address) as connection:
        most = settings_of(connection)[MAX_CONCURRENT_STREAMS]
    assert DEFAULT_LIMITS.caller_sessions < most < 2 * DEFAULT_LIMITS.caller_sessions


def test_large_metadata_is_refused(address: str) -> None:
    """Also where few bytes stand for it; what a token takes is accepted."""
    with channel(address) as opened:
        create = queue_service_pb2_grpc.QueueServiceStub(opened).CreateSession
        request = queue_service_pb2.CreateSessionRequest()
        assert create(request, metadata=(("x-token", "t" * 4096),), timeout=20).session_id
        with pytest.raises(grpc.RpcError) as caught:
            create(request, metadata=(("x-token", "t" * 9000),), timeout=20)
        assert isinstance(caught.value, grpc.Call)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        again = tuple((f"x-{number}", "t" * 100) for number in range(80))
        with pytest.raises(grpc.RpcError):
            create(request, metadata=again, timeout=20)


def test_idle_connections_keep_nobody_out(address: str) -> None:
    """More of them than files that a process may open by default; half say nothing at all."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * CONNECTIONS:
        pytest.skip("this machine allows too few open files")
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * CONNECTIONS), hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for number in range(CONNECTIONS):
            connection = stack.enter_context(connected(address))
            if number % 2:
                connection.sendall(PREFACE)
        with channel(address) as opened:
            assert why_not_serving(opened, service="", timeout_s=20) is None
