"""When pods become ready."""

from __future__ import annotations

import pytest

from replay.world.api.pod_record import PodRecord
from replay.world.models import Models
from tests.unit.world.builders import S, World, create, create_pod, delete, make_node, make_pod
from tests.unit.world.workloads.builders import place

TYPES = ("ContainersReady", "Ready")


def states(pod: PodRecord) -> dict[str, tuple[str, str]]:
    """Return status and reason of both conditions of readiness, as far as the pod has them."""
    return {
        condition.type: (condition.status, condition.reason)
        for condition in pod.message.status.conditions
        if condition.type in TYPES
    }


def running(*, model_s: int = 0, **life: int | bool) -> World:
    """Return a world in which a pod's containers run from 0 on."""
    world = World(models=Models(ready_delay_ns=model_s * S))
    world.feed(0, create(make_node()), create_pod(make_pod(), **life))
    place(world, 0)
    return world


def test_a_pod_is_ready_once_it_runs_by_default() -> None:
    """No condition is added, so that nothing else changes."""
    assert states(running().pod("p")) == {"Ready": ("True", "")}


@pytest.mark.parametrize(
    ("model_s", "life"),
    [(10, {}), (5, {"ready_delay_duration_ns": 10 * S}), (0, {"ready_delay_duration_ns": 10 * S})],
)
def test_a_pod_becomes_ready_after_its_annotated_delay_or_the_models(
    model_s: int, life: dict[str, int]
) -> None:
    """Until then both conditions are False, and its container is not ready."""
    world = running(model_s=model_s, **life)
    pod = world.pod("p")
    waits = ("False", "ContainersNotReady")
    for until_s, expected in ((9, waits), (10, ("True", ""))):
        world.run_until(until_s * S)
        assert states(pod) == dict.fromkeys(TYPES, expected)
        (container,) = pod.message.status.container_statuses
        assert (container.ready, pod.message.status.phase) == (expected != waits, "Running")
    assert pod.ready_ns == 10 * S


def test_an_annotated_delay_of_0_makes_a_pod_ready_at_once() -> None:
    """A recorded value takes precedence."""
    assert running(model_s=10, ready_delay_duration_ns=0).pod("p").is_ready


def test_a_restarted_pod_waits_again() -> None:
    """Its containers exit at 15 s; they run again at once, and are ready at 25 s."""
    world = running(model_s=10, service_duration_ns=15 * S, exit_code=1)
    pod = world.pod("p")
    seen = []
    for until_s in (14, 15, 24, 25, 29):
        world.run_until(until_s * S)
        seen.append((until_s, pod.is_ready))
    assert seen == [(14, True), (15, False), (24, False), (25, True), (29, True)]
    assert states(pod)["ContainersReady"] == ("True", "")


def test_a_pod_that_ends_before_it_is_ready_never_becomes_so() -> None:
    """Nothing is planned for it any more."""
    world = running(model_s=10)
    world.feed(5 * S, delete("Pod", "p", grace_s=1))
    world.run_until(100 * S)
    assert (world.names(), len(world.timeline)) == ([], 0)


@pytest.mark.parametrize(("started_s", "becomes"), [(95, True), (50, False)])
def test_a_pod_of_a_snapshot_that_is_not_ready_becomes_so_when_its_time_is_over(
    started_s: int, becomes: bool
) -> None:
    """One that should have been ready long before stays as it is: its probe fails."""
    world = World(models=Models(ready_delay_ns=10 * S))
    pod = make_pod(node="n", ready=True)
    next(
        condition for condition in pod.status.conditions if condition.type == "Ready"
    ).status = "False"
    pod.status.start_time.FromSeconds(started_s)
    world.feed(100 * S, create(make_node()), create_pod(pod))
    world.run_until(104 * S)
    assert not world.pod("p").is_ready
    world.run_until(200 * S)
    assert world.pod("p").is_ready == becomes


def test_an_annotation_sets_when_a_pod_becomes_ready_or_that_it_never_does() -> None:
    """A text that is neither is refused."""
    world = World()
    world.feed(0, create(make_node()))
    for name, text in (("soon", "3s"), ("broken", "never"), ("odd", "sometimes")):
        pod = make_pod(name)
        pod.metadata.annotations["reprieve/ready-delay"] = text
        world.feed(0, create_pod(pod))
    place(world, 0)
    world.run_until(1000 * S)
    assert [(name, world.pod(name).ready_ns) for name in world.names()] == [
        ("soon", 3 * S),
        ("broken", None),
    ]
    assert "sometimes" in world.refusals()[0]


def test_a_node_that_reports_again_makes_no_pod_ready_that_was_not() -> None:
    """What was ready before is ready again."""
    world = World()
    node = make_node()
    node.metadata.annotations.update({"reprieve/fail-at": "5s", "reprieve/recover-at": "100s"})
    ready, broken = create_pod(make_pod("a")), create_pod(make_pod("b"), ready_delay_duration_ns=-1)
    world.feed(0, create(node), ready, broken)
    place(world, 0)
    for until_s, is_ready in ((4, True), (99, False), (110, True)):
        world.run_until(until_s * S)
        assert [world.pod(name).is_ready for name in "ab"] == [is_ready, False]
