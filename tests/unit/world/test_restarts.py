"""Containers that exit, images that are pulled, and lives that a manifest describes."""

from __future__ import annotations

import pytest

from replay.world.api.conditions import crash_backoff_ns, runs_again
from replay.world.models import Models
from reprieve.kube.v1beta1 import pod_pb2
from tests.unit.world.builders import S, World, create, create_pod, make_node, make_pod
from tests.unit.world.workloads.builders import make_job, phases, place


def annotated(name: str = "p", policy: str = "", **annotations: str) -> pod_pb2.Pod:
    """Return a pod with annotations such as service_time, bound to node n."""
    pod = make_pod(name, node="n")
    pod.spec.restart_policy = policy
    for key, text in annotations.items():
        pod.metadata.annotations[f"reprieve/{key.replace('_', '-')}"] = text
    return pod


def restarts(world: World, name: str = "p") -> int:
    """Return how often a pod's container was restarted."""
    return world.pod(name).message.status.container_statuses[0].restart_count


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [
        ("", 0, True),
        ("Always", 0, True),
        ("OnFailure", 0, False),
        ("OnFailure", 3, True),
        ("Never", 3, False),
    ],
)
def test_the_restart_policy_decides_which_containers_restart(
    policy: str, code: int, again: bool
) -> None:
    """By the exit code."""
    assert runs_again(policy, code) is again


def test_the_wait_before_a_restart_doubles_up_to_five_minutes() -> None:
    """The first comes at once."""
    seconds = [crash_backoff_ns(number) // S for number in (0, 1, 2, 5, 6, 100)]
    assert seconds == [0, 10, 20, 160, 300, 300]


@pytest.mark.parametrize(("code", "phase"), [("0", "Succeeded"), ("2", "Failed")])
def test_annotations_set_how_long_a_pod_runs_and_how_it_ends(code: str, phase: str) -> None:
    """By annotations, where nothing is restarted."""
    world = World()
    pod = annotated(policy="Never", service_time="30s", exit_code=code)
    world.feed(0, create(make_node()), create_pod(pod))
    world.run_until(30 * S - 1)
    assert phases(world) == {"p": "Running"}
    world.run_until(30 * S)
    assert phases(world) == {"p": phase}
    terminated = world.pod("p").message.status.container_statuses[0].state.terminated
    assert terminated.exit_code == int(code)


def test_containers_run_again_in_place_and_keep_no_replay_going() -> None:
    """At 5 s for the first time; the second time waits for 10 s."""
    world = World()
    world.feed(0, create(make_node()), create_pod(annotated(service_time="5s")))
    world.run_until(5 * S)
    assert (phases(world), restarts(world)) == ({"p": "Running"}, 1)
    world.run_until(10 * S)
    assert (restarts(world), world.pod("p").is_ready, world.timeline.is_idle) == (2, False, True)
    world.run_until(20 * S)
    assert world.pod("p").is_ready
    assert [what for _, what, _ in world.log()].count("started") == 1


def test_a_restarted_container_keeps_how_it_last_ended() -> None:
    """As lastState, with the times of that run."""
    world = World()
    pod = annotated(service_time="5s", exit_code="3")
    world.feed(0, create(make_node()), create_pod(pod))
    world.run_until(10 * S)
    (container,) = world.pod("p").message.status.container_statuses
    last = container.last_state.terminated
    assert (last.exit_code, last.reason) == (3, "Error")
    assert (last.started_at.ToSeconds(), last.finished_at.ToSeconds()) == (5, 10)


def test_a_job_whose_containers_are_restarted_in_place_too_often_fails() -> None:
    """RestartPolicy OnFailure: its one pod is deleted."""
    world = World()
    job = make_job()
    job.spec.backoff_limit = 2
    job.spec.template.spec.restart_policy = "OnFailure"
    job.spec.template.metadata.annotations["reprieve/service-time"] = "5s"
    job.spec.template.metadata.annotations["reprieve/exit-code"] = "1"
    world.feed(0, create(make_node()), create(job))
    place(world, 0)
    world.run_until(100 * S)
    assert ("job-failed", "Job default/work: BackoffLimitExceeded") in world.journal.notes
    assert world.names() == []


def test_the_service_time_model_is_for_pods_that_may_end() -> None:
    """Where nothing else tells; annotations and recorded lives stand before it."""
    world = World(models=Models(service_time_ns=9 * S))
    other = annotated("told", "Never", service_time="1s")
    world.feed(
        0,
        create(make_node()),
        create_pod(annotated("ends", "Never")),
        create_pod(annotated("stays", "Always")),
        create_pod(other),
    )
    world.run_until(S)
    assert phases(world) == {"ends": "Running", "stays": "Running", "told": "Succeeded"}
    world.run_until(1000 * S)
    assert phases(world) == {"ends": "Succeeded", "stays": "Running", "told": "Succeeded"}


def test_a_pod_waits_for_images_that_its_node_does_not_hold() -> None:
    """One is pulled after the other, and each once; a recorded delay stands before the model."""
    world = World(models=Models(image_pull_ns=10 * S, start_delay_ns=S))
    node = make_node(memory="8Gi")
    node.status.images.add(names=["there:latest"])
    pods = {"a": "there", "b": "new", "c": "new:latest", "d": "other"}
    records = []
    for name, image in pods.items():
        pod = make_pod(name, node="n")
        pod.spec.containers[0].image = image
        records.append(create_pod(pod))
    other = make_pod("e", node="n")
    other.spec.containers[0].image = "third"
    world.feed(0, create(node), *records, create_pod(other, start_delay_duration_ns=2 * S))
    world.run_until(100 * S)
    started = {name: at_s for at_s, what, name in world.log() if what == "started"}
    assert started == {"a": 1, "b": 11, "c": 11, "d": 21, "e": 2}


@pytest.mark.parametrize("wrong", [{"service_time": "long"}, {"exit_code": "256"}])
def test_annotations_that_cannot_be_read_refuse_the_pod(wrong: dict[str, str]) -> None:
    """And name what is wrong."""
    world = World()
    world.feed(0, create_pod(annotated(**wrong)))
    assert world.names() == []
    assert "metadata.annotations[reprieve/" in world.refusals()[0]
