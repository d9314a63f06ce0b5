"""Bidirectional streaming calls: gRPC's own object and the one without threads behave alike."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from replay.backends import duplex
from replay.backends.duplex import Duplex, opener

_PATH = "/test.Service/Stream"
Serve = Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[bytes]]
Open = Callable[[Serve], Duplex]


@pytest.fixture(params=["single-threaded", "public interface"])
def open_call(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Return a function that serves the stream and calls it; a call fails after 20 s."""
    if request.param == "public interface":
        monkeypatch.setattr(duplex, "TESTED_VERSIONS", ())
    calls: list[Duplex] = []
    with ThreadPoolExecutor() as threads:
        server = grpc.server(threads)
        port = server.add_insecure_port("127.0.0.1:0")
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")

        def call(serve: Serve) -> Duplex:
            handler: Any = grpc.stream_stream_rpc_method_handler(serve)
            server.add_generic_rpc_handlers(
                [grpc.method_handlers_generic_handler("test.Service", {"Stream": handler})]
            )
            server.start()
            calls.append(opener(channel.stream_stream(_PATH, _as_it_is, _as_it_is))())
            return calls[-1]

        timer = threading.Timer(20, lambda: [opened.cancel() for opened in calls])
        timer.start()
        yield call
        timer.cancel()
        for opened in calls:
            opened.close()
        channel.close()
        server.stop(0).wait()


def _as_it_is(data: bytes) -> bytes:
    return data


def test_the_version_of_grpc_that_is_installed_was_tested() -> None:
    """Another version makes replays slower; it is tested before it is pinned."""
    assert grpc.__version__.startswith(duplex.TESTED_VERSIONS)


def test_responses_come_in_the_order_of_requests(open_call: Open) -> None:
    """Several requests may be written before the first response is read."""
    call = open_call(lambda requests, _context: (request * 2 for request in requests))
    for number in range(20):
        call.write(b"%d" % number)
    assert [next(call) for _ in range(20)] == [b"%d" % number * 2 for number in range(20)]


def test_a_request_arrives_before_its_caller_reads(open_call: Open) -> None:
    """The service works on it while the caller does something else."""
    arrived = threading.Event()

    def serve(requests: Iterator[bytes], _context: grpc.ServicerContext) -> Iterator[bytes]:
        for request in requests:
            arrived.set()
            yield request

    call = open_call(serve)
    call.write(b"request")
    assert arrived.wait(10)
    assert next(call) == b"request"


def test_large_responses_that_are_not_read_do_not_stop_requests(open_call: Open) -> None:
    """The service writes a response of a mebibyte before it reads the next request."""
    call = open_call(lambda requests, _context: (request * 2 for request in requests))
    large = b"x" * (1 << 20)
    for _ in range(40):
        call.write(large)
    assert [len(next(call)) for _ in range(40)] == [2 << 20] * 40


def test_a_failed_call_raises_its_status_at_the_next_response(open_call: Open) -> None:
    """Also where requests were written after the failure, and again at each further response."""

    def serve(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        yield next(requests)
        context.set_trailing_metadata((("reason", "full"),))
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no room")

    call = open_call(serve)
    call.write(b"1")
    assert next(call) == b"1"
    call.write(b"2")
    for _ in range(2):
        with pytest.raises(grpc.RpcError) as raised:
            next(call)
        error = raised.value
        assert isinstance(error, grpc.Call)
        assert (error.code(), error.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "no room")
        assert ("reason", "full") in [tuple(entry) for entry in error.trailing_metadata()]
        call.write(b"3")


def test_a_call_that_the_service_ends_has_no_further_response(open_call: Open) -> None:
    """As after a service's proper end of the stream."""
    call = open_call(lambda requests, _context: iter([next(requests)]))
    call.write(b"only")
    assert next(call) == b"only"
    with pytest.raises(StopIteration):
        next(call)


def test_another_thread_cancels_a_call_that_waits_for_a_response(open_call: Open) -> None:
    """So does the watchdog of an exchange with a service that hangs."""
    ended = threading.Event()

    def serve(requests: Iterator[bytes], _context: grpc.ServicerContext) -> Iterator[bytes]:
        next(requests)
        ended.wait(10)
        yield from ()

    call = open_call(serve)
    call.write(b"request")
    timer = threading.Timer(0.2, call.cancel)
    timer.start()
    with pytest.raises(grpc.RpcError) as raised:
        next(call)
    ended.set()
    timer.join()
    assert isinstance(raised.value, grpc.Call)
    assert raised.value.code() is grpc.StatusCode.CANCELLED
