"""The life of a pod: seen, running, finished, stopped, evicted, deleted."""

from __future__ import annotations

import pytest

from replay.world.api.pod_record import PodRecord
from replay.world.models import Models
from reprieve.eviction.v1beta1 import eviction_pb2
from tests.unit.world.builders import S, World, create, create_pod, delete, make_node, make_pod


def make_world(
    *, grace_s: int | None = 30, models: Models | None = None, **life: int | bool
) -> tuple[World, PodRecord]:
    """Return a world with a node "n" and, bound to it at 0, a pod "p"."""
    world = World(models=models or Models())
    world.feed(0, create(make_node()), create_pod(make_pod(node="n", grace_s=grace_s), **life))
    return world, world.pod("p")


def evict(world: World, pod: PodRecord, now_ns: int, grace_s: int | None) -> int:
    """Let the kubelet evict a pod."""
    eviction = eviction_pb2.Eviction(reason="Evicted", phase="Failed", message="low on memory")
    if grace_s is not None:
        eviction.grace_period_override_duration_ns = grace_s * S
    eviction.condition.type, eviction.condition.status = "DisruptionTarget", "True"
    return world.lifecycle.evict(now_ns, pod, eviction)


def ready(pod: PodRecord) -> tuple[str, str]:
    """Return status and reason of a pod's condition Ready."""
    condition = next(listed for listed in pod.message.status.conditions if listed.type == "Ready")
    return condition.status, condition.reason


def test_a_pod_runs_once_its_kubelet_has_seen_it_and_ends_after_its_service_time() -> None:
    """Seen at once, running after the start delay, Succeeded after the run."""
    world, pod = make_world(start_delay_duration_ns=2 * S, service_duration_ns=10 * S)
    world.run_until(S)
    status = pod.message.status
    assert (status.phase, status.HasField("start_time"), ready(pod)) == (
        "Pending",
        True,
        ("False", "ContainersNotReady"),
    )
    world.run_until(2 * S)
    assert (status.phase, ready(pod), pod.running_ns) == ("Running", ("True", ""), 2 * S)
    assert status.container_statuses[0].state.HasField("running")
    world.run_until(100 * S)
    assert (status.phase, ready(pod)) == ("Succeeded", ("False", "PodCompleted"))
    assert world.log() == [(2, "started", "p"), (12, "finished", "p")]
    assert world.names() == ["p"]


def test_containers_that_start_at_once_run_in_the_kubelets_first_status() -> None:
    """One change, not two, and the nomination goes with it."""
    world, pod = make_world()
    pod.message.status.nominated_node_name = "n"
    world.events()
    world.run_until(0)
    assert world.events() == ["patch"]
    assert (pod.message.status.phase, pod.message.status.nominated_node_name) == ("Running", "")


def test_a_pod_that_fails_ends_in_failed() -> None:
    """With exit code 1 and the kubelet's reason."""
    world, pod = make_world(service_duration_ns=S, fails=True)
    world.run_until(S)
    assert (pod.message.status.phase, ready(pod)) == ("Failed", ("False", "PodFailed"))
    assert pod.message.status.container_statuses[0].state.terminated.exit_code == 1


def test_a_run_that_was_cut_short_has_no_end() -> None:
    """Its service time is a lower bound only."""
    world, pod = make_world(service_duration_ns=S, censored=True)
    world.run_until(100 * S)
    assert pod.message.status.phase == "Running"


def test_a_recorded_start_delay_beats_the_model() -> None:
    """Even one of 0."""
    world, pod = make_world(models=Models(start_delay_ns=5 * S), start_delay_duration_ns=0)
    world.run_until(0)
    assert pod.running_ns == 0
    world, pod = make_world(models=Models(start_delay_ns=5 * S))
    world.run_until(100 * S)
    assert pod.running_ns == 5 * S


def test_a_pod_without_a_node_is_deleted_at_once() -> None:
    """No grace, no deletionTimestamp."""
    world = World()
    world.feed(0, create_pod(make_pod()))
    world.events()
    world.feed(1, delete("Pod", "p"))
    assert (world.names(), world.events()) == ([], ["remove"])
    assert world.cluster.pending == {}


def test_a_running_pod_terminates_for_its_grace_period_and_is_killed() -> None:
    """Exit code 137, Failed, then gone."""
    world, pod = make_world()
    world.run_until(S)
    world.feed(S, delete("Pod", "p"))
    meta = pod.message.metadata
    assert (meta.deletion_timestamp.ToNanoseconds(), meta.deletion_grace_period_seconds) == (
        31 * S,
        30,
    )
    world.run_until(31 * S - 1)
    assert world.names() == ["p"]
    world.events()
    world.run_until(31 * S)
    assert (pod.message.status.phase, world.names()) == ("Failed", [])
    assert pod.message.status.container_statuses[0].state.terminated.exit_code == 137
    assert world.events() == ["patch", "remove"]
    assert world.entries[-1].observed.removed.cause == "deleted"


@pytest.mark.parametrize(
    ("shutdown_s", "end_s", "phase"), [(0, 1, "Succeeded"), (5, 6, "Succeeded"), (30, 31, "Failed")]
)
def test_a_pod_that_stops_by_itself_within_its_grace_period_succeeds(
    shutdown_s: int, end_s: int, phase: str
) -> None:
    """One that takes all of it was killed."""
    world, pod = make_world(shutdown_duration_ns=shutdown_s * S)
    world.run_until(S)
    world.feed(S, delete("Pod", "p"))
    world.run_until(100 * S)
    assert world.entries[-1].time_ns == end_s * S
    assert pod.message.status.phase == phase


def test_a_grace_period_of_0_takes_the_pod_away_at_once() -> None:
    """The API server does not wait for the kubelet."""
    world, _ = make_world()
    world.run_until(S)
    world.events()
    world.feed(S, delete("Pod", "p", grace_s=0))
    assert (world.names(), world.events(), len(world.timeline)) == ([], ["remove"], 0)


def test_a_negative_grace_period_counts_as_1_s() -> None:
    """As the API server takes it."""
    world, pod = make_world(grace_s=-1)
    world.run_until(0)
    world.feed(0, delete("Pod", "p"))
    assert pod.message.metadata.deletion_grace_period_seconds == 1


def test_a_pod_that_has_ended_is_deleted_at_once() -> None:
    """Whatever its grace period."""
    world, _ = make_world(service_duration_ns=S)
    world.run_until(5 * S)
    world.feed(5 * S, delete("Pod", "p"))
    assert world.names() == []


def test_a_pod_deleted_before_its_containers_run_has_nothing_to_wait_for() -> None:
    """Whether its kubelet has seen it or not; it never runs and ends in Failed."""
    world, pod = make_world(start_delay_duration_ns=10 * S)
    world.run_until(2 * S)
    world.feed(2 * S, delete("Pod", "p"))
    world.run_until(2 * S)
    assert (pod.message.status.phase, world.names(), pod.running_ns) == ("Failed", [], None)
    world.run_until(100 * S)
    assert world.log() == [(2, "finished", "p"), (2, "removed", "p")]


def test_a_shorter_grace_period_replaces_a_longer_one() -> None:
    """The timestamp counts from the first request, the containers get the new period from now."""
    world, pod = make_world()
    world.run_until(0)
    world.feed(0, delete("Pod", "p"))
    world.feed(2 * S, delete("Pod", "p", grace_s=5))
    assert pod.message.metadata.deletion_timestamp.ToNanoseconds() == 5 * S
    world.feed(3 * S, delete("Pod", "p", grace_s=9))
    world.feed(3 * S, delete("Pod", "p"))
    assert pod.message.metadata.deletion_grace_period_seconds == 5
    world.run_until(100 * S)
    assert world.entries[-1].time_ns == 7 * S


def test_a_shorter_grace_period_that_is_over_already_becomes_1_s_from_now() -> None:
    """A deletionTimestamp never lies in the past."""
    world, pod = make_world()
    world.run_until(0)
    world.feed(0, delete("Pod", "p"))
    world.feed(20 * S, delete("Pod", "p", grace_s=5))
    meta = pod.message.metadata
    assert (meta.deletion_timestamp.ToNanoseconds(), meta.deletion_grace_period_seconds) == (
        20 * S,
        1,
    )
    world.run_until(100 * S)
    assert world.entries[-1].time_ns == 21 * S


def test_a_forced_deletion_of_a_terminating_pod_takes_it_away_at_once() -> None:
    """And nothing of it is left to come."""
    world, _ = make_world()
    world.run_until(0)
    world.feed(0, delete("Pod", "p"))
    world.feed(2 * S, delete("Pod", "p", grace_s=0))
    assert (world.names(), len(world.timeline)) == ([], 0)


def test_an_end_that_comes_before_a_shortened_grace_period_stays() -> None:
    """The containers exit by themselves 4 s after they were told to, not 3 s later."""
    world, pod = make_world(shutdown_duration_ns=4 * S)
    world.run_until(0)
    world.feed(0, delete("Pod", "p"))
    world.feed(2 * S, delete("Pod", "p", grace_s=5))
    world.run_until(100 * S)
    assert (world.entries[-1].time_ns, pod.message.status.phase) == (4 * S, "Succeeded")


def test_a_pod_that_finishes_while_terminating_goes_then() -> None:
    """It does not wait for the rest of its grace period."""
    world, pod = make_world(service_duration_ns=10 * S)
    world.run_until(5 * S)
    world.feed(5 * S, delete("Pod", "p"))
    world.run_until(100 * S)
    assert pod.message.status.phase == "Succeeded"
    assert world.log()[1:] == [(10, "finished", "p"), (10, "removed", "p")]


def test_a_pod_that_finishes_as_it_is_stopped_ends_once() -> None:
    """Two actions of one moment."""
    world, _ = make_world(service_duration_ns=35 * S)
    world.run_until(5 * S)
    world.feed(5 * S, delete("Pod", "p"))
    world.run_until(100 * S)
    assert world.log()[1:] == [(35, "finished", "p"), (35, "removed", "p")]


def test_an_evicted_pod_fails_in_the_kubelets_words_and_stays() -> None:
    """Until then it counts on its node."""
    world, pod = make_world()
    world.run_until(0)
    assert evict(world, pod, S, grace_s=3) == 4 * S
    world.run_until(4 * S - 1)
    assert pod.message.status.phase == "Running"
    assert "p" in [pod.message.metadata.name for pod in world.cluster.active_by_node["n"].values()]
    world.run_until(4 * S)
    status = pod.message.status
    assert (status.phase, status.reason, status.message) == ("Failed", "Evicted", "low on memory")
    assert any(condition.type == "DisruptionTarget" for condition in status.conditions)
    assert (world.names(), world.cluster.active_by_node) == (["p"], {})


def test_an_eviction_without_an_override_gives_the_pods_own_grace_period() -> None:
    """Soft evictions bring their own."""
    world, pod = make_world(grace_s=7)
    world.run_until(0)
    assert evict(world, pod, S, grace_s=None) == 8 * S


def test_a_pod_that_finishes_while_it_is_evicted_counts_as_evicted() -> None:
    """The kubelet writes its words over the phase."""
    world, pod = make_world(service_duration_ns=5 * S)
    world.run_until(0)
    evict(world, pod, 3 * S, grace_s=30)
    world.run_until(100 * S)
    assert (pod.message.status.phase, pod.message.status.reason) == ("Failed", "Evicted")
    assert world.entries[-1].time_ns == 5 * S


def test_a_pod_evicted_while_terminating_is_evicted_and_goes() -> None:
    """The shorter of the two periods counts."""
    world, pod = make_world()
    world.run_until(0)
    world.feed(0, delete("Pod", "p"))
    assert evict(world, pod, 5 * S, grace_s=1) == 6 * S
    world.run_until(100 * S)
    assert (pod.message.status.reason, world.entries[-1].time_ns) == ("Evicted", 6 * S)
    assert world.names() == []


def test_a_pod_evicted_before_it_runs_never_runs() -> None:
    """It has nothing to stop."""
    world, pod = make_world(start_delay_duration_ns=10 * S)
    world.run_until(S)
    assert evict(world, pod, 2 * S, grace_s=30) == 2 * S
    world.run_until(100 * S)
    assert (pod.message.status.reason, pod.running_ns) == ("Evicted", None)


def test_pods_of_a_node_that_goes_are_lost_with_all_that_was_to_come() -> None:
    """Terminal ones too."""
    world, _ = make_world(models=Models(pod_gc_ns=0), service_duration_ns=50 * S)
    world.feed(0, create_pod(make_pod("done", node="n"), service_duration_ns=S))
    world.run_until(5 * S)
    world.events()
    world.feed(5 * S, delete("Node", "n"))
    assert (world.names(), len(world.timeline)) == ([], 0)
    assert world.events() == ["remove"] * 3
    assert {entry.observed.removed.cause for entry in world.entries[-2:]} == {"node-lost"}
    assert (world.cluster.pods_by_node, world.cluster.active_by_node) == ({}, {})


def test_a_recorded_pod_continues_where_it_was() -> None:
    """A running pod's time counts from its recorded start."""
    world = World()
    pod = make_pod(node="n", ready=True)
    pod.status.start_time.FromNanoseconds(2 * S)
    world.feed(5 * S, create(make_node()), create_pod(pod, service_duration_ns=10 * S))
    world.run_until(100 * S)
    assert world.log() == [(12, "finished", "p")]


def test_a_recorded_pod_that_was_terminating_stops_when_it_would_have() -> None:
    """Its grace period began with the recorded request."""
    world = World()
    pod = make_pod(node="n", ready=True)
    pod.metadata.deletion_timestamp.FromNanoseconds(12 * S)
    pod.metadata.deletion_grace_period_seconds = 10
    world.feed(5 * S, create(make_node()), create_pod(pod, shutdown_duration_ns=8 * S))
    world.run_until(100 * S)
    assert world.log() == [(10, "finished", "p"), (10, "removed", "p")]


def test_a_name_that_is_taken_is_refused() -> None:
    """And the pod that has it stays as it is."""
    world, pod = make_world()
    world.feed(1, create_pod(make_pod(node="other")))
    assert (world.refusals(), pod.node_name) == (["pod default/p exists already"], "n")


def test_a_pod_made_again_without_a_uid_is_another_pod() -> None:
    """What was to come of the first does not happen to the second."""
    world = World()
    message = make_pod()
    message.metadata.uid = ""
    uids = []
    for at_ns in (0, 2 * S):
        world.feed(at_ns, create_pod(message, service_duration_ns=5 * S))
        uids.append(world.pod("p").uid)
        world.feed(at_ns + S, delete("Pod", "p"))
    assert len(set(uids)) == 2
    assert message.metadata.uid == ""
