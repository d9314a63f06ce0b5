"""The eviction service as a real process: what it answers, refuses, keeps and outlives."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status

from replay.conform.eviction import DEADLINE_S
from replay.conform.eviction_scripts import pod_message
from reprieve.eviction.v1beta1 import eviction_pb2 as ev
from reprieve.eviction.v1beta1 import eviction_service_pb2 as pb
from reprieve.eviction.v1beta1.eviction_service_pb2_grpc import EvictionServiceStub
from reprieve.session.v1beta1 import session_pb2
from tests.e2e.eviction_client import Client, running_eviction

pytestmark = pytest.mark.e2e
FULL_NAME = "reprieve.eviction.v1beta1.EvictionService"
S = 1_000_000_000
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
        at_ns=at_s * S,
        observations=ev.Observations(
            memory=ev.MemoryStats(
                available_bytes=available, working_set_bytes=8 * GI - available, time_ns=at_s * S
            )
        ),
        pods=[pod_message({"name": each}) for each in names],
    )


def disk_step(node_name: str, at_s: int, available_gi: int) -> pb.Step:
    """Return a step of a node with 100Gi of disk."""
    node_fs = ev.FsStats(available_bytes=available_gi * GI, capacity_bytes=100 * GI)
    observations = ev.Observations(node_fs=node_fs)
    return pb.Step(node_name=node_name, at_ns=at_s * S, observations=observations)


def refusal(call: pytest.ExceptionInfo[grpc.RpcError]) -> tuple[grpc.StatusCode, str, str]:
    """Return a refusal's status code, reason, and the field or condition that it names."""
    status = rpc_status.from_call(call.value)  # type: ignore[arg-type] # it is a call, too
    assert status is not None
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    failure = error_details_pb2.PreconditionFailure()
    named = ""
    for detail in status.details:
        detail.Unpack(info)
        if detail.Unpack(bad):
            named = bad.field_violations[0].field
        if detail.Unpack(failure):
            named = failure.violations[0].type
    return call.value.code(), info.reason, named


def test_a_repeated_sequence_returns_the_same_answer_and_does_nothing(
    channel: grpc.Channel,
) -> None:
    """So a caller may retry what it has no answer of."""
    client = Client(channel, HARD)
    request = pb.SynchronizeRequest(stamp=client.stamp(), step=memory_step("n", 0, 0.5, "a"))
    first = client.stub.Synchronize(request, timeout=DEADLINE_S)
    before = client.dump()
    assert first.answer.result.evictions[0].pod.uid == "default/a"
    assert client.stub.Synchronize(request, timeout=DEADLINE_S) == first
    assert client.dump() == before


def test_a_calm_node_is_quiet_from_its_second_step_on(channel: grpc.Channel) -> None:
    """The world need not step it again before something changes."""
    client = Client(channel, HARD)
    assert not client.synchronize(memory_step("n", 0, 4)).result.quiet
    assert client.synchronize(memory_step("n", 10, 4)).result.quiet
    pressed = client.synchronize(memory_step("n", 20, 0.5, "a")).result
    assert (pressed.quiet, pressed.signal) == (False, "memory.available")
    assert [each.status for each in pressed.node_conditions] == ["True", "False", "False"]
    calm = client.synchronize(memory_step("n", 30, 4)).result
    assert (calm.quiet, list(calm.conditions)) == (False, ["MemoryPressure"])


def test_a_step_without_history_is_evaluated_outside_any_session(channel: grpc.Channel) -> None:
    """Evaluate takes the kubelet's defaults like any configuration."""
    stub = EvictionServiceStub(channel)
    request = pb.EvaluateRequest(
        config=ev.EvictionConfig(use_defaults=True), step=memory_step("n", 0, 0.09, "a", "b")
    )
    result = stub.Evaluate(request, timeout=DEADLINE_S).answer.result
    assert [each.text.split()[0] for each in result.thresholds_met] == ["memory.available<100Mi"]
    assert [each.pod.uid for each in result.evictions] == ["default/a"]


def test_a_kubelet_configuration_is_taken_as_it_is(channel: grpc.Channel) -> None:
    """Known fields that are not served are named in warnings."""
    text = (
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        'evictionHard: {memory.available: "2Gi"}\nmaxPods: 50\n'
    )
    opened = Client(channel, ev.EvictionConfig(kubelet_configuration=text)).opened
    assert opened.config.hard == {"memory.available": "2Gi"}
    assert {each.signal for each in opened.thresholds} == {
        "memory.available",
        "allocatableMemory.available",
    }
    assert list(opened.warnings) == ["maxPods is known but not served."]


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
    """NOT_FOUND."""
    client = Client(channel, HARD)
    with pytest.raises(grpc.RpcError) as caught:
        client.admit("nowhere", {"name": "a"})
    assert refusal(caught) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND", "")
    client.session = "another"
    with pytest.raises(grpc.RpcError) as caught:
        client.dump()
    assert refusal(caught) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND", "")


def test_a_stale_stamp_is_aborted(channel: grpc.Channel) -> None:
    """Whether its sequence, its operation or its epoch is not the one that is due."""
    client = Client(channel, HARD)
    client.synchronize(memory_step("n", 0, 4))
    client.sequence += 1
    with pytest.raises(grpc.RpcError) as caught:
        client.synchronize(memory_step("n", 10, 4))
    assert refusal(caught) == (grpc.StatusCode.ABORTED, "STALE", "")
    client.sequence = 0
    with pytest.raises(grpc.RpcError) as caught:
        client.configure("n", HARD)
    assert refusal(caught) == (grpc.StatusCode.ABORTED, "STALE", "")
    client.epoch += 1
    with pytest.raises(grpc.RpcError) as caught:
        client.dump()
    assert refusal(caught) == (grpc.StatusCode.ABORTED, "STALE", "")


def test_time_that_goes_backwards_on_a_node_is_refused(channel: grpc.Channel) -> None:
    """Another node's time is its own."""
    client = Client(channel, HARD)
    client.synchronize(memory_step("n", 10, 4))
    client.synchronize(memory_step("m", 5, 4))
    with pytest.raises(grpc.RpcError) as caught:
        client.synchronize(memory_step("n", 9, 4))
    expected = (grpc.StatusCode.FAILED_PRECONDITION, "TIME_GOES_BACKWARDS", "TIME_GOES_BACKWARDS")
    assert refusal(caught) == expected


def test_a_batch_is_done_whole_or_not_at_all(channel: grpc.Channel) -> None:
    """What came before the operation that is refused is undone."""
    client = Client(channel, DISK)
    client.synchronize(disk_step("n", 0, 50))
    before = client.dump()
    operations = [
        pb.NodeOperation(step=disk_step("n", 10, 5)),
        pb.NodeOperation(step=disk_step("new", 10, 5)),
        pb.NodeOperation(step=disk_step("n", 20, 5)),
    ]
    with pytest.raises(grpc.RpcError) as caught:
        client.batch(operations)
    assert refusal(caught)[:2] == (grpc.StatusCode.FAILED_PRECONDITION, "PRECONDITION")
    assert client.dump() == before
    client.sequence -= 1
    answers = client.batch(operations[:2])
    assert [each.HasField("need_reclaim") for each in answers] == [True, True]


def test_a_forgotten_node_starts_anew(channel: grpc.Channel) -> None:
    """Forget is idempotent, and time may begin again."""
    client = Client(channel, HARD)
    client.synchronize(memory_step("n", 10, 0.5))
    for _ in range(2):
        request = pb.ForgetRequest(stamp=client.stamp(), node_name="n")
        client.stub.Forget(request, timeout=DEADLINE_S)
    assert client.dump() == []
    assert list(client.synchronize(memory_step("n", 0, 4)).result.conditions) == []


def test_a_restore_starts_a_later_epoch_and_goes_on_from_its_sequence(
    channel: grpc.Channel,
) -> None:
    """A caller of the epoch before is refused."""
    client = Client(channel, HARD)
    client.synchronize(memory_step("n", 0, 0.5, "a"))
    chunks = client.checkpoint()
    client.synchronize(memory_step("n", 10, 4))
    client.restore(chunks)
    assert (client.epoch, client.sequence) == (2, 1)
    assert client.dump()[0].at_ns == 0
    client.synchronize(memory_step("n", 10, 4))
    client.epoch = 1
    with pytest.raises(grpc.RpcError) as caught:
        client.dump()
    assert refusal(caught)[0] is grpc.StatusCode.ABORTED


def test_another_services_checkpoint_is_refused(channel: grpc.Channel) -> None:
    """FAILED_PRECONDITION, and the session stays."""
    client = Client(channel, HARD)
    chunks = client.checkpoint()
    for field, value in (("service", "queue"), ("version", "0.0.1"), ("format", 1)):
        foreign = session_pb2.CheckpointChunk()
        foreign.CopyFrom(chunks[0])
        setattr(foreign.info, field, value)
        with pytest.raises(grpc.RpcError) as caught:
            client.restore([foreign])
        assert refusal(caught)[:2] == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "FOREIGN_CHECKPOINT",
        )
    assert client.dump() == []


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
    assert FULL_NAME in {each.name for each in listed.list_services_response.service}


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
