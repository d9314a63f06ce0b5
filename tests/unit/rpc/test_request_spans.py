"""A service's span for each request: its kind, its parent, its status; over gRPC and in process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest

from reprieve.queue.v1beta1 import queue_service_pb2, queue_service_pb2_grpc
from reprieve.session.v1beta1 import session_pb2
from services.queue.servicer import QueueServicer
from services.rpc.client import LastingChannel
from services.rpc.local import LocalServer
from services.rpc.server import interceptors
from services.telemetry.logs import CURRENT
from services.telemetry.service_spans import ServiceSpans
from services.telemetry.span import Span, SpanContext, SpanKind
from tests.kept_spans import KeptSpans

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
METHOD = "reprieve.queue.v1beta1.QueueService/"
Stub = Any


class FailingQueue(QueueServicer):
    """A queue with an error of its own in GetState, and a note of the span of CreateSession."""

    created_in: SpanContext | None = None

    async def CreateSession(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Note the span in which this runs."""
        self.created_in = CURRENT.get()
        return await super().CreateSession(request, context)

    def _apply(self, session: Any, request: Any) -> Any:
        if request.heads == 99:
            raise ZeroDivisionError
        return super()._apply(session, request)


@contextlib.asynccontextmanager
async def served(queue: QueueServicer, sink: KeptSpans, *, local: bool) -> AsyncIterator[Stub]:
    """Serve a queue with spans, and give a client of it."""
    around = interceptors(ServiceSpans(sink))
    server: Any
    if local:
        server = LocalServer(asyncio.get_running_loop(), around)
        address = server.address
    else:
        server = grpc.aio.server(interceptors=around)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    queue_service_pb2_grpc.add_QueueServiceServicer_to_server(queue, server)
    if not local:
        await server.start()
    channel = LastingChannel(address)
    yield queue_service_pb2_grpc.QueueServiceStub(channel.current())
    await channel.close()
    if not local:
        await server.stop(None)


def spans_of(
    play: Callable[[Stub], Awaitable[None]],
    *,
    local: bool = False,
    queue: QueueServicer | None = None,
) -> list[Span]:
    """Return the spans of calls that a client makes."""
    sink = KeptSpans()

    async def run() -> None:
        async with served(queue or FailingQueue(), sink, local=local) as stub:
            await play(stub)

    asyncio.run(run())
    return sink.spans


def stamp(session: str, sequence: int = 0) -> session_pb2.Stamp:
    """Return a stamp within the trace."""
    return session_pb2.Stamp(session_id=session, sequence=sequence, traceparent=TRACEPARENT)


async def failed(call: Any) -> grpc.StatusCode:
    """Return the status of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    code: grpc.StatusCode = caught.value.code()
    return code


@pytest.mark.parametrize("local", [False, True])
def test_a_request_makes_a_server_span_with_its_status(*, local: bool) -> None:
    """A refusal is the caller's mistake and no error of the server's; an exception is one."""

    async def play(stub: Stub) -> None:
        session = (await stub.CreateSession(queue_service_pb2.CreateSessionRequest())).session_id
        apply = queue_service_pb2.ApplyRequest
        await stub.Apply(apply(stamp=stamp(session, 1)))
        await failed(stub.Apply(apply(stamp=stamp("unknown", 1))))
        await failed(stub.Apply(apply(stamp=stamp(session, 2), heads=99)))

    good, refused, broken = spans_of(play, local=local)
    assert {span.kind for span in (good, refused, broken)} == {SpanKind.SERVER}
    assert {(span.name, span.context.trace_id, span.parent_id) for span in (good, refused)} == {
        (f"{METHOD}Apply", TRACE, PARENT)
    }
    codes = [span.attributes["rpc.grpc.status_code"] for span in (good, refused, broken)]
    assert codes == [0, grpc.StatusCode.NOT_FOUND.value[0], grpc.StatusCode.INTERNAL.value[0]]
    assert [span.error != "" for span in (good, refused, broken)] == [False, False, True]
    assert "division" not in broken.error


@pytest.mark.parametrize("local", [False, True])
def test_a_stream_that_breaks_marks_the_request_that_broke_it(*, local: bool) -> None:
    """Those before it were answered."""

    async def play(stub: Stub) -> None:
        session = (await stub.CreateSession(queue_service_pb2.CreateSessionRequest())).session_id
        stream = stub.StreamingApply()
        await stream.write(queue_service_pb2.ApplyRequest(stamp=stamp(session, 1)))
        await stream.read()
        await stream.write(queue_service_pb2.ApplyRequest(stamp=stamp(session, 2), heads=99))
        with contextlib.suppress(grpc.aio.AioRpcError):
            await stream.read()

    good, broken = spans_of(play, local=local)
    codes = [span.attributes["rpc.grpc.status_code"] for span in (good, broken)]
    assert codes == [0, grpc.StatusCode.INTERNAL.value[0]]
    assert (good.error, broken.error != "") == ("", True)


def test_a_call_without_a_stamp_has_the_trace_of_its_metadata() -> None:
    """W3C's traceparent, as OpenTelemetry's instrumentations of gRPC clients send it."""
    queue = FailingQueue()

    async def play(stub: Stub) -> None:
        request = queue_service_pb2.CreateSessionRequest()
        await stub.CreateSession(request, metadata=(("traceparent", TRACEPARENT),))

    (span,) = spans_of(play, queue=queue)
    assert (span.name, span.parent_id) == (f"{METHOD}CreateSession", PARENT)
    assert queue.created_in == span.context


def test_a_call_without_a_trace_has_no_span() -> None:
    """Nor has one with a context that cannot be read."""

    async def play(stub: Stub) -> None:
        request = queue_service_pb2.CreateSessionRequest()
        await stub.CreateSession(request)
        await stub.CreateSession(request, metadata=(("traceparent", "00-zz-1-01"),))

    assert spans_of(play) == []
