"""Resizes in place: the kubelet's decision, and what counts while it is pending."""

from __future__ import annotations

import pytest

from replay.world.api.cluster import Cluster
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from services.kube.requests import requests_in_force
from services.rpc.kube.codec import pod_from_message
from services.rpc.kube.spec import PodSpecInterner
from tests.unit.world.builders import (
    S,
    World,
    create,
    create_pod,
    delete,
    make_node,
    make_pod,
    update,
)

GI = 1 << 30


def small_node() -> node_pb2.Node:
    """Return a node of 4 Gi."""
    return make_node("n", "4Gi")


def running(name: str, **options: object) -> pod_pb2.Pod:
    """Return a pod of 1 Gi that runs on the node."""
    return make_pod(name, node="n", ready=True, **options)  # type: ignore[arg-type] # by name


def resized(world: World, name: str, memory: str) -> pod_pb2.Pod:
    """Return a user's update of a pod's memory request."""
    message = pod_pb2.Pod()
    message.CopyFrom(world.pod(name).message)
    message.spec.containers[0].resources.requests["memory"] = memory
    return message


def pending(world: World, name: str) -> tuple[str, str] | None:
    """Return reason and message of the condition PodResizePending."""
    for condition in world.pod(name).message.status.conditions:
        if condition.type == "PodResizePending":
            assert condition.status == "True"
            return condition.reason, condition.message
    return None


def in_force(world: World, name: str) -> int:
    """Return the memory, in Gi, with which the scheduler counts a pod."""
    pod = pod_from_message(world.pod(name).message, PodSpecInterner())
    return requests_in_force(pod)["memory"] // GI


def allocated(world: World, name: str) -> str:
    """Return what the container's status says, which must agree with what is in force."""
    (container,) = world.pod(name).message.status.container_statuses
    assert container.resources.requests["memory"] == container.allocated_resources["memory"]
    return container.resources.requests["memory"]


def test_a_resize_that_fits_is_allocated_and_leaves_no_condition() -> None:
    """The status says so; the scheduler receives one update with spec and one with status."""
    world = World()
    world.feed(0, create(small_node()), create_pod(running("p")))
    world.events()
    world.feed(S, update(resized(world, "p", "3Gi")))
    assert (pending(world, "p"), allocated(world, "p"), in_force(world, "p")) == (None, "3Gi", 3)
    assert world.events() == ["update", "update"]
    world.feed(2 * S, update(resized(world, "p", "2Gi")))
    assert (allocated(world, "p"), in_force(world, "p")) == ("2Gi", 2)


def test_a_resize_beyond_the_node_is_infeasible_and_does_not_count() -> None:
    """As `kubectl get pod -o yaml` prints it; a feasible one ends it."""
    world = World()
    world.feed(0, create(small_node()), create_pod(running("p")))
    world.feed(S, update(resized(world, "p", "5Gi")))
    text = "Node didn't have enough capacity: memory, requested: 5368709120, capacity: 4294967296"
    assert pending(world, "p") == ("Infeasible", text)
    assert (allocated(world, "p"), in_force(world, "p")) == ("1Gi", 1)
    world.feed(2 * S, update(resized(world, "p", "4Gi")))
    assert (pending(world, "p"), allocated(world, "p"), in_force(world, "p")) == (None, "4Gi", 4)


def test_a_resize_without_room_is_deferred_until_another_pod_goes() -> None:
    """What is requested counts for the scheduler meanwhile, so that nobody takes the room."""
    world = World()
    world.feed(0, create(small_node()), create_pod(running("p")), create_pod(running("q")))
    world.feed(S, update(resized(world, "p", "4Gi")))
    text = (
        "Node didn't have enough resource: memory, requested: 4294967296, used: 1073741824, "
        "capacity: 4294967296"
    )
    assert pending(world, "p") == ("Deferred", text)
    assert (allocated(world, "p"), in_force(world, "p")) == ("1Gi", 4)
    world.feed(2 * S, delete("Pod", "q", grace_s=0))
    assert (pending(world, "p"), allocated(world, "p"), in_force(world, "p")) == (None, "4Gi", 4)


def test_a_reverted_resize_changes_nothing() -> None:
    """The kubelet has allocated nothing else meanwhile."""
    world = World()
    world.feed(0, create(small_node()), create_pod(running("p")), create_pod(running("q")))
    world.feed(S, update(resized(world, "p", "4Gi")))
    world.feed(2 * S, update(resized(world, "p", "1Gi")))
    assert (pending(world, "p"), allocated(world, "p"), in_force(world, "p")) == (None, "1Gi", 1)
    assert world.pod("p").allocated is None


def test_of_deferred_resizes_the_pod_of_the_highest_priority_is_first() -> None:
    """Then the one that has waited longest; a shrinking one would have come before."""
    world = World()
    pods = (running("a"), running("b", priority=5), running("c"), running("d"))
    world.feed(0, create(small_node()), *(create_pod(pod) for pod in pods))
    for second, name in enumerate("abc", start=1):
        world.feed(second * S, update(resized(world, name, "2Gi")))
    assert [pending(world, name) is None for name in "abc"] == [False, False, False]
    world.feed(5 * S, delete("Pod", "d", grace_s=0))
    assert [pending(world, name) is None for name in "abc"] == [False, True, False]
    world.feed(6 * S, update(resized(world, "b", "1Gi")))
    assert [pending(world, name) is None for name in "abc"] == [True, True, False]


def test_a_trace_may_begin_with_a_deferred_resize() -> None:
    """Its status says what is allocated; it is tried again with the first change."""
    world = World()
    pod = running("p")
    pod.spec.containers[0].resources.requests["memory"] = "4Gi"
    pod.status.conditions.add(type="PodResizePending", status="True", reason="Deferred")
    status = pod.status.container_statuses.add(name="c", ready=True)
    status.resources.requests["memory"] = status.allocated_resources["memory"] = "1Gi"
    world.feed(0, create(small_node()), create_pod(running("q")), create_pod(pod))
    assert (pending(world, "p") or ("",))[0] == "Deferred"
    assert (allocated(world, "p"), in_force(world, "p")) == ("1Gi", 4)
    world.feed(S, delete("Pod", "q", grace_s=0))
    assert (pending(world, "p"), allocated(world, "p")) == (None, "4Gi")


def test_a_trace_may_begin_with_a_resize_in_progress() -> None:
    """It takes no time here."""
    world = World()
    pod = running("p")
    pod.status.conditions.add(type="PodResizeInProgress", status="True")
    pod.status.container_statuses.add(name="c", ready=True).resources.requests["memory"] = "3Gi"
    world.feed(0, create(small_node()), create_pod(pod))
    assert (allocated(world, "p"), in_force(world, "p")) == ("1Gi", 1)
    assert all(
        condition.type != "PodResizeInProgress"
        for condition in world.pod("p").message.status.conditions
    )


def test_a_static_pod_is_not_resized() -> None:
    """Its mirror says that it is infeasible."""
    world = World()
    pod = running("p")
    pod.metadata.annotations["kubernetes.io/config.mirror"] = "x"
    world.feed(0, create(small_node()), create_pod(pod))
    world.feed(S, update(resized(world, "p", "2Gi")))
    assert pending(world, "p") == ("Infeasible", "In-place resize of static-pods is not supported")


@pytest.mark.parametrize("memory", ["4Gi", "5Gi"])
def test_a_kubelet_counts_what_it_has_allocated(memory: str) -> None:
    """A pod that comes while a resize is deferred or infeasible finds the room that is left."""
    world = World()
    world.feed(0, create(small_node()), create_pod(running("p")), create_pod(running("q")))
    world.feed(S, update(resized(world, "p", memory)))
    assert isinstance(world.cluster, Cluster)
    late = make_pod("late", node="n")
    late.spec.containers[0].resources.requests["memory"] = "2Gi"
    world.feed(2 * S, create_pod(late))
    world.run_until(3 * S)
    assert world.pod("late").message.status.phase == "Running"
    assert world.pod("p").kubelet_message.spec.containers[0].resources.requests["memory"] == "1Gi"
