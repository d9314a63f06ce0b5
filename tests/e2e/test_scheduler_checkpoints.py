"""A scheduler's checkpoint, taken between any two rounds, continues as if nothing had happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc
import pytest

from replay.backends.processes import EmbeddedServices
from replay.generate.workload import GenerateOptions, generate
from replay.kube.kinds import to_object
from replay.results.run.decision_log import one_by_one
from replay.runner import run_replay
from replay.settings import ReplaySettings
from replay.world.models import Models, with_values
from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2, scheduler_service_pb2_grpc
from reprieve.scheduler.v1beta1 import scheduler_service_pb2 as service_pb2
from reprieve.session.v1beta1 import session_pb2
from services.kube.time import SECOND_NS
from services.rpc.client import channel
from services.rpc.kube.messages import node_to_message, pod_to_message
from services.rpc.parts import merged
from tests.builders import make_node, make_pod
from tests.e2e.random_world import RandomWorld, forget_times
from tests.e2e.replays import NO_SPANS

pytestmark = pytest.mark.e2e

Config = scheduler_pb2.SchedulerConfig
CONFIGS = {
    "v1.34": Config(seed=3),
    "v1.34, its queue, few heads": Config(
        seed=3, batch_size=3, queue=queue_pb2.QueueConfig(rules="v1.34")
    ),
    "v1.34, sampled": Config(seed=4, sample_nodes=True),
    "v1.34, by name": Config(ties=scheduler_pb2.TIE_BREAK_NAME),
    "v1.16": Config(rules="v1.16", queue=queue_pb2.QueueConfig(rules="v1.16")),
}
WORKLOAD = GenerateOptions(
    seed=11,
    nodes=3,
    pods=90,
    deployments=4,
    budgets=8,
    window_ns=60 * SECOND_NS,
    service_ns=60 * SECOND_NS,
)


class Talker:
    """One session, sent rounds; `restore` continues in another one."""

    def __init__(self, address: str, config: Config) -> None:
        self.stub = scheduler_service_pb2_grpc.SchedulerServiceStub(channel(address))
        made = self.stub.CreateSession(service_pb2.CreateSessionRequest(config=config), timeout=30)
        assert made.resumable
        self.stamp = session_pb2.Stamp(session_id=made.session_id)

    def tell(self, round_: scheduler_pb2.Round) -> bytes:
        """Run a round and return its outcomes without what the wall clock measured."""
        self.stamp.sequence += 1
        request = service_pb2.RunRoundRequest(stamp=self.stamp, round=round_)
        (outcomes,) = self.stub.RunRound(request, timeout=60).rounds
        forget_times(outcomes)
        return bytes(outcomes.SerializeToString(deterministic=True))

    def saved(self) -> list[session_pb2.CheckpointChunk]:
        """Return a checkpoint of the session."""
        request = session_pb2.CheckpointSessionRequest(stamp=self._now())
        return list(self.stub.CheckpointSession(request, timeout=60))

    def restore(self, chunks: Sequence[session_pb2.CheckpointChunk]) -> None:
        """Go on in a session that `chunks` make here; its sequence starts again."""
        restored = self.stub.RestoreSession(iter(chunks), timeout=60)
        assert restored.resumable
        assert restored.session_id != self.stamp.session_id
        self.stamp.session_id, self.stamp.sequence = restored.session_id, 0

    def state(self) -> scheduler_pb2.SchedulerState:
        """Return all that the session holds."""
        parts = self.stub.GetState(session_pb2.GetStateRequest(stamp=self._now()), timeout=60)
        return merged(parts, service_pb2.GetStateResponse()).state

    def close(self) -> None:
        """Forget the session."""
        self.stub.DeleteSession(session_pb2.DeleteSessionRequest(session_id=self.stamp.session_id))

    def _now(self) -> session_pb2.Stamp:
        """Return the stamp of a read, which does not count."""
        return session_pb2.Stamp(session_id=self.stamp.session_id)


@pytest.fixture(scope="module")
def others(services: EmbeddedServices) -> Iterator[EmbeddedServices]:
    """Start a second set of processes, after the first has set their environment."""
    del services
    with EmbeddedServices(eviction=False) as embedded:
        yield embedded


def told(
    services: EmbeddedServices, tmp_path: Path, config: Config, *texts: str
) -> list[scheduler_pb2.Round]:
    """Return the rounds of a replay under that configuration, with models."""
    settings = ReplaySettings(
        version="test",
        scheduler_address=services.addresses["scheduler"],
        seed=config.seed,
        rules=config.rules or "v1.34",
        queue_rules=config.queue.rules or None,
        no_eviction=True,
        run_path=tmp_path / "run",
        sampling=NO_SPANS,
    ).assuming(with_values(Models(), texts))
    finished = run_replay(
        settings, lambda: generate(WORKLOAD), lambda _now_ns, _cluster, _tally: None
    )
    return list(finished.run.rounds())


@pytest.mark.parametrize(
    ("name", "delay"), [("v1.34", "off"), ("v1.34", "5s"), ("v1.16", "off"), ("v1.16", "5s")]
)
def test_a_session_restored_between_any_two_rounds_decides_the_same(
    here: EmbeddedServices, tmp_path: Path, name: str, delay: str
) -> None:
    """Restored before each round, with decisions in flight, a session says the same bytes.

    With a delay of preemptions, preemptors are gated meanwhile.
    """
    config = CONFIGS[name]
    rounds = told(here, tmp_path, config, f"preemption-delay={delay}")
    address = here.addresses["scheduler"]
    whole, moved = Talker(address, config), Talker(address, config)
    in_flight = nominated = 0
    for round_ in rounds:
        chunks = moved.saved()
        moved.close()
        moved.restore(chunks)
        assert moved.tell(round_) == whole.tell(round_)
        state = moved.state()
        assert state == whole.state()
        in_flight += len(state.assumed)
        nominated += len(state.nominations)
    assert in_flight > 20
    assert nominated > 2


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("seed", [13, 15])
def test_a_restored_session_follows_a_random_world(
    here: EmbeddedServices, name: str, seed: int
) -> None:
    """Nodes come and go, pods bring claims, gates, spread and anti-affinity, answers come late."""
    address = here.addresses["scheduler"]
    world = RandomWorld(seed)
    whole, moved = Talker(address, CONFIGS[name]), Talker(address, CONFIGS[name])
    kinds: Counter[str] = Counter()
    for number, round_ in enumerate(world.rounds(60)):
        chunks = moved.saved()
        moved.close()
        moved.restore(chunks)
        said = whole.tell(round_)
        assert moved.tell(round_) == said, f"round {number}"
        assert moved.state() == whole.state()
        outcomes = _outcomes(said)
        world.decided(outcomes)
        kinds.update(outcome.WhichOneof("decision") or "" for outcome in one_by_one(outcomes))
    assert kinds["bind"] > 5
    assert sum(kinds.values()) > 30


def test_a_session_restored_among_pods_that_came_together_goes_on_with_the_next(
    here: EmbeddedServices,
) -> None:
    """Sent in two parts, and tried a few in each message: the queue is asked before the first."""
    node = make_node("n").capacity(cpu="20", pods="20").obj()
    parts = [scheduler_pb2.Round(events_only=True) for _ in range(2)]
    parts[0].events.add().add.node.CopyFrom(node_to_message(node))
    for number in range(12):
        pod = make_pod(f"p{number}").req(cpu="1").priority(number % 3).obj()
        parts[number // 6].events.add().add.pod.CopyFrom(pod_to_message(pod))
    rounds = [*parts, *(scheduler_pb2.Round(max_pods=2) for _ in range(7))]
    address, config = here.addresses["scheduler"], CONFIGS["v1.34, its queue, few heads"]
    whole, moved = Talker(address, config), Talker(address, config)
    bound: list[str] = []
    for round_ in rounds:
        chunks = moved.saved()
        moved.close()
        moved.restore(chunks)
        outcomes = scheduler_pb2.RoundOutcomes.FromString(whole.tell(round_))
        assert moved.tell(round_) == outcomes.SerializeToString(deterministic=True)
        assert outcomes.queue_exchanges == (round_ is rounds[0])
        bound += [outcome.pop.uid for outcome in outcomes.outcomes if outcome.HasField("bind")]
    by_priority = sorted(range(12), key=lambda number: -(number % 3))
    assert bound == [f"uid-default-p{number}" for number in by_priority]
    assert whole.state() == moved.state()
    whole.close()
    moved.close()


def test_a_new_process_continues_from_another_ones_checkpoint(
    services: EmbeddedServices, others: EmbeddedServices, tmp_path: Path
) -> None:
    """Scheduler and queue are other processes."""
    config = CONFIGS["v1.34"]
    rounds = told(services, tmp_path, config)
    whole = Talker(services.addresses["scheduler"], config)
    elsewhere = Talker(others.addresses["scheduler"], config)
    half = len(rounds) // 2
    for round_ in rounds[:half]:
        whole.tell(round_)
    elsewhere.restore(whole.saved())
    for round_ in rounds[half:]:
        assert elsewhere.tell(round_) == whole.tell(round_)


def test_a_restored_session_takes_no_other_ones_queue(here: EmbeddedServices) -> None:
    """Two sessions from one checkpoint go on apart from each other."""
    address = here.addresses["scheduler"]
    first, second = Talker(address, Config()), Talker(address, Config())
    first.tell(_round(0, "Node", {"name": "n"}, status={"allocatable": {"cpu": "4", "pods": "9"}}))
    second.restore(first.saved())
    requests = {"resources": {"requests": {"cpu": "3"}}}
    pod: dict[str, object] = {"containers": [{"name": "c", **requests}]}
    outcomes = [
        caller.tell(_round(1, "Pod", {"name": "p", "uid": "p", "namespace": "d"}, spec=pod))
        for caller in (first, second)
    ]
    assert outcomes[0] == outcomes[1]
    assert b"n" in outcomes[0]


def test_reservations_of_a_pod_can_be_released_after_a_restore(here: EmbeddedServices) -> None:
    """A claim's node is fixed when its pod is assumed, and free when the binding is refused."""
    talker = Talker(here.addresses["scheduler"], Config())
    for name in ("a", "b"):
        node = {"allocatable": {"cpu": "1", "memory": "8Gi", "pods": "9"}}
        talker.tell(_round(0, "Node", {"name": name}, status=node))
    local = {"provisioner": "local", "volumeBindingMode": "WaitForFirstConsumer"}
    talker.tell(_round(0, "StorageClass", {"name": "local"}, **local))
    claim: dict[str, object] = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"]}
    asked = {"resources": {"requests": {"storage": "1Gi"}}}
    meta = {"namespace": "d", "name": "data", "uid": "data"}
    talker.tell(_round(0, "PersistentVolumeClaim", meta, spec=claim | asked))
    first = _outcomes(talker.tell(_round(1, "Pod", _meta("one"), spec=_user_of("data"))))
    place = first.outcomes[0].bind.node_name
    talker.restore(talker.saved())
    second = _outcomes(talker.tell(_round(2, "Pod", _meta("two"), spec=_user_of("data"))))
    assert not second.outcomes[0].HasField("bind"), f"the claim belongs to {place}, which is full"
    talker.restore(talker.saved())
    refused = scheduler_pb2.Answer(
        pop=first.outcomes[0].pop, refused=scheduler_pb2.REFUSAL_STAGE_BIND
    )
    cordoned = {"allocatable": {"cpu": "1", "memory": "8Gi", "pods": "9"}}
    round_ = _round(60, "Node", {"name": place}, status=cordoned, spec={"unschedulable": True})
    round_.answers.append(refused)
    small = _round(60, "Node", {"name": "small"}, status={"allocatable": {"pods": "9"}})
    round_.events.extend(small.events)
    bound = {
        outcome.bind.node_name
        for outcome in _outcomes(talker.tell(round_)).outcomes
        if outcome.HasField("bind")
    }
    assert bound == {"a", "b"} - {place}


def test_another_services_checkpoint_is_refused(here: EmbeddedServices) -> None:
    """A stream that holds something else leaves the session as it is."""
    talker = Talker(here.addresses["scheduler"], Config())
    chunks = talker.saved()
    chunks[0].info.service = session_pb2.SERVICE_KIND_QUEUE
    with pytest.raises(grpc.RpcError) as caught:
        talker.restore(chunks)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    chunks = talker.saved()
    chunks[0].data = chunks[0].data[:-9]
    with pytest.raises(grpc.RpcError) as caught:
        talker.restore(chunks)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    talker.tell(scheduler_pb2.Round(time_ns=5))


def _round(second: int, kind: str, meta: dict[str, str], **rest: object) -> scheduler_pb2.Round:
    versions = {"StorageClass": "storage.k8s.io/v1"}
    text = {"apiVersion": versions.get(kind, "v1"), "kind": kind, "metadata": meta, **rest}
    event = scheduler_pb2.Event(time_ns=second * SECOND_NS, add=to_object(text))
    return scheduler_pb2.Round(time_ns=second * SECOND_NS, events=[event])


def _outcomes(text: bytes) -> scheduler_pb2.RoundOutcomes:
    return scheduler_pb2.RoundOutcomes.FromString(text)


def _meta(name: str) -> dict[str, str]:
    return {"namespace": "d", "name": name, "uid": name}


def _user_of(claim: str) -> dict[str, object]:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
    asked = {"requests": {"cpu": "700m"}}
    return {"containers": [{"name": "c", "resources": asked}], "volumes": [volume]}
