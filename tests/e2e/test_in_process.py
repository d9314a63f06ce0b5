"""Services within the replay's own process: the same servicers and messages, the same bytes."""

from __future__ import annotations

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.backends.processes import EmbeddedServices
from replay.backends.services import SchedulerService
from replay.generate.workload import GenerateOptions, generate
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.queue.v1beta1 import queue_service_pb2 as queue_rpc
from reprieve.queue.v1beta1.queue_service_pb2_grpc import QueueServiceStub
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as rpc
from reprieve.scheduler.v1beta1.scheduler_service_pb2_grpc import SchedulerServiceStub
from reprieve.session.v1beta1 import session_pb2
from services.kube.time import SECOND_NS
from services.rpc.client import channel
from services.telemetry.span import Sampling
from tests.e2e.random_world import RandomWorld
from tests.e2e.replays import NO_SPANS, run
from tests.e2e.test_scheduler_checkpoints import Talker

pytestmark = pytest.mark.e2e


@settings(max_examples=8)
@given(
    seed=st.integers(0, 2**16),
    rules=st.sampled_from(["v1.34", "v1.36", "v1.16"]),
    batch_size=st.sampled_from([1, 3, 1000]),
    spans=st.sampled_from([NO_SPANS, Sampling(1.0)]),
)
def test_a_replay_in_one_process_writes_the_same_decision_log(
    services: EmbeddedServices,
    here: EmbeddedServices,
    tmp_path_factory: pytest.TempPathFactory,
    *,
    seed: int,
    rules: str,
    batch_size: int,
    spans: Sampling,
) -> None:
    """Preemption, budgets, owners and evictions; whatever is batched or recorded on either side."""
    options = GenerateOptions(
        seed=seed,
        nodes=4,
        pods=60,
        deployments=4,
        budgets=4,
        window_ns=90 * SECOND_NS,
        service_ns=60 * SECOND_NS,
    )
    folder = tmp_path_factory.mktemp("runs")
    run(services, generate(options), folder / "grpc", rules=rules)
    run(
        here, generate(options), folder / "here", rules=rules, batch_size=batch_size, sampling=spans
    )
    logs = [(folder / name / "decisions.jsonl").read_bytes() for name in ("grpc", "here")]
    assert logs[0] == logs[1]
    assert len(logs[0].splitlines()) > 60


def test_sessions_and_checkpoints_are_the_same_in_one_process(here: EmbeddedServices) -> None:
    """Each kind of call: one message or many, either way; a restored session continues."""
    config = scheduler_pb2.SchedulerConfig(seed=3)
    stays, moves = (Talker(here.addresses["scheduler"], config) for _ in range(2))
    world = RandomWorld(7)
    for round_ in world.rounds(20):
        outcomes = stays.tell(round_)
        moves.restore(moves.saved())
        assert moves.tell(round_) == outcomes
        world.decided(scheduler_pb2.RoundOutcomes.FromString(outcomes))
    assert moves.state() == stays.state()


def test_a_refusal_has_the_status_that_it_has_over_grpc(
    services: EmbeddedServices, here: EmbeddedServices
) -> None:
    """Code, words and details, of single calls and of streams."""
    stamp = session_pb2.Stamp(session_id="nobody's", sequence=1)
    found = []
    for embedded in (services, here):
        queue = QueueServiceStub(channel(embedded.addresses["queue"]))
        scheduler = SchedulerServiceStub(channel(embedded.addresses["scheduler"]))
        calls = (
            lambda stub=queue: stub.Apply(queue_rpc.ApplyRequest(stamp=stamp)),
            lambda stub=queue: list(stub.GetState(session_pb2.GetStateRequest(stamp=stamp))),
            lambda stub=queue: stub.CreateSession(
                queue_rpc.CreateSessionRequest(config=queue_pb2.QueueConfig(rules="v0"))
            ),
            lambda stub=scheduler: next(
                stub.StreamingRunRound(iter([rpc.RunRoundRequest(stamp=stamp)]))
            ),
            lambda stub=scheduler: list(
                stub.CheckpointSession(session_pb2.CheckpointSessionRequest(stamp=stamp))
            ),
            lambda stub=scheduler: stub.RestoreSession(iter([])),
        )
        statuses = []
        for call in calls:
            with pytest.raises(grpc.RpcError) as error:
                call()
            statuses.append((error.value.code(), error.value.details()))
        found.append(statuses)
    assert found[0] == found[1]
    assert {code for code, _ in found[0]} >= {
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.INVALID_ARGUMENT,
    }


def test_what_a_service_does_to_a_message_stays_on_its_side(here: EmbeddedServices) -> None:
    """A patch is applied to the scheduler's own copy of a pod, not to the caller's message."""
    service = SchedulerService(here.addresses["scheduler"], scheduler_pb2.SchedulerConfig())
    first = scheduler_pb2.Round(time_ns=1)
    pod = first.events.add(time_ns=1).add.pod
    pod.metadata.uid = pod.metadata.name = "p"
    pod.spec.node_name = "n"
    pod.spec.containers.add(name="c")
    second = scheduler_pb2.Round(time_ns=2)
    patch = second.events.add(time_ns=2).patch
    patch.pod.uid, patch.status.phase = "p", "Running"
    for round_ in (first, second):
        service.send_round(round_)
        service.receive_outcomes()
    service.close()
    assert not pod.HasField("status")
