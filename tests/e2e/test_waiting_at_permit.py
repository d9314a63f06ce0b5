"""A plugin that holds pods at Permit in replays: known answers, and checkpoints meanwhile.

The node has 4 Gi; each pod takes 1 Gi. A group of three waits until all of them have a place.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from tests.e2e.replays import ROOT, run
from tests.e2e.test_scheduler_checkpoints import Talker
from tests.unit.world.builders import S, create, create_pod, delete, make_node, make_pod

pytestmark = pytest.mark.e2e
CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: PodGroups}]}}
"""
GIVES_UP = "0/1 nodes are available: 1 its group gives up."
TIMED_OUT = (
    "0/1 nodes are available: 1 rejected due to timeout after waiting 30s at plugin PodGroups."
)


@pytest.fixture(scope="module")
def grouped() -> Iterator[EmbeddedServices]:
    """Start services with the plugin."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRIEVE_PLUGINS", "tests.pod_groups:PodGroups")
        patch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'gen'}")
        with EmbeddedServices() as embedded:
            yield embedded


def member(name: str, *, priority: int = 0, memory: str = "1Gi") -> pod_pb2.Pod:
    """Return a pod of the group."""
    labels = {"group": "g", "members": "3"}
    return pod(name, memory, priority=priority, labels=labels)


def pod(
    name: str, memory: str = "1Gi", *, priority: int = 0, labels: dict[str, str] | None = None
) -> pod_pb2.Pod:
    """Return a pod that takes so much."""
    made = make_pod(name, priority=priority, labels=labels, grace_s=0)
    made.spec.containers[0].resources.requests["memory"] = memory
    return made


def at(seconds: int, record: trace_pb2.Record) -> trace_pb2.Record:
    """Return a record of that time."""
    record.time_ns = seconds * S
    return record


def played(
    services: EmbeddedServices, folder: Path, *records: trace_pb2.Record, batch_size: int = 0
) -> tuple[list[tuple[int, str, str]], list[scheduler_pb2.Round]]:
    """Return bindings and refusals (seconds, pod, node or message), and the rounds."""
    header = trace_pb2.Record(header=trace_pb2.Header(format_version=2))
    finished = run(
        services,
        [header, create(make_node("n", "4Gi")), *records],
        folder,
        configuration=CONFIGURATION,
        batch_size=batch_size,
    )
    log = []
    for decision in finished.run.decisions():
        seconds, observed = decision.time_ns // S, decision.observed
        if observed.HasField("scheduled"):
            log.append((seconds, observed.object.name, observed.scheduled.node_name))
        elif observed.HasField("failed_scheduling"):
            log.append((seconds, observed.object.name, observed.failed_scheduling.message))
    return log, list(finished.run.rounds())


GROUP_COMES = (
    create_pod(member("g-1")),
    create_pod(member("g-2")),
    at(10, create_pod(member("g-3"))),
)


@pytest.mark.parametrize("batch_size", [1, 256])
def test_a_group_is_bound_when_its_last_pod_has_a_place(
    grouped: EmbeddedServices, tmp_path: Path, batch_size: int
) -> None:
    """The last one first, then those that waited, in the order of their coming."""
    log, _ = played(grouped, tmp_path / "run", *GROUP_COMES, batch_size=batch_size)
    assert log == [(10, "g-3", "n"), (10, "g-1", "n"), (10, "g-2", "n")]


def test_a_group_that_stays_incomplete_times_out_and_gives_its_places_back(
    grouped: EmbeddedServices, tmp_path: Path
) -> None:
    """`filler` finds 2 Gi taken at 5 s, and is bound when the group gives up."""
    second = at(3, create_pod(member("g-2")))
    records = (GROUP_COMES[0], second, at(5, create_pod(pod("filler", "3Gi"))))
    log, _ = played(grouped, tmp_path / "run", *records)
    assert log[0][:2] == (5, "filler")
    assert "Insufficient memory" in log[0][2]
    assert log[1:4] == [(30, "g-1", TIMED_OUT), (30, "g-2", GIVES_UP), (30, "filler", "n")]


def test_a_pod_that_is_deleted_while_it_waits_gives_its_place_back(
    grouped: EmbeddedServices, tmp_path: Path
) -> None:
    """It does not count for those that come later, and nothing is logged of its attempt."""
    late = [at(6, create_pod(member(f"g-{number}"))) for number in (2, 3, 4)]
    records = (GROUP_COMES[0], at(5, delete("Pod", "g-1", grace_s=0)), *late)
    log, _ = played(grouped, tmp_path / "run", *records)
    assert log == [(6, "g-4", "n"), (6, "g-2", "n"), (6, "g-3", "n")]


def test_a_waiting_pod_that_is_preempted_is_rejected_and_not_deleted(
    grouped: EmbeddedServices, tmp_path: Path
) -> None:
    """`top` needs the whole node; v1.34 tries it again while nothing else is active."""
    records = (*GROUP_COMES[:2], at(5, create_pod(pod("top", "4Gi", priority=1000))))
    log, _ = played(grouped, tmp_path / "run", *records)
    preempted = "0/1 nodes are available: 1 preempted."
    assert [entry[:2] for entry in log[:1]] == [(5, "top")]
    assert log[1:4] == [(5, "g-1", preempted), (5, "g-2", preempted), (5, "top", "n")]


def test_since_v1_36_a_pod_that_waits_is_nominated_to_its_node(
    grouped: EmbeddedServices, tmp_path: Path
) -> None:
    """What a binding clears, or a rejection: the log says so of the latter, the status of both.

    The nomination counts for nobody twice: `filler` takes what the group leaves.
    """
    header = trace_pb2.Record(header=trace_pb2.Header(format_version=2))
    waits = [create(make_node("n", "4Gi")), *GROUP_COMES[:2], create_pod(pod("filler", "2Gi"))]
    finished = run(
        grouped, [header, *waits], tmp_path / "run", configuration=CONFIGURATION, rules="v1.36"
    )
    log = [
        (decision.time_ns // S, decision.observed.object.name, decision.observed)
        for decision in finished.run.decisions()
        if decision.observed.WhichOneof("observed") in {"nominated", "scheduled"}
    ]
    named = [
        (seconds, name, observed.nominated.node_name)
        for seconds, name, observed in log
        if observed.HasField("nominated")
    ]
    assert named[:4] == [(0, "g-1", "n"), (0, "g-2", "n"), (30, "g-1", ""), (30, "g-2", "")]
    assert [entry[:2] for entry in log if entry[2].HasField("scheduled")] == [(0, "filler")]


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_session_restored_while_pods_wait_decides_the_same(
    grouped: EmbeddedServices, tmp_path: Path, is_complete: bool
) -> None:
    """Restored before each round; the time-outs go on, and the plugin finds its pods."""
    records = (*GROUP_COMES[: 2 + is_complete], at(5, create_pod(pod("filler", "3Gi"))))
    _, rounds = played(
        grouped, tmp_path / "run", *sorted(records, key=lambda round_: round_.time_ns)
    )
    config = scheduler_pb2.SchedulerConfig(
        rules="v1.34", kube_scheduler_configuration=CONFIGURATION
    )
    address = grouped.addresses["scheduler"]
    whole, moved = Talker(address, config), Talker(address, config)
    waiting = 0
    for round_ in rounds:
        chunks = moved.saved()
        moved.close()
        moved.restore(chunks)
        assert moved.tell(round_) == whole.tell(round_)
        state = moved.state()
        assert state == whole.state()
        waiting += len(state.assumed)
    assert waiting >= 2
