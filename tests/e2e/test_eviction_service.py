"""The eviction service as a real process: what it answers, refuses, keeps and outlives."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status

from replay.backends.processes import EmbeddedServices
from replay.backends.services import EvictionService
from replay.conform.vectors.eviction import DEADLINE_S, pod_message
from reprieve.eviction.v1beta1 import eviction_pb2 as ev
from reprieve.eviction.v1beta1 import eviction_service_pb2 as pb
from reprieve.kube.v1beta1 import node_pb2
from reprieve.session.v1beta1 import session_pb2
from services.kube.time import SECOND_NS
from services.rpc.parts import PART_BYTES
from tests.e2e.eviction_client import Client, running_eviction
from tests.unit.eviction.builders import large_batch

pytestmark = pytest.mark.e2e
FULL_NAME = "reprieve.eviction.v1beta1.EvictionService"
S = SECOND_NS
GI = 1 << 30
INVALID = grpc.StatusCode.INVALID_ARGUMENT
HARD = ev.EvictionConfig(hard={"memory.available": "1Gi"}, local_storage_isolation=False)
DISK = ev.EvictionConfig(hard={"nodefs.available": "10Gi"}, local_storage_isolation=False)


@pytest.fixture(scope="module")
def channel() -> Iterator[grpc.Channel]:
    """Yield a channel to a service that lives as long as this module's tests."""
    with running_eviction() as (_, opened):
        yield opened


def memory_step(node_name: str, at_s: int, available_gi: float, *names: str) -> pb.Step:
    """Return a step of a node with 8Gi of memory that lists the named pods."""
    available = int(available_gi * GI)
    return pb.Step(
        node_name=node_name,
        time_ns=at_s * S,
        observations=ev.Observations(
            memory=ev.MemoryStats(
                available_bytes=available, working_set_bytes=8 * GI - available, time_ns=at_s * S
            )
        ),
        pods=[pod_message({"name": name}) for name in names],
    )


def disk_step(node_name: str, at_s: int, available_gi: int) -> pb.Step:
    """Return a step of a node with 100Gi of disk."""
    node_fs = ev.FsStats(available_bytes=available_gi * GI, capacity_bytes=100 * GI)
    observations = ev.Observations(node_fs=node_fs)
    return pb.Step(node_name=node_name, time_ns=at_s * S, observations=observations)


def refusal(call: pytest.ExceptionInfo[grpc.RpcError]) -> tuple[grpc.StatusCode, str, str]:
    """Return a refusal's code and reason, and the field, condition or sequence that it names."""
    status = rpc_status.from_call(call.value)  # type: ignore[arg-type] # it is a call, too
    assert status is not None
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    failure = error_details_pb2.PreconditionFailure()
    named = ""
    for detail in status.details:
        if detail.Unpack(info):
            named = info.metadata["expected_sequence"]
        if detail.Unpack(bad):
            named = bad.field_violations[0].field
        if detail.Unpack(failure):
            named = failure.violations[0].type
    return call.value.code(), info.reason, named


def under(conditions: Iterable[node_pb2.NodeCondition]) -> list[str]:
    """Return the conditions that hold."""
    return [condition.type for condition in conditions if condition.status == "True"]


def test_a_repeated_sequence_returns_the_same_answer_and_does_nothing(
    channel: grpc.Channel,
) -> None:
    """So a caller may retry what it has no answer of, also under another span."""
    client = Client(channel, HARD)
    operations = [pb.Operation(step=memory_step("n", 0, 0.5, "a"))]
    request = pb.ApplyRequest(stamp=client.stamp(), operations=operations)
    first = client.stub.Apply(request, timeout=DEADLINE_S)
    before = client.state()
    assert first.results[0].step.evictions[0].pod.uid == "default/a"
    request.stamp.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert client.stub.Apply(request, timeout=DEADLINE_S) == first
    assert client.state() == before


def test_a_calm_node_is_quiet_from_its_second_step_on(channel: grpc.Channel) -> None:
    """The world need not step it again before something changes; its conditions stay."""
    client = Client(channel, HARD)
    assert not client.step(memory_step("n", 0, 4)).step.quiet
    quiet = client.step(memory_step("n", 10, 4)).step
    assert (quiet.quiet, list(quiet.conditions)) == (True, [])
    pressed = client.step(memory_step("n", 20, 0.5, "a")).step
    assert (pressed.quiet, pressed.signal) == (False, "memory.available")
    assert [(condition.type, condition.status) for condition in pressed.conditions] == [
        ("MemoryPressure", "True"),
        ("DiskPressure", "False"),
        ("PIDPressure", "False"),
    ]
    calm = client.step(memory_step("n", 30, 4)).step
    assert (calm.quiet, under(calm.conditions)) == (False, ["MemoryPressure"])
    assert under(client.state()[0].conditions) == ["MemoryPressure"]


def test_a_new_session_takes_the_kubelets_defaults(channel: grpc.Channel) -> None:
    """Evicting by them from the first step on."""
    client = Client(channel, ev.EvictionConfig(use_defaults=True))
    result = client.step(memory_step("n", 0, 0.09, "a", "b")).step
    assert [threshold.text.split()[0] for threshold in result.thresholds_met] == [
        "memory.available<100Mi"
    ]
    assert [eviction.pod.uid for eviction in result.evictions] == ["default/a"]


def test_a_kubelet_configuration_is_taken_as_it_is(channel: grpc.Channel) -> None:
    """Known fields that are not served are named in warnings."""
    text = (
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        'evictionHard: {memory.available: "2Gi"}\nmaxPods: 50\n'
    )
    opened = Client(channel, ev.EvictionConfig(kubelet_configuration=text)).opened
    assert opened.config.hard == {"memory.available": "2Gi"}
    assert {threshold.signal for threshold in opened.thresholds} == {
        "memory.available",
        "allocatableMemory.available",
    }
    assert list(opened.warnings) == ["maxPods has no effect: eviction does not read it."]


def test_a_bad_threshold_is_refused_with_its_field(channel: grpc.Channel) -> None:
    """INVALID_ARGUMENT, in the message and in a file."""
    with pytest.raises(grpc.RpcError) as caught:
        Client(channel, ev.EvictionConfig(hard={"memory.available": "lots"}))
    assert refusal(caught) == (INVALID, "BAD_FIELD", "config.hard[memory.available]")
    text = (
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        'evictionSoft: {memory.available: "2Gi"}\n'
    )
    with pytest.raises(grpc.RpcError) as caught:
        Client(channel, ev.EvictionConfig(kubelet_configuration=text))
    field = "config.kubelet_configuration.evictionSoftGracePeriod[memory.available]"
    assert refusal(caught) == (INVALID, "BAD_FIELD", field)


def test_unknown_sessions_and_nodes_are_not_found(channel: grpc.Channel) -> None:
    """NOT_FOUND; of a session that was deleted like of one that never was."""
    client = Client(channel, HARD)
    with pytest.raises(grpc.RpcError) as caught:
        client.admit("nowhere", {"name": "a"})
    assert refusal(caught) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND", "")
    for _ in range(2):
        client.close()
    for name in (client.session, "another"):
        client.session = name
        with pytest.raises(grpc.RpcError) as caught:
            client.state()
        assert refusal(caught) == (grpc.StatusCode.NOT_FOUND, "SESSION_EXPIRED", "")


def test_a_sequence_out_of_order_is_aborted(channel: grpc.Channel) -> None:
    """A number that is not due, and the last one with another request."""
    client = Client(channel, HARD)
    client.step(memory_step("n", 0, 4))
    for sequence in (3, 0):
        client.sequence = sequence - 1
        with pytest.raises(grpc.RpcError) as caught:
            client.step(memory_step("n", 10, 4))
        assert refusal(caught) == (grpc.StatusCode.ABORTED, "SEQUENCE_MISMATCH", "2")
    client.sequence = 0
    with pytest.raises(grpc.RpcError) as caught:
        client.configure("n", HARD)
    assert refusal(caught) == (grpc.StatusCode.ABORTED, "SEQUENCE_REUSED", "2")
    with pytest.raises(grpc.RpcError) as caught:
        client.stub.Apply(pb.ApplyRequest(stamp=client.read()), timeout=DEADLINE_S)
    assert refusal(caught) == (INVALID, "BAD_FIELD", "stamp.sequence")


def test_time_that_goes_backwards_on_a_node_is_refused(channel: grpc.Channel) -> None:
    """Another node's time is its own."""
    client = Client(channel, HARD)
    client.step(memory_step("n", 10, 4))
    client.step(memory_step("m", 5, 4))
    with pytest.raises(grpc.RpcError) as caught:
        client.step(memory_step("n", 9, 4))
    expected = (grpc.StatusCode.FAILED_PRECONDITION, "TIME_GOES_BACKWARDS", "TIME_GOES_BACKWARDS")
    assert refusal(caught) == expected


def test_a_batch_is_done_whole_or_not_at_all(channel: grpc.Channel) -> None:
    """What came before the operation that is refused is undone."""
    client = Client(channel, DISK)
    client.step(disk_step("n", 0, 50))
    before = client.state()
    operations = [
        pb.Operation(step=disk_step("n", 10, 5)),
        pb.Operation(step=disk_step("new", 10, 5)),
        pb.Operation(step=disk_step("n", 20, 5)),
    ]
    with pytest.raises(grpc.RpcError) as caught:
        client.batch(operations)
    assert refusal(caught)[:2] == (grpc.StatusCode.FAILED_PRECONDITION, "PRECONDITION")
    assert client.state() == before
    client.sequence -= 1
    results = client.batch(operations[:2])
    assert [result.HasField("need_reclaim") for result in results] == [True, True]


def test_a_batch_answers_each_operation_but_removals_in_order(channel: grpc.Channel) -> None:
    """Whatever they are; a removal has no result."""
    client = Client(channel, HARD)
    operations = [
        pb.Operation(configure=pb.Configure(node_name="n", config=DISK)),
        pb.Operation(remove_node="unknown"),
        pb.Operation(step=disk_step("n", 0, 5)),
        pb.Operation(step=memory_step("m", 0, 4)),
        pb.Operation(
            resume=pb.Resume(node_name="n", observations=disk_step("n", 0, 5).observations)
        ),
        pb.Operation(admit=pb.Admit(node_name="n", pod=pod_message({"name": "a"}))),
    ]
    results = client.batch(operations)
    assert [(result.node_name, result.WhichOneof("result")) for result in results] == [
        ("n", "configured"),
        ("n", "need_reclaim"),
        ("m", "step"),
        ("n", "step"),
        ("n", "admission"),
    ]
    assert [threshold.signal for threshold in results[0].configured.thresholds] == [
        "nodefs.available"
    ]
    assert not results[-1].admission.admit


def test_a_removed_node_starts_again(channel: grpc.Channel) -> None:
    """A removal is idempotent, and time may begin again."""
    client = Client(channel, HARD)
    client.step(memory_step("n", 10, 0.5))
    for _ in range(2):
        assert client.batch([pb.Operation(remove_node="n")]) == []
    assert client.state() == []
    assert under(client.step(memory_step("n", 0, 4)).step.conditions) == []


def test_a_restored_session_continues_beside_the_one_before(channel: grpc.Channel) -> None:
    """It is a session of its own, and its sequence starts again."""
    client = Client(channel, HARD)
    client.step(memory_step("n", 0, 0.5, "a"))
    chunks, saved, former = client.checkpoint(), client.state(), client.session
    client.step(memory_step("n", 10, 4))
    client.restore(chunks)
    assert client.session != former
    assert client.opened.config.hard == HARD.hard
    assert (client.state(), client.state()[0].time_ns) == (saved, 0)
    expected = client.step(memory_step("n", 10, 4, "b"))
    assert client.sequence == 1
    client.session, client.sequence = former, 2
    assert client.state()[0].time_ns == 10 * S
    client.restore(chunks)
    assert client.step(memory_step("n", 10, 4, "b")) == expected


def test_another_services_checkpoint_is_refused(channel: grpc.Channel) -> None:
    """FAILED_PRECONDITION, and the session stays."""
    client = Client(channel, HARD)
    chunks, session = client.checkpoint(), client.session
    foreign_infos: list[tuple[str, int | str]] = [
        ("service", session_pb2.SERVICE_KIND_QUEUE),
        ("version", "0.0.1"),
        ("format", 99),
    ]
    for field, value in foreign_infos:
        foreign = session_pb2.CheckpointChunk()
        foreign.CopyFrom(chunks[0])
        setattr(foreign.info, field, value)
        with pytest.raises(grpc.RpcError) as caught:
            client.restore([foreign])
        assert refusal(caught)[:2] == (grpc.StatusCode.FAILED_PRECONDITION, "FOREIGN_CHECKPOINT")
    assert (client.session, client.state()) == (session, [])


def test_a_replays_session_sends_again_what_was_left_out(here: EmbeddedServices) -> None:
    """Results too large for an answer come to the same as one by one."""
    config = ev.EvictionConfig(hard={"memory.available": "1Gi"})
    operations = large_batch()
    batched = EvictionService(here.addresses["eviction"], config)
    single = EvictionService(here.addresses["eviction"], config)
    results = list(batched.apply(operations))
    assert sum(result.ByteSize() for result in results) > PART_BYTES
    assert results == [answer for operation in operations for answer in single.apply([operation])]
    removals = [pb.Operation(remove_node=result.node_name) for result in results]
    assert list(batched.apply(removals)) == []
    batched.close()
    single.close()


def test_the_service_answers_health_checks_and_reflection(channel: grpc.Channel) -> None:
    """Under its full name."""
    health = health_pb2_grpc.HealthStub(channel)
    checked = health.Check(health_pb2.HealthCheckRequest(service=FULL_NAME), timeout=DEADLINE_S)
    assert checked.status == health_pb2.HealthCheckResponse.SERVING
    asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
    listed = next(
        reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
            asked, timeout=DEADLINE_S
        )
    )
    assert FULL_NAME in {service.name for service in listed.list_services_response.service}
    today = channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
    assert next(today(asked, timeout=DEADLINE_S)).list_services_response == (
        listed.list_services_response
    )
    assert "grpc.reflection.v1.ServerReflection" in str(listed)


def test_sigterm_ends_the_service_with_exit_code_0() -> None:
    """Within its grace period, with a session open."""
    with running_eviction() as (process, channel):
        Client(channel, HARD)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0


def test_the_end_of_standard_input_ends_a_child() -> None:
    """So no service outlives a killed replay."""
    with running_eviction() as (process, _):
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=10) == 0
