"""Pods of a list whose containers cannot run stay as they are, and count as what they are."""

from __future__ import annotations

import pytest

from reprieve.kube.v1beta1 import pod_pb2
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
