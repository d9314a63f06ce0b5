"""Rollouts of Deployments, with times and sizes that were reasoned by hand.

Pods are bound at once and ready 30 s later; a deleted one takes its whole grace period of 30 s.
"""

from __future__ import annotations

import pytest

from replay.world.api.pod_record import PodRecord
from replay.world.controllers.workloads.deployments import DESIRED, REVISION
from replay.world.controllers.workloads.rolling_update import Bounds, SizedSet, rescaled
from replay.world.models import Models
from reprieve.kube.v1beta1 import workloads_pb2
from tests.unit.world.builders import (
    S,
    World,
    create,
    create_pod,
    make_deployment,
    make_node,
    make_pod,
    make_replica_set,
    update,
)
from tests.unit.world.workloads.builders import place

Sizes = dict[str, int]


def release(
    image: str = "a",
    replicas: int = 4,
    *,
    surge: int | str | None = 1,
    unavailable: int | str | None = 1,
) -> workloads_pb2.Deployment:
    """Return a version of the Deployment, named by its image; None: the default bound."""
    made = make_deployment(replicas=replicas, image=image)
    rolling = made.spec.strategy.rolling_update
    for bound, value in ((rolling.max_surge, surge), (rolling.max_unavailable, unavailable)):
        if isinstance(value, str):
            bound.string_value = value
        elif value is not None:
            bound.int_value = value
    if surge is None and unavailable is None:
        made.spec.ClearField("strategy")
    return made


def image(pod: PodRecord | workloads_pb2.PodTemplateSpec) -> str:
    """Return the image of a pod or a template."""
    holder = pod.message if isinstance(pod, PodRecord) else pod
    return holder.spec.containers[0].image


def sizes(world: World) -> Sizes:
    """Return the replicas of each ReplicaSet by its template's image, without empty ones."""
    sets = world.cluster.replica_sets.values()
    by_image = {image(set_.spec.template): set_.spec.replicas for set_ in sets}
    return {name: size for name, size in sorted(by_image.items()) if size}


def active(world: World) -> Sizes:
    """Return the number of pods that have not ended and do not terminate, by image."""
    by_image: Sizes = {}
    for pod in world.cluster.pods.values():
        if pod.is_active:
            by_image[image(pod)] = by_image.get(image(pod), 0) + 1
    return dict(sorted(by_image.items()))


def live(world: World, from_s: int, until_s: int, *, binds: bool = True) -> list[tuple[int, Sizes]]:
    """Let time pass and bind new pods at once; return the sizes at each time when they changed."""
    seen = [(from_s, sizes(world))]
    at_ns = from_s * S
    while at_ns <= until_s * S:
        world.run_until(at_ns)
        while binds and world.cluster.pending:
            place(world, at_ns)
        if sizes(world) != seen[-1][1]:
            seen.append((at_ns // S, sizes(world)))
        assert active(world) == sizes(world)
        at_ns = world.timeline.next_ns() or (until_s + 1) * S
    return seen


def running(deployment: workloads_pb2.Deployment, *, ready_s: int = 30) -> World:
    """Return a world in which a Deployment's pods are ready, at 100 s."""
    world = World(models=Models(ready_delay_ns=ready_s * S))
    world.feed(0, create(make_node()), create(deployment))
    live(world, 0, 99)
    return world


def test_a_first_replica_set_gets_all_replicas_at_once() -> None:
    """A rollout has nothing to spare."""
    world = World(models=Models(ready_delay_ns=30 * S))
    world.feed(0, create(make_node()), create(release(replicas=50)))
    assert live(world, 0, 99) == [(0, {"a": 50})]


@pytest.mark.parametrize("bound", [1, None, "25%"])
def test_four_replicas_roll_out_with_one_more_and_one_less(bound: int | str | None) -> None:
    """Of 25 % the surge rounds up and the unavailable pods round down: one of each, too.

    At 100 s: 5 pods at most, so 1 new one; 3 must be available, so 1 old one goes; its place is
    taken by a second new one. At 130 s both are ready: 5 are available, 2 old ones go, 2 new ones
    come. At 160 s these are ready and the last old one goes.
    """
    world = running(release(surge=bound, unavailable=bound))
    world.feed(100 * S, update(release("b", surge=bound, unavailable=bound)))
    assert live(world, 100, 300) == [
        (100, {"a": 3, "b": 2}),
        (130, {"a": 1, "b": 4}),
        (160, {"b": 4}),
    ]
    assert list(world.workloads.unfinished_rollouts(300 * S)) == []


def test_without_unavailable_pods_an_old_one_goes_when_a_new_one_is_ready() -> None:
    """One after the other, every 30 s."""
    world = running(release(surge="25%", unavailable=0))
    world.feed(100 * S, update(release("b", surge="25%", unavailable=0)))
    assert live(world, 100, 300) == [
        (100, {"a": 4, "b": 1}),
        (130, {"a": 3, "b": 2}),
        (160, {"a": 2, "b": 3}),
        (190, {"a": 1, "b": 4}),
        (220, {"b": 4}),
    ]


def test_neither_surge_nor_unavailable_pods_means_one_unavailable_pod() -> None:
    """Otherwise nothing could move: an old one goes, and then a new one comes."""
    world = running(release(replicas=2, surge=0, unavailable=0))
    world.feed(100 * S, update(release("b", 2, surge=0, unavailable=0)))
    assert live(world, 100, 300) == [(100, {"a": 1, "b": 1}), (130, {"b": 2})]


def test_min_ready_seconds_delay_each_step() -> None:
    """A pod that is ready at 130 s is available at 140 s."""
    first, second = release(), release("b")
    first.spec.min_ready_seconds = second.spec.min_ready_seconds = 10
    world = running(first)
    world.feed(100 * S, update(second))
    assert live(world, 100, 300) == [
        (100, {"a": 3, "b": 2}),
        (140, {"a": 1, "b": 4}),
        (180, {"b": 4}),
    ]


def test_recreate_makes_new_pods_when_all_old_ones_have_gone() -> None:
    """They terminate for 30 s."""
    first, second = release(), release("b")
    first.spec.strategy.type = second.spec.strategy.type = "Recreate"
    world = running(first)
    world.feed(100 * S, update(second))
    assert live(world, 100, 300) == [(100, {}), (130, {"b": 4})]


def test_a_paused_deployment_rolls_out_once_it_is_resumed() -> None:
    """Meanwhile it scales what it has."""
    world = running(release())
    paused = release("b", 6)
    paused.spec.paused = True
    world.feed(100 * S, update(paused))
    assert live(world, 100, 199) == [(100, {"a": 6})]
    (text,) = world.workloads.unfinished_rollouts(199 * S)
    assert text == (
        "Deployment default/app is paused: its rollout waits, with 0 of 6 pods updated and 6 of "
        "older templates"
    )
    world.feed(200 * S, update(release("b", 6)))
    assert live(world, 200, 400)[0] == (200, {"a": 5, "b": 2})
    assert not list(world.workloads.unfinished_rollouts(400 * S))
    assert sizes(world) == {"b": 6}


@pytest.mark.parametrize("binds", [True, False])
def test_a_release_that_never_becomes_ready_stops_at_the_bounds(binds: bool) -> None:
    """Three old pods stay: by an annotation on the template, or as no node takes the new ones."""
    world = running(release())
    broken = release("b")
    if binds:
        broken.spec.template.metadata.annotations["reprieve/ready-delay"] = "never"
    world.feed(100 * S, update(broken))
    assert live(world, 100, 5000, binds=binds) == [(100, {"a": 3, "b": 2})]
    assert (len(world.timeline), world.timeline.is_idle) == (0, True)
    (text,) = world.workloads.unfinished_rollouts(701 * S)
    assert text == (
        "Deployment default/app is still rolling out at the end: 2 of 4 pods are updated, 3 are of "
        "older templates, 3 are available; its progress deadline was exceeded "
        "(ProgressDeadlineExceeded)"
    )
    (text,) = world.workloads.unfinished_rollouts(700 * S)
    assert text.endswith("3 are available")


def test_scaling_during_a_rollout_is_shared_in_proportion() -> None:
    """The example of the Kubernetes documentation: 10 replicas, 3 more or 2 less, a bad image, 15.

    8 old and 5 new pods are 13 of 13; 18 are allowed: 8 * 18 / 13 = 11.08, 5 * 18 / 13 = 6.9.
    """
    world = running(release(replicas=10, surge=3, unavailable=2))
    broken = release("b", 10, surge=3, unavailable=2)
    broken.spec.template.metadata.annotations["reprieve/ready-delay"] = "never"
    world.feed(100 * S, update(broken))
    assert live(world, 100, 199) == [(100, {"a": 8, "b": 5})]
    broken.spec.replicas = 15
    world.feed(200 * S, update(broken))
    assert sizes(world) == {"a": 11, "b": 7}


@pytest.mark.parametrize(
    ("before", "after", "surge", "old", "shared"),
    [
        (5, 10, 0, (3, 2), (6, 4)),
        (5, 3, 0, (3, 2), (2, 1)),
        (9, 4, 0, (1, 8), (0, 4)),
        (7, 10, 0, (2, 3, 2), (3, 4, 3)),
        (13, 8, 0, (3, 8, 2), (2, 5, 1)),
        (3, 4, 0, (1, 1, 1), (1, 1, 2)),
        (3, 2, 0, (1, 1, 1), (0, 1, 1)),
        (6, 0, 0, (1, 2, 3), (0, 0, 0)),
        (10, 20, 2, (6, 6), (11, 11)),
    ],
)
def test_scaling_has_the_sizes_of_upstreams_cases(
    before: int, after: int, surge: int, old: tuple[int, ...], shared: tuple[int, ...]
) -> None:
    """The oldest ReplicaSet first, the new one last.

    Source: kubernetes v1.34 pkg/controller/deployment/sync_test.go, TestScale.
    """
    assert scaled(before, after, old, surge=surge) == shared


@pytest.mark.parametrize(
    ("after", "old", "shared"),
    [
        # Shares are 3.3, 4.4, 3.3, all rounded to what is there: one pod is left for the largest.
        (11, (3, 4, 3), (3, 5, 3)),
        # 2.7, 3.6, 2.7 are 3, 4, 3: one pod too many is left, and the largest gives it.
        (9, (3, 4, 3), (3, 3, 3)),
        # 3.6, 4.8, 3.6 are one more each, and two come: the largest's, then the newest's.
        (12, (3, 4, 3), (3, 5, 4)),
        # 2.4, 3.2, 2.4 are one less each, and two go: the largest's, then the oldest's.
        (8, (3, 4, 3), (2, 3, 3)),
    ],
)
def test_the_largest_replica_set_goes_first_and_gets_what_rounding_leaves(
    after: int, old: tuple[int, ...], shared: tuple[int, ...]
) -> None:
    """Upstream's own cases have no rounding that falls on sets of unequal sizes."""
    assert scaled(10, after, old) == shared


def scaled(before: int, after: int, old: tuple[int, ...], *, surge: int = 0) -> tuple[int, ...]:
    """Return the sizes of ReplicaSets after a scaling, the oldest first; the last one is new."""
    sets = [
        SizedSet(uid=str(number), replicas=size, desired=before, most=before + surge)
        for number, size in enumerate(old)
    ]
    bounds = Bounds(desired=after, max_surge=surge)
    shared = rescaled(bounds, sets[-1], sets[:-1], rolls=True, pods=sum(old))
    return tuple(shared[set_.uid] for set_ in sets)


def test_a_third_template_replaces_the_pods_of_the_second_first() -> None:
    """Those are not available: c takes their two places at once, then goes on with the old ones."""
    world = running(release())
    world.feed(100 * S, update(release("b")))
    assert live(world, 100, 109) == [(100, {"a": 3, "b": 2})]
    world.feed(110 * S, update(release("c")))
    assert live(world, 110, 300) == [
        (110, {"a": 3, "c": 2}),
        (140, {"a": 1, "c": 4}),
        (170, {"c": 4}),
    ]


def test_a_rollback_goes_to_the_replica_set_that_has_the_template() -> None:
    """Its three pods stay, and one comes back."""
    world = running(release())
    world.feed(100 * S, update(release("b")))
    live(world, 100, 109)
    world.feed(110 * S, update(release("a")))
    assert live(world, 110, 300) == [(110, {"a": 4})]
    revisions = {
        image(replica_set.spec.template): replica_set.metadata.annotations[REVISION]
        for replica_set in world.cluster.replica_sets.values()
    }
    assert revisions == {"a": "3", "b": "2"}


def test_old_pods_that_are_not_available_go_before_any_other() -> None:
    """Two of four old pods lie on a node that has failed: they go at once, the others stay."""
    world = running(release(surge=0, unavailable=2))
    broken = list(world.cluster.pods.values())[:2]
    for pod in broken:
        condition = next(
            condition for condition in pod.message.status.conditions if condition.type == "Ready"
        )
        condition.status = "False"
        world.cluster.status_changed(100 * S, pod)
    world.feed(100 * S, update(release("b", surge=0, unavailable=2)))
    assert sizes(world) == {"a": 2, "b": 2}
    assert all(pod.is_terminating for pod in broken)


def test_a_snapshot_in_the_middle_of_a_rollout_continues_it() -> None:
    """With the sizes of its ReplicaSets: at 30 s the two new pods are ready."""
    world = World(models=Models(ready_delay_ns=30 * S))
    deployment = release("b")
    records = [create(make_node()), create(deployment)]
    for name, size, is_ready in (("a", 3, True), ("b", 2, False)):
        recorded = make_replica_set(f"app-{name}", replicas=size)
        recorded.spec.template.CopyFrom(release(name).spec.template)
        recorded.metadata.owner_references.add(
            kind="Deployment", name="app", uid="uid-app", controller=True
        )
        recorded.metadata.annotations[DESIRED] = "4"
        records.append(create(recorded))
        for number in range(size):
            pod = make_pod(f"{name}-{number}", owner=f"app-{name}", node="n", ready=is_ready)
            pod.spec.containers[0].image = name
            records.append(create_pod(pod))
    world.feed(0, *records)
    assert live(world, 0, 200) == [(0, {"a": 3, "b": 2}), (30, {"a": 1, "b": 4}), (60, {"b": 4})]


def test_empty_replica_sets_above_the_history_limit_are_deleted() -> None:
    """The oldest, once the rollout is complete."""
    world = running(release())
    for number, name in enumerate("bcd", 1):
        deployment = release(name)
        deployment.spec.revision_history_limit = 1
        world.feed(number * 1000 * S, update(deployment))
        live(world, number * 1000, number * 1000 + 500)
    kept = sorted(
        image(replica_set.spec.template) for replica_set in world.cluster.replica_sets.values()
    )
    assert kept == ["c", "d"]


def test_a_bound_that_cannot_be_read_is_refused() -> None:
    """The Deployment that was there stays."""
    world = running(release())
    world.feed(100 * S, update(release("b", surge="many")))
    assert (
        'spec.strategy.rollingUpdate.maxSurge: "many" is not a percentage' in (world.refusals()[0])
    )
    assert sizes(world) == {"a": 4}
