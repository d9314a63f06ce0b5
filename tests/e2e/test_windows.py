"""However moments are gathered into messages, the decisions are the same, byte by byte."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.backends.processes import EmbeddedServices
from replay.backends.services import SchedulerService
from replay.runner import FinishedReplay
from replay.world.ahead import look_ahead, windows
from replay.world.ahead.windows import Windows
from replay.world.models import Models
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.scheduler.v1beta1.scheduler_service_pb2 import Foreseen, RunRoundRequest
from reprieve.trace.v1beta1 import trace_pb2
from services.telemetry.span import Sampling
from tests.e2e.replays import NO_SPANS, run
from tests.e2e.test_extenders import extender
from tests.extenders import Json, webhook
from tests.unit.world.admission.test_quotas import make_quota
from tests.unit.world.builders import (
    S,
    create,
    create_pod,
    delete,
    make_budget,
    make_class,
    make_deployment,
    make_node,
    make_pod,
    make_replica_set,
    update,
)

pytestmark = pytest.mark.e2e
MS = 1_000_000


def workload(seed: int, pods: int = 80) -> list[trace_pb2.Record]:
    """Return pods that come one by one to few nodes, with whatever ends a window among them."""
    random = Random(seed)  # noqa: S311 - chance makes the cases
    grain_ns = random.choice([MS, 100 * MS, S])
    crowd = random.choice([0.3, 1.0, 3.0])
    rarely = random.choice([0.0, 0.02, 0.1])
    tells_usage = random.random() < 0.15
    nodes = [make_node(f"n{index}", "16Gi") for index in range(random.randrange(3, 8))]
    for index, node in enumerate(nodes):
        node.metadata.labels["zone"] = f"z{index % 3}"
    records = [trace_pb2.Record(header=trace_pb2.Header(format_version=2))]
    records += [create(make_class(f"tier{tier}", 100 * tier)) for tier in range(3)]
    records += [create(node) for node in nodes]
    records += _templates(random)
    if random.random() < 0.3:
        owner = make_replica_set("owner", 3)
        if random.random() < 0.5:
            owner.spec.template.metadata.labels["app"] = "web"
            owner.spec.selector.match_labels["app"] = "web"
        records += [create(owner), create(make_budget(min_available=1))]
    if tells_usage:
        profile = trace_pb2.UsageProfile(id=1, template_id=1)
        profile.segments.add(memory_bytes=2 << 30)
        records.append(trace_pb2.Record(usage=profile))
    at_ns, numbers = 0, list(range(pods))
    while numbers:
        at_ns += grain_ns * random.randrange(0, 4)
        record = _rare(random, nodes, pods) if random.random() < rarely else None
        if record is None:
            record = _pod(random, numbers.pop(0), grain_ns, crowd)
        record.time_ns = at_ns
        records.append(record)
    for sequence, record in enumerate(records):
        record.sequence = sequence
    return records


def _templates(random: Random) -> list[trace_pb2.Record]:
    records = []
    for number in range(1, 6):
        pod = make_pod(labels={"app": random.choice(["web", "db", "job"])}, priority=None)
        pod.metadata.ClearField("name")
        pod.metadata.ClearField("uid")
        pod.spec.priority_class_name = f"tier{random.randrange(3)}"
        request = pod.spec.containers[0].resources.requests
        request["memory"] = f"{random.randrange(1, 5)}Gi"
        if random.random() < 0.3:
            spread = pod.spec.topology_spread_constraints.add(max_skew=1, topology_key="zone")
            spread.when_unsatisfiable = random.choice(["DoNotSchedule", "ScheduleAnyway"])
            spread.label_selector.match_labels["app"] = pod.metadata.labels["app"]
        if random.random() < 0.2:
            affinity = pod.spec.affinity.pod_anti_affinity
            term = affinity.required_during_scheduling_ignored_during_execution.add()
            term.topology_key = "kubernetes.io/hostname"
            term.label_selector.match_labels["app"] = "db"
        records.append(trace_pb2.Record(template=trace_pb2.Template(id=number, pod=pod)))
    return records


def _pod(random: Random, number: int, grain_ns: int, crowd: float) -> trace_pb2.Record:
    pod = make_pod(f"p{number}", priority=None)
    pod.spec.Clear()
    owned = random.random() < 0.05
    if owned:
        pod.metadata.owner_references.add(
            kind="ReplicaSet", name="owner", uid="uid-owner", controller=True
        )
    life: dict[str, int | bool] = {}
    if random.random() < 0.7:
        life["start_delay_duration_ns"] = random.choice([0, 1, 3]) * grain_ns
    if random.random() < 0.9:
        life["service_duration_ns"] = int(crowd * random.randrange(0, 40)) * grain_ns
    if random.random() < 0.1:
        life["exit_code"] = random.choice([0, 1])
    record = create_pod(pod, **life)
    if random.random() < 0.95:
        record.pod_create.template_id = random.randrange(1, 6)
        record.pod_create.pod.metadata.ClearField("labels")
    else:
        record.pod_create.pod.spec.containers.add(name="c")
    if random.random() < 0.03:
        record.pod_create.pod.spec.node_name = "n0"
    return record


def _rare(random: Random, nodes: Sequence[object], pods: int) -> trace_pb2.Record:
    """Return something that ends a window."""
    name = f"n{random.randrange(len(nodes))}"
    match random.randrange(8):
        case 0:
            return delete("Pod", f"p{random.randrange(pods)}")
        case 1:
            return delete("Node", name)
        case 2:
            return create(make_node(f"new{random.randrange(1 << 30)}", "8Gi"))
        case 3:
            kind = random.choice(trace_pb2.NodeActionType.values()[1:])
            return trace_pb2.Record(node_action=trace_pb2.NodeAction(node_name=name, type=kind))
        case 4:
            return create(make_budget("of-db", max_unavailable=1, labels={"app": "db"}))
        case 5:
            return create(make_deployment(f"d{random.randrange(3)}", random.randrange(1, 4)))
        case 6:
            return create(make_quota({"pods": str(random.randrange(2, 20))}))
        case _:
            return update(make_node(name, f"{random.randrange(8, 20)}Gi"))


def _check(foreseen: Foreseen, round_: scheduler_pb2.Round) -> None:
    """Hold that a round is the one that was foreseen, to the last field."""
    foreseen_events = [*foreseen.confirmations, *foreseen.round.events]
    for foreseen_event, event in zip(foreseen_events, round_.events, strict=True):
        if event.patch.node_name and foreseen_event.patch.HasField("confirms_binding"):
            foreseen_event.patch.node_name = event.patch.node_name
        assert foreseen_event == event
    assert foreseen.round.time_ns == round_.time_ns


@settings(max_examples=10)
@given(
    seed=st.integers(0, 2**16),
    rules=st.sampled_from(["v1.34", "v1.34", "v1.36", "v1.16"]),
    batch_size=st.sampled_from([0, 1, 1000]),
    cut=st.booleans(),
    spans=st.sampled_from([NO_SPANS, NO_SPANS, Sampling(1.0)]),
    ended_pods_max=st.sampled_from([0, 10, 12_500]),
)
def test_windows_change_no_decision(
    here: EmbeddedServices,
    tmp_path_factory: pytest.TempPathFactory,
    *,
    seed: int,
    rules: str,
    batch_size: int,
    cut: bool,
    spans: Sampling,
    ended_pods_max: int,
) -> None:
    """Nor do they change what is written down of the rounds; cut at random or not."""
    folder = tmp_path_factory.mktemp("runs")
    models = Models(ended_pods_max=ended_pods_max)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SchedulerService, "takes_windows", False)
        alone = run(here, workload(seed), folder / "alone", rules=rules, models=models)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(look_ahead, "_check_foreseen", _check)
        if cut:
            _cut_at_random(patched, seed)
        together = run(
            here,
            workload(seed),
            folder / "windows",
            rules=rules,
            models=models,
            batch_size=batch_size,
            sampling=spans,
        )
    assert _left(alone) == _left(together)


def _every_third_node_less(args: Json) -> Json:
    """Refuse a pod a third of the nodes, one third to each pod."""
    turn = zlib.crc32(args["Pod"]["metadata"]["name"].encode()) % 3
    passed = [name for name in args["NodeNames"] if zlib.crc32(name.encode()) % 3 != turn]
    gone = [name for name in args["NodeNames"] if name not in passed]
    return {"NodeNames": passed, "FailedNodes": dict.fromkeys(gone, "not this one")}


@settings(max_examples=3)
@given(seed=st.integers(0, 2**16))
def test_with_an_extender_no_transport_batch_or_span_changes_a_decision(
    here: EmbeddedServices,
    services: EmbeddedServices,
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
) -> None:
    """No window is sent then, since nobody can foresee the answers of an extender."""
    folder = tmp_path_factory.mktemp("runs")
    with webhook(filter=_every_third_node_less) as hook:
        fields = "filterVerb: filter, nodeCacheCapable: true"
        configuration = extender(hook.url, fields)
        records = workload(seed, pods=15)
        one = run(here, records, folder / "one", batch_size=1, configuration=configuration)
        many = run(
            here,
            records,
            folder / "many",
            batch_size=1000,
            sampling=Sampling(1.0),
            configuration=configuration,
        )
        over_grpc = run(services, records, folder / "grpc", configuration=configuration)
    assert hook.asked("filter")
    assert _left(one) == _left(many) == _left(over_grpc)


def _cut_at_random(patched: pytest.MonkeyPatch, seed: int) -> None:
    random, foresee = Random(seed), Windows.foresee  # noqa: S311 - chance makes the cases

    def cut(self: Windows, *arguments: object) -> None:
        patched.setattr(windows, "ROUNDS_MAX", random.randrange(1, 9))
        foresee(self, *arguments)  # type: ignore[arg-type] # those of foresee

    patched.setattr(Windows, "foresee", cut)


def _left(finished: FinishedReplay) -> tuple[bytes, list[scheduler_pb2.Round]]:
    """Return a run's decisions and rounds."""
    decisions = (finished.run.path / "decisions.jsonl").read_bytes()
    return decisions, list(finished.run.rounds())


@pytest.fixture
def rounds_sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of rounds in each message, as they are sent."""
    sizes: list[int] = []
    send_round = SchedulerService.send_round

    def counted(
        self: SchedulerService, round_: scheduler_pb2.Round, request: RunRoundRequest
    ) -> None:
        sizes.append(1 + len(request.window))
        send_round(self, round_, request)

    monkeypatch.setattr(SchedulerService, "send_round", counted)
    return sizes


def test_windows_are_long_where_pods_are_their_own(
    services: EmbeddedServices, tmp_path: Path, rounds_sent: list[int]
) -> None:
    """Over gRPC: hundreds of pods in a few messages, their starts and ends among them."""
    records = [trace_pb2.Record(header=trace_pb2.Header(format_version=2))]
    records += [create(make_node(f"n{index}", "64Gi")) for index in range(20)]
    for number in range(700):
        record = create_pod(
            make_pod(f"p{number}"), start_delay_duration_ns=S, service_duration_ns=30 * S
        )
        record.time_ns = (number + 1) * 100 * MS
        records.append(record)
    run(services, records, tmp_path / "run")
    assert max(rounds_sent) > 200
    assert len(rounds_sent) < 14


def test_windows_are_short_where_pods_are_refused_again_and_again(
    here: EmbeddedServices, tmp_path: Path, rounds_sent: list[int]
) -> None:
    """Each preempts before it is bound; little is foreseen in vain."""
    records = [trace_pb2.Record(header=trace_pb2.Header(format_version=2))]
    records += [create(make_node(f"n{index}", "1Gi")) for index in range(40)]
    records += [create_pod(make_pod(f"low{number}", grace_s=1)) for number in range(40)]
    for number in range(40):
        record = create_pod(make_pod(f"high{number}", priority=10))
        record.time_ns = (number + 1) * 10 * S
        records.append(record)
    finished = run(here, records, tmp_path / "run")
    assert finished.summary.decided.preempted == 40
    assert sum(rounds_sent) < len(rounds_sent) + 60


def test_a_window_ends_before_more_waits_than_a_message_holds(
    here: EmbeddedServices, tmp_path: Path, rounds_sent: list[int]
) -> None:
    """Thousands of pods end between two that come: the world tells of that by itself."""
    records = [trace_pb2.Record(header=trace_pb2.Header(format_version=2))]
    records += [create(make_node(f"n{index}", "256Gi")) for index in range(25)]
    for number, at_s in enumerate([*[0] * 2100, 5, 60, 61]):
        pod = make_pod(f"p{number}")
        pod.spec.containers[0].resources.requests["memory"] = "1Mi"
        record = create_pod(pod, service_duration_ns=10 * S)
        record.time_ns = at_s * S
        records.append(record)
    finished = run(here, records, tmp_path / "run")
    assert finished.summary.decided.bound == 2103
    assert max(rounds_sent) > 1
