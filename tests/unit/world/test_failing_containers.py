"""Pods of a list whose containers cannot run stay as they are; those that have exited restart."""

from __future__ import annotations

import pytest

from reprieve.kube.v1beta1 import pod_pb2
from services.rpc.kube.fields import set_time
from tests.unit.world.builders import S, World, create, create_pod, make_node, make_pod


def failing(reason: str, *, init: bool = False) -> pod_pb2.Pod:
    """Return a pod on node n, one of whose containers waits for a reason."""
    pod = make_pod("p", node="n")
    pod.status.phase = "Pending"
    statuses = pod.status.init_container_statuses if init else pod.status.container_statuses
    statuses.add(name="c").state.waiting.reason = reason
    return pod


@pytest.mark.parametrize("init", [False, True])
@pytest.mark.parametrize("reason", ["ImagePullBackOff", "CreateContainerConfigError"])
def test_a_pod_whose_container_cannot_run_does_not_start(reason: str, *, init: bool) -> None:
    """It stays Pending on its node, where it keeps its room."""
    world = World()
    world.feed(0, create(make_node()), create_pod(failing(reason, init=init)))
    world.run_until(600 * S)
    pod = world.pod("p")
    assert (pod.message.status.phase, pod.running_ns, pod.is_ready) == ("Pending", None, False)
    assert "uid-p" in world.cluster.active_by_node["n"]


def test_a_pod_that_was_being_started_starts() -> None:
    """Its container was created when the list was made."""
    world = World()
    world.feed(0, create(make_node()), create_pod(failing("ContainerCreating")))
    world.run_until(600 * S)
    assert world.pod("p").message.status.phase == "Running"


def test_a_pod_that_started_later_in_its_recording_does_so() -> None:
    """The recording knows more than its first list."""
    world = World()
    pod = create_pod(failing("ImagePullBackOff"), start_delay_duration_ns=5 * S)
    world.feed(0, create(make_node()), pod)
    world.run_until(600 * S)
    assert world.pod("p").running_ns == 5 * S


def exited(exit_code: int, *, restarts: int, ran_s: int = 10, policy: str = "") -> pod_pb2.Pod:
    """Return a running pod whose only container exited at 100 s, after it had run for a while."""
    pod = make_pod("p", node="n", ready=True)
    pod.spec.restart_policy = policy
    del pod.status.conditions[:], pod.status.container_statuses[:]
    pod.status.conditions.add(type="Ready", status="False")
    status = pod.status.container_statuses.add(name="c", restart_count=restarts)
    status.state.terminated.exit_code = exit_code
    set_time(status.state.terminated.finished_at, 100 * S)
    set_time(status.state.terminated.started_at, (100 - ran_s) * S)
    return pod


@pytest.mark.parametrize(
    ("exit_code", "restarts", "ran_s", "policy", "restart_s"),
    [
        (137, 0, 10, "", 101),  # the first restart is at once
        (137, 1, 10, "", 110),
        (1, 3, 10, "OnFailure", 140),
        (137, 3, 700, "", 101),  # it had run for longer than the backoff lasts
        (0, 1, 10, "OnFailure", None),
        (1, 1, 10, "Never", None),
    ],
)
def test_a_container_that_had_exited_restarts_after_its_backoff(
    exit_code: int, restarts: int, ran_s: int, policy: str, restart_s: int | None
) -> None:
    """If its pod's restartPolicy says so; the pod is ready again then."""
    world = World()
    pod = exited(exit_code, restarts=restarts, ran_s=ran_s, policy=policy)
    world.feed(101 * S, create(make_node()), create_pod(pod))
    for at_s in (109, 139, 300):
        world.run_until(at_s * S)
        status = world.pod("p").message.status
        (shown,) = status.container_statuses
        runs = restart_s is not None and restart_s <= at_s
        assert (shown.state.HasField("running"), world.pod("p").is_ready) == (runs, runs)
        assert shown.restart_count == restarts + runs
