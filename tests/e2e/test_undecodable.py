"""Bytes that are no messages, and messages of values at the edges: refused, and by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2, health_pb2_grpc

from replay.backends.processes import EmbeddedServices
from reprieve.eviction.v1beta1 import eviction_service_pb2 as eviction
from reprieve.eviction.v1beta1 import eviction_service_pb2_grpc
from reprieve.queue.v1beta1 import queue_pb2, queue_service_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2
from reprieve.session.v1beta1 import session_pb2
from services.rpc.interceptors.statuses import RefusalInterceptor
from services.rpc.local import AsyncLocalChannel, LocalServer
from services.rpc.parts import ACCEPTED_BYTES_MAX
from services.rpc.session import TIME_NS_MAX
from tests.e2e.test_scheduler_service import Caller, add_node, add_pod, error_info, field_of, pod

pytestmark = pytest.mark.e2e
MODULES = {"queue": queue_service_pb2, "scheduler": scheduler_service_pb2, "eviction": eviction}
METHODS = [
    (name, service.full_name, method)
    for name, module in MODULES.items()
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
DEADLINE_S = 10


def sent(address: str, path: str, method: Any, data: bytes) -> grpc.RpcError:
    """Return how a service refuses bytes that are sent to a method."""
    with grpc.insecure_channel(address) as channel:
        kind = "stream_" if method.client_streaming else "unary_"
        kind += "stream" if method.server_streaming else "unary"
        make: Callable[..., Any] = getattr(channel, kind)
        call = make(path, request_serializer=bytes, response_deserializer=bytes)
        request = iter([data]) if method.client_streaming else data
        with pytest.raises(grpc.RpcError) as caught:  # noqa: PT012 - a call, and its responses
            found = call(request, timeout=DEADLINE_S)
            for _ in found if method.server_streaming else ():
                pass
        return caught.value


@pytest.mark.parametrize(
    ("name", "full_name", "method"), METHODS, ids=lambda param: getattr(param, "name", "")
)
def test_bytes_that_are_no_message_are_an_invalid_argument(
    services: EmbeddedServices, name: str, full_name: str, method: Any
) -> None:
    """For every method, whether its requests are a stream or not."""
    path = f"/{full_name}/{method.name}"
    error = sent(services.addresses[name], path, method, b"\xff\xff\xff")
    assert isinstance(error, grpc.Call)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_info(error).reason == "BAD_FIELD"
    assert method.input_type.full_name in (error.details() or "")


@pytest.mark.parametrize("method", ["Apply", "StreamingApply"])
def test_a_message_that_is_too_large_is_refused_with_the_limits_name(
    services: EmbeddedServices, method: str
) -> None:
    """By the service, whose refusal has details; not by the library."""
    [(_, full_name, found)] = [
        case for case in METHODS if case[0] == "queue" and case[2].name == method
    ]
    data = b"\x00" * (ACCEPTED_BYTES_MAX + 1)
    error = sent(services.addresses["queue"], f"/{full_name}/{method}", found, data)
    assert isinstance(error, grpc.Call)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert dict(error_info(error).metadata) == {"limit": "message_bytes"}


def failing(error: Exception) -> grpc.RpcMethodHandler[Any, Any]:
    """Return the handler of a service that has an error in itself."""

    async def call(_request: Any, _context: Any) -> Any:
        raise error

    return grpc.unary_unary_rpc_method_handler(call, bytes, bytes)


@pytest.mark.parametrize("error", [KeyError("x"), DecodeError("own"), ValueError("v"), OSError()])
def test_an_error_of_the_service_is_internal(error: Exception) -> None:
    """Whatever its class: only what reads the request may call it the caller's."""

    async def code() -> grpc.StatusCode:
        server = LocalServer(asyncio.get_running_loop(), [RefusalInterceptor()])
        server.add_registered_method_handlers("s", {"M": failing(error)})
        call = AsyncLocalChannel(server).unary_unary(
            "/s/M", request_serializer=bytes, response_deserializer=bytes
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"")
        server.close()
        return caught.value.code()

    assert asyncio.run(code()) is grpc.StatusCode.INTERNAL


@pytest.fixture
def kubelets(services: EmbeddedServices) -> Iterator[Any]:
    """Return the eviction service's methods."""
    with grpc.insecure_channel(services.addresses["eviction"]) as channel:
        yield eviction_service_pb2_grpc.EvictionServiceStub(channel)


@pytest.mark.parametrize("at_ns", [2**63 - 1, TIME_NS_MAX + 1])
def test_a_step_later_than_any_time_is_refused(kubelets: Any, at_ns: int) -> None:
    """What follows from it would not fit into 64 bits; the latest time is accepted."""
    name = kubelets.CreateSession(eviction.CreateSessionRequest(), timeout=DEADLINE_S).session_id
    stamp = session_pb2.Stamp(session_id=name, sequence=1)
    step = eviction.Step(node_name="n", time_ns=at_ns)
    step.observations.SetInParent()
    operation = eviction.Operation(step=step)
    with pytest.raises(grpc.RpcError) as caught:
        kubelets.Apply(eviction.ApplyRequest(stamp=stamp, operations=[operation]), timeout=9)
    assert field_of(caught.value) == "operations[0].step.time_ns"
    operation.step.time_ns = TIME_NS_MAX
    kubelets.Apply(eviction.ApplyRequest(stamp=stamp, operations=[operation]), timeout=9)
    kubelets.DeleteSession(session_pb2.DeleteSessionRequest(session_id=name), timeout=9)


@pytest.mark.parametrize("text", ["a\x00b", "\x1b: x", 'kind: "\x07"', "\ufffe"])
def test_control_characters_in_a_configuration_are_refused(
    services: EmbeddedServices, text: str
) -> None:
    """By the configuration's field."""
    with pytest.raises(grpc.RpcError) as caught:
        Caller(services.addresses["scheduler"], kube_scheduler_configuration=text)
    assert field_of(caught.value) == "config.kube_scheduler_configuration"


def test_a_round_later_than_any_time_is_refused(services: EmbeddedServices) -> None:
    """Before the queue would refuse it, and the session with it."""
    caller = Caller(services.addresses["scheduler"])
    caller.sequence = 1
    for at_ns in (2**63 - 1, TIME_NS_MAX + 1):
        with pytest.raises(grpc.RpcError) as caught:
            caller.stub.RunRound(caller.request(scheduler_pb2.Round(time_ns=at_ns)), timeout=9)
        assert field_of(caught.value) == "round.time_ns"
    caller.stub.RunRound(caller.request(scheduler_pb2.Round(time_ns=TIME_NS_MAX)), timeout=9)
    caller.channel.close()


def test_health_can_be_watched(services: EmbeddedServices) -> None:
    """The first response comes at once."""
    with grpc.insecure_channel(services.addresses["queue"]) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(), timeout=DEADLINE_S
        )
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()


def refused_round(services: EmbeddedServices, round_: scheduler_pb2.Round) -> grpc.RpcError:
    """Return how a new session refuses a round; the session then continues."""
    caller = Caller(services.addresses["scheduler"])
    caller.sequence = 1
    with pytest.raises(grpc.RpcError) as caught:
        caller.stub.RunRound(caller.request(round_), timeout=DEADLINE_S)
    caller.sequence = 0
    (outcome,) = caller.tell(0, add_node("n", "2"), add_pod(pod("p", "1")))
    assert outcome.bind.node_name == "n"
    caller.channel.close()
    return caught.value


def test_a_uid_of_two_pods_is_refused(services: EmbeddedServices) -> None:
    """In one request as in two; the queue would refuse the update, and the session would break."""
    first, second = add_pod(pod("p", "1")), add_pod(pod("p", "1"))
    second.add.pod.metadata.name = "q"
    error = refused_round(services, scheduler_pb2.Round(events=[first, second]))
    assert field_of(error) == "round.events[1].add.pod.metadata.uid"


@pytest.mark.parametrize("at_ns", [-1, -(2**63)])
def test_an_event_before_the_epoch_is_refused(services: EmbeddedServices, at_ns: int) -> None:
    """In the first round, too."""
    comes = add_pod(pod("p", "1"))
    comes.time_ns = at_ns
    error = refused_round(services, scheduler_pb2.Round(events=[comes]))
    assert error_info(error).reason == "TIME_GOES_BACKWARDS"


@pytest.mark.parametrize("seconds", [2**62, -(2**62), 253_402_300_799])
def test_a_time_that_64_bits_do_not_hold_is_refused(
    services: EmbeddedServices, seconds: int
) -> None:
    """By the field, of nodes as of pods."""
    node = add_node("n", "1")
    node.add.node.spec.taints.add(key="k", effect="NoSchedule").time_added.seconds = seconds
    error = refused_round(services, scheduler_pb2.Round(events=[node]))
    assert "time_added" in field_of(error)
    comes = add_pod(pod("p", "1"))
    comes.add.pod.metadata.creation_timestamp.seconds = seconds
    error = refused_round(services, scheduler_pb2.Round(events=[comes]))
    assert "creation_timestamp" in field_of(error)


def test_a_bound_pod_that_changes_before_it_is_confirmed_is_not_bound_twice(
    services: EmbeddedServices,
) -> None:
    """A queue before v1.34 returns it; the attempt fails in upstream's words."""
    queue = queue_pb2.QueueConfig(rules="v1.20")
    caller = Caller(services.addresses["scheduler"], queue=queue)
    changed = add_pod(pod("p", "1"))
    changed.add.pod.metadata.labels["a"] = "b"
    (bound,) = caller.tell(0, add_node("n", "4"), add_pod(pod("p", "1")))
    assert bound.bind.node_name == "n"
    outcomes = caller.tell(1, changed, answers=[scheduler_pb2.Answer(pop=bound.pop)])
    assert [outcome.failure.message for outcome in outcomes] == [
        "pod uid-p is in the cache, so can't be assumed"
    ]
    caller.channel.close()
