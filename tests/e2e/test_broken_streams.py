"""Connections that break: nothing is applied twice, lost, or left half done."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from replay.backends.services import SchedulerService
from replay.errors import ServiceLostError
from reprieve.queue.v1beta1 import queue_service_pb2_grpc
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2_grpc
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as rpc
from reprieve.session.v1beta1 import session_pb2
from services.queue.servicer import QueueServicer
from services.rpc.access import ClientTls
from services.rpc.client import LastingChannel
from services.rpc.limits import DEFAULT_LIMITS, Limits
from services.rpc.server import interceptors
from services.rpc.timeouts import DEFAULT_TIMEOUTS, Timeouts
from services.scheduler import queue_client
from services.scheduler.extenders.allowed import ANY, AllowedExtenders
from services.scheduler.queue_client import QueueLink
from services.scheduler.servicer import SchedulerServicer
from services.telemetry.service_spans import ServiceSpans
from tests.e2e.test_extenders import extender
from tests.e2e.test_scheduler_service import add_node, add_pod, error_info, pod
from tests.extenders import Json, webhook
from tests.torture.cuts import WAYS, Proxy

pytestmark = pytest.mark.e2e
DEADLINE_S = 20.0
FILTERS = "filterVerb: filter, nodeCacheCapable: true"


@dataclass
class Rig:
    """A scheduler behind a proxy, its queue behind another; `queue` counts its batches."""

    queue: CountingQueue
    scheduler: SchedulerServicer
    to_queue: Proxy
    to_scheduler: Proxy
    link: QueueLink

    def stub(self) -> Any:
        """Return the scheduler's methods over a connection of their own."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.aio.insecure_channel(self.to_scheduler.address, options=options)
        return scheduler_service_pb2_grpc.SchedulerServiceStub(channel)


class CountingQueue(QueueServicer):
    """A queue that counts the batches that it has applied."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.batches = 0
        self.applied = asyncio.Event()

    def _apply(self, session: Any, request: Any) -> Any:
        before = session.sequence
        answer = super()._apply(session, request)
        self.batches += session.sequence - before
        if request.heads:
            self.applied.set()
        return answer


async def served(register: Callable[[grpc.aio.Server], None]) -> tuple[grpc.aio.Server, int]:
    """Serve on a free port."""
    spans = ServiceSpans.from_environment("test", "0")
    server = grpc.aio.server(interceptors=interceptors(spans))
    register(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


@contextlib.asynccontextmanager
async def rig(
    limits: Limits = DEFAULT_LIMITS, timeouts: Timeouts = DEFAULT_TIMEOUTS
) -> AsyncIterator[Rig]:
    """Serve both, each behind a proxy."""
    queue = CountingQueue(limits)
    checks = health.aio.HealthServicer()

    def register_queue(server: grpc.aio.Server) -> None:
        queue_service_pb2_grpc.add_QueueServiceServicer_to_server(queue, server)
        health_pb2_grpc.add_HealthServicer_to_server(checks, server)

    queue_server, queue_port = await served(register_queue)
    to_queue = Proxy(queue_port)
    listens = [await to_queue.start()]
    link = QueueLink(to_queue.address, ClientTls(timeouts=timeouts))
    scheduler = SchedulerServicer(link, allowed=AllowedExtenders(ANY), limits=limits)

    def register(server: grpc.aio.Server) -> None:
        scheduler_service_pb2_grpc.add_SchedulerServiceServicer_to_server(scheduler, server)

    server, port = await served(register)
    to_scheduler = Proxy(port)
    listens.append(await to_scheduler.start())
    try:
        yield Rig(queue, scheduler, to_queue, to_scheduler, link)
    finally:
        for listener in listens:
            listener.close()
        to_queue.cut()
        to_scheduler.cut()
        await server.stop(0)
        await queue_server.stop(0)
        await link.close()


async def created(stub: Any, **config: Any) -> str:
    """Return the name of a new session."""
    request = rpc.CreateSessionRequest(config=scheduler_pb2.SchedulerConfig(**config))
    name: str = (await stub.CreateSession(request, timeout=DEADLINE_S)).session_id
    return name


def round_of(
    name: str, number: int, *events: scheduler_pb2.Event, acknowledged: int | None = None
) -> rpc.RunRoundRequest:
    """Return a session's request of that number."""
    stamp = session_pb2.Stamp(session_id=name, sequence=number, acknowledged=acknowledged)
    return rpc.RunRoundRequest(stamp=stamp, round=scheduler_pb2.Round(events=events))


def bound(answer: rpc.RunRoundResponse) -> list[str]:
    """Return the pods that a round bound."""
    return [outcome.pop.uid for outcome in answer.rounds[0].outcomes if outcome.HasField("bind")]


def first_round(name: str) -> rpc.RunRoundRequest:
    """Return a round whose pod needs an exchange with the queue: a second one has to wait."""
    return round_of(name, 1, add_node("n", "1"), add_pod(pod("a", "1")), add_pod(pod("b", "1")))


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test's coroutine, which must not hang."""

    async def within() -> None:
        async with asyncio.timeout(3 * DEADLINE_S):
            await test()

    asyncio.run(within())


async def undisturbed() -> tuple[rpc.RunRoundResponse, int]:
    """Return the answer to the first round, and the number of the queue's batches."""
    async with rig() as made:
        stub = made.stub()
        answer = await stub.RunRound(first_round(await created(stub)), timeout=DEADLINE_S)
        return answer, made.queue.batches


def plain(message: Any) -> Any:
    """Return a message without wall times, which are removed from it."""
    for field, value in message.ListFields():
        if field.name in {"phases", "wall_duration_ns"}:
            message.ClearField(field.name)
        elif field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                plain(inner)
    return message


@pytest.mark.parametrize("swallows", [False, True])
def test_a_scheduler_whose_queue_is_cut_off_sends_its_batch_again(swallows: bool) -> None:
    """With the response lost after it was applied, too; each batch is applied once."""

    async def test() -> None:
        expected, batches = await undisturbed()
        async with rig() as made:
            stub = made.stub()
            name = await created(stub)
            made.to_queue.swallows = swallows
            call = asyncio.ensure_future(stub.RunRound(first_round(name), timeout=DEADLINE_S))
            if swallows:
                await made.queue.applied.wait()
                await asyncio.sleep(0.1)
            made.to_queue.cut()
            made.to_queue.swallows = False
            answer = await call
            assert made.to_queue.made > 1
            assert plain(answer) == plain(expected)
            assert made.queue.batches == batches

    run(test)


def test_a_round_goes_on_when_its_queue_is_back() -> None:
    """Its callers are refused meanwhile, and the session is not broken."""

    async def test() -> None:
        expected, batches = await undisturbed()
        async with rig(timeouts=Timeouts(unreachable=0.5)) as made:
            stub = made.stub()
            name = await created(stub)
            made.to_queue.refuses = True
            made.to_queue.cut()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.RunRound(first_round(name), timeout=DEADLINE_S)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert made.to_queue.address in (caught.value.details() or "")
            made.to_queue.refuses = False
            answer = None
            while answer is None:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    answer = await stub.RunRound(first_round(name), timeout=DEADLINE_S)
            assert plain(answer) == plain(expected)
            assert made.queue.batches == batches
            following = await stub.RunRound(round_of(name, 2), timeout=DEADLINE_S)
            assert not bound(following)

    run(test)


def test_a_session_whose_round_waits_for_a_lost_queue_can_be_deleted() -> None:
    """Nothing of it is left."""

    async def test() -> None:
        async with rig(timeouts=Timeouts(unreachable=0.2)) as made:
            stub = made.stub()
            name = await created(stub)
            made.to_queue.refuses = True
            made.to_queue.cut()
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.RunRound(first_round(name), timeout=DEADLINE_S)
            request = session_pb2.DeleteSessionRequest(session_id=name)
            await stub.DeleteSession(request, timeout=DEADLINE_S)
            assert len(made.scheduler._sessions) == 0
            tasks = [repr(task) for task in asyncio.all_tasks()]
            assert not any("_rest" in task for task in tasks)

    run(test)


def test_a_session_that_the_queue_has_lost_is_broken_with_the_reason() -> None:
    """Not INTERNAL, and not for ever unavailable."""

    async def test() -> None:
        async with rig() as made:
            stub = made.stub()
            name = await created(stub)
            for session in made.queue._sessions:
                made.queue._sessions.delete(session.name)
            for code, reason in (
                (grpc.StatusCode.FAILED_PRECONDITION, "SESSION_BROKEN"),
                (grpc.StatusCode.FAILED_PRECONDITION, "SESSION_BROKEN"),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await stub.RunRound(first_round(name), timeout=DEADLINE_S)
                assert caught.value.code() is code
                assert error_info(caught.value).reason == reason
                assert "was deleted" in (caught.value.details() or "")

    run(test)


def test_no_session_is_opened_without_a_queue() -> None:
    """Soon, and with the queue's address."""

    async def test() -> None:
        async with rig(timeouts=Timeouts(unreachable=0.3)) as made:
            made.to_queue.refuses = True
            began_s = time.monotonic()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await created(made.stub())
            assert time.monotonic() - began_s < 4.5, "without the setting it is 5 s"
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert made.to_queue.address in (caught.value.details() or "")

    run(test)


def test_a_half_open_connection_is_noticed_by_pings() -> None:
    """Calls on it are lost; the channel then connects again, while a stream is open."""

    async def test() -> None:
        async with rig() as made:
            timeouts = Timeouts(keepalive=0.2, probe=2.0)
            channel = LastingChannel(made.to_queue.address, ClientTls(timeouts=timeouts))
            stub = health_pb2_grpc.HealthStub(channel.current())
            request = health_pb2.HealthCheckRequest()
            watching = stub.Watch(request)
            await watching.read()
            for session in made.to_queue.connections:
                session.lost |= {*WAYS}
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.Check(request, timeout=DEADLINE_S)
            while made.to_queue.made < 2:
                # A call may still be given to the lost connection while that is being closed.
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await stub.Check(request, timeout=DEADLINE_S, wait_for_ready=True)
            assert made.to_queue.made == 2
            watching.cancel()
            await channel.close()

    run(test)


def test_health_follows_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that is away, and one that is connected and does not respond."""
    monkeypatch.setattr(queue_client, "WATCH_S", 0.2)

    async def test() -> None:
        async with rig() as made:
            reports: asyncio.Queue[bool] = asyncio.Queue()
            watching = asyncio.ensure_future(made.link.watch(reports.put))
            assert await reports.get() is True
            made.to_queue.swallows = True
            assert await reports.get() is False
            made.to_queue.swallows = False
            made.to_queue.cut()
            assert await reports.get() is True
            made.to_queue.refuses = True
            made.to_queue.cut()
            assert await reports.get() is False
            watching.cancel()

    run(test)


def test_a_round_whose_stream_is_cancelled_is_run_to_its_end() -> None:
    """The next stream of its owner receives the answer at once, and what follows."""

    async def test() -> None:
        held = asyncio.Event()
        loop = asyncio.get_running_loop()

        def filter_(args: Json) -> Json:
            asyncio.run_coroutine_threadsafe(held.wait(), loop).result(DEADLINE_S)
            return {"NodeNames": args["NodeNames"]}

        with webhook(filter=filter_) as hook:
            async with rig() as made:
                stub, other = made.stub(), made.stub()
                name = await created(stub, kube_scheduler_configuration=extender(hook.url, FILTERS))
                request = first_round(name)
                stream = stub.StreamingRunRound()
                await stream.write(request)
                while not hook.calls:
                    await asyncio.sleep(0.01)
                stream.cancel()
                await asyncio.sleep(0.1)
                second = other.StreamingRunRound()
                await second.write(request)
                await second.write(round_of(name, 2))
                await asyncio.sleep(0.1)
                held.set()
                assert bound(await second.read()) == ["uid-a"]
                assert (await second.read()).sequence == 2
                second.cancel()

    run(test)


def test_requests_without_an_answer_are_sent_again_in_order() -> None:
    """Two of three were applied before the connection broke: their answers are those kept."""

    async def test() -> None:
        async with rig() as made:
            stub, other = made.stub(), made.stub()
            name = await created(stub)
            requests = [
                round_of(name, 1, add_node("n", "4"), acknowledged=0),
                round_of(name, 2, add_pod(pod("a", "1")), acknowledged=0),
                round_of(name, 3, add_pod(pod("b", "1")), acknowledged=0),
            ]
            stream = stub.StreamingRunRound()
            for request in requests[:2]:
                await stream.write(request)
            answers = [await stream.read() for _ in range(2)]
            made.to_scheduler.cut()
            again = other.StreamingRunRound()
            for request in requests:
                await again.write(request)
            assert [await again.read() for _ in range(2)] == answers
            assert bound(await again.read()) == ["uid-b"]
            changed = round_of(name, 2, add_pod(pod("x", "1")), acknowledged=0)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await other.RunRound(changed, timeout=DEADLINE_S)
            assert error_info(caught.value).reason == "SEQUENCE_REUSED"

    run(test)


def test_a_replay_that_has_died_leaves_no_session() -> None:
    """Neither with the scheduler nor with its queue, once it has been idle for long enough."""

    async def test() -> None:
        async with rig(Limits(idle_s=0.4)) as made:
            stub = made.stub()
            stream = stub.StreamingRunRound()
            await stream.write(first_round(await created(stub)))
            await stream.read()
            await asyncio.sleep(1.0)
            assert (len(made.scheduler._sessions), len(made.queue._sessions)) == (1, 1)
            made.to_scheduler.cut()
            while len(made.scheduler._sessions) or len(made.queue._sessions):
                await asyncio.sleep(0.05)

    run(test)


def test_a_client_that_opens_its_session_again_leaves_no_other_one() -> None:
    """Neither with the scheduler nor with its queue: a session may be large."""

    async def test() -> None:
        async with rig() as made:
            config = scheduler_pb2.SchedulerConfig()
            address = made.to_scheduler.address
            service = await asyncio.to_thread(SchedulerService, address, config)
            chunks = await asyncio.to_thread(service.checkpoint)
            made.to_scheduler.cut()
            await asyncio.to_thread(service.reopen, address, chunks)
            assert (len(made.scheduler._sessions), len(made.queue._sessions)) == (1, 1)
            await asyncio.to_thread(service.close)
            assert (len(made.scheduler._sessions), len(made.queue._sessions)) == (0, 0)

    run(test)


def test_a_client_that_could_not_open_its_session_again_can_be_closed() -> None:
    """With the reason as its only error."""

    async def test() -> None:
        async with rig() as made:
            config = scheduler_pb2.SchedulerConfig()
            address = made.to_scheduler.address
            service = await asyncio.to_thread(SchedulerService, address, config)
            made.to_scheduler.refuses = True
            made.to_scheduler.cut()
            with pytest.raises(ServiceLostError):
                await asyncio.to_thread(service.reopen, address, ())
            await asyncio.to_thread(service.close)

    run(test)


def test_an_error_in_a_session_breaks_that_session_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its caller gets INTERNAL, then SESSION_BROKEN and what to do, never the error's text."""

    async def test() -> None:
        expected, _ = await undisturbed()
        async with rig() as made:
            stub = made.stub()
            name, other = await created(stub), await created(stub)
            content = next(
                session.content for session in made.scheduler._sessions if session.name == name
            )
            monkeypatch.setattr(content.scheduler, "decide", lambda *_: 1 // 0)
            for code, text in (
                (grpc.StatusCode.INTERNAL, "an internal error"),
                (grpc.StatusCode.FAILED_PRECONDITION, "create a new one"),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await stub.RunRound(first_round(name), timeout=DEADLINE_S)
                assert caught.value.code() is code
                assert text in (caught.value.details() or "")
                assert "division" not in f"{caught.value!r}{caught.value.trailing_metadata()}"
            answer = await stub.RunRound(first_round(other), timeout=DEADLINE_S)
            assert plain(answer) == plain(expected)
            await stub.DeleteSession(session_pb2.DeleteSessionRequest(session_id=name))

    run(test)
    # gRPC's own logger has what it cancels when the servers stop.
    records = [record for record in caplog.records if not record.name.startswith("grpc.")]
    assert [record.exc_info[0] for record in records if record.exc_info] == [ZeroDivisionError]
