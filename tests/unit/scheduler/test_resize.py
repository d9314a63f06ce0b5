"""What a pod holds of its node while its containers are resized."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.framework.snapshot.snapshot import Snapshot
from services.kube.pod import ContainerResources, Pod
from tests.builders import make_node, make_pod


def given(name: str, actual: int, allocated: int) -> ContainerResources:
    """Return a container's CPU, in thousandths."""
    return ContainerResources(name=name, actual=(("cpu", actual),), allocated=(("cpu", allocated),))


def cpu_held(pod: Pod, *, pod_level_resizes: bool = False) -> int:
    """Return what a node counts for the pod."""
    snapshot = Snapshot(pod_level_resizes=pod_level_resizes)
    snapshot.set_node(make_node("n").capacity(cpu="64").obj())
    snapshot.set_pod(pod)
    row = snapshot.row("n")
    assert row is not None
    return int(snapshot.columns.requested[row, 0])


@pytest.mark.parametrize(
    ("actual", "allocated", "reason", "held"),
    [
        (500, 700, "", 1000),
        (1500, 700, "", 1500),
        (500, 1700, "Deferred", 1700),
        (500, 700, "Infeasible", 700),
    ],
)
def test_the_highest_of_requested_actual_and_allocated_counts(
    actual: int, allocated: int, reason: str, held: int
) -> None:
    """What is requested does not, once the node has found it infeasible."""
    builder = make_pod("p").req(cpu="1").node("n")
    if reason:
        builder.condition("PodResizePending", "True", reason)
    pod = replace(builder.obj(), container_resources=(given("c0", actual, allocated),))
    assert cpu_held(pod) == held


def test_sidecars_are_resized_and_other_init_containers_are_not() -> None:
    """An init container has finished by then."""
    pod = make_pod("p").req(cpu="1").init_req(cpu="1", sidecar=True).init_req(cpu="1").node("n")
    statuses = tuple(given(name, 3000, 3000) for name in ("i0", "i1"))
    assert cpu_held(replace(pod.obj(), container_resources=statuses)) == 4000


@pytest.mark.parametrize(
    ("actual", "allocated", "reason", "held"),
    [
        ({"cpu": 500}, {"cpu": 700}, "", 1000),
        ({"cpu": 1500}, {"cpu": 700}, "", 1500),
        ({"cpu": 500}, {"cpu": 1700}, "Deferred", 1700),
        ({"cpu": 500}, {"cpu": 700}, "Infeasible", 700),
        ({}, {}, "Infeasible", 0),
    ],
)
def test_since_v1_36_the_pod_as_a_whole_is_resized(
    actual: dict[str, int], allocated: dict[str, int], reason: str, held: int
) -> None:
    """Of the resources that its spec requests for the pod; v1.34 counts the spec."""
    builder = make_pod("p").req(cpu="300m").pod_req(cpu="1").node("n")
    if reason:
        builder.condition("PodResizePending", "True", reason)
    reported = ContainerResources(
        name="", actual=(*actual.items(), ("memory", 1)), allocated=tuple(allocated.items())
    )
    pod = replace(builder.obj(), pod_resources=reported)
    assert cpu_held(pod, pod_level_resizes=True) == held
    assert cpu_held(pod) == 1000


def test_a_resize_is_noticed_and_undone() -> None:
    """The snapshot takes off what it counted, whatever the pod says when it goes."""
    snapshot = Snapshot()
    snapshot.set_node(make_node("n").capacity(cpu="64").obj())
    pod = make_pod("p").req(cpu="1").node("n").obj()
    snapshot.set_pod(pod)
    snapshot.set_pod(replace(pod, container_resources=(given("c0", 2000, 2000),)))
    row = snapshot.row("n")
    assert snapshot.columns.requested[row, 0] == 2000
    snapshot.remove_pod(pod.uid)
    assert snapshot.columns.requested[row, 0] == 0
