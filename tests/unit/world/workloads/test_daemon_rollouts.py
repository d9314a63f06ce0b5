"""Rolling updates of DaemonSets, with times that were reasoned by hand.

Pods are bound at once and ready 10 s later; a deleted one takes its whole grace period of 30 s.
"""

from __future__ import annotations

from replay.world.models import Models
from reprieve.kube.v1beta1 import workloads_pb2
from tests.unit.world.builders import S, World, create, create_pod, make_node, make_pod, update
from tests.unit.world.workloads.builders import make_daemon_set, place

Images = dict[str, int]


def agent(
    image: str = "1",
    *,
    surge: int | str = 0,
    unavailable: int | str = 1,
    strategy: str = "",
    min_ready_s: int = 0,
) -> workloads_pb2.DaemonSet:
    """Return a version of the DaemonSet, named by its image."""
    made = make_daemon_set(image=image)
    made.spec.update_strategy.type = strategy
    made.spec.min_ready_seconds = min_ready_s
    rolling = made.spec.update_strategy.rolling_update
    for bound, value in ((rolling.max_surge, surge), (rolling.max_unavailable, unavailable)):
        if isinstance(value, str):
            bound.string_value = value
        else:
            bound.int_value = value
    return made


def active(world: World) -> Images:
    """Return the number of pods that have not ended and do not terminate, by image."""
    by_image: Images = {}
    for pod in world.cluster.pods.values():
        if pod.is_active:
            image = pod.message.spec.containers[0].image
            by_image[image] = by_image.get(image, 0) + 1
    return dict(sorted(by_image.items()))


def live(
    world: World, from_s: int, until_s: int, *, binds: bool = True
) -> list[tuple[int, Images]]:
    """Let time pass and bind new pods at once; return the images at each time of a change."""
    seen = [(from_s, active(world))]
    at_ns = from_s * S
    while at_ns <= until_s * S:
        world.run_until(at_ns)
        while binds and world.cluster.pending:
            place(world, at_ns)
        if active(world) != seen[-1][1]:
            seen.append((at_ns // S, active(world)))
        at_ns = world.timeline.next_ns() or (until_s + 1) * S
    return seen


def running(daemon_set: workloads_pb2.DaemonSet) -> World:
    """Return a world of three nodes whose daemon pods are ready, at 100 s."""
    world = World(models=Models(ready_delay_ns=10 * S))
    world.feed(0, *(create(make_node(name)) for name in "abc"), create(daemon_set))
    live(world, 0, 99)
    return world


def test_with_a_surge_a_new_pod_comes_beside_the_old_one_and_is_waited_for() -> None:
    """One node after the other, every 10 s; no node is without a ready pod."""
    world = running(agent(surge=1, unavailable=0))
    world.feed(100 * S, update(agent("2", surge=1, unavailable=0)))
    assert live(world, 100, 300) == [
        (100, {"1": 3, "2": 1}),
        (110, {"1": 2, "2": 2}),
        (120, {"1": 1, "2": 3}),
        (130, {"2": 3}),
    ]


def test_a_surge_in_percent_rounds_up() -> None:
    """34 % of 3 nodes are 2."""
    world = running(agent(surge="34%", unavailable=0))
    world.feed(100 * S, update(agent("2", surge="34%", unavailable=0)))
    assert live(world, 100, 300)[:2] == [(100, {"1": 3, "2": 2}), (110, {"1": 1, "2": 3})]


def test_a_surge_waits_for_min_ready_seconds() -> None:
    """A new pod is ready at 110 s and available at 115 s."""
    world = running(agent(surge=1, unavailable=0, min_ready_s=5))
    world.feed(100 * S, update(agent("2", surge=1, unavailable=0, min_ready_s=5)))
    assert [at_s for at_s, _ in live(world, 100, 300)] == [100, 115, 130, 145]


def test_a_surge_on_a_full_node_leaves_the_old_pod_in_place() -> None:
    """The new one waits; the update stops there, and nothing is planned."""
    world = running(agent(surge=1, unavailable=0))
    world.feed(100 * S, update(agent("2", surge=1, unavailable=0)))
    assert live(world, 100, 5000, binds=False) == [(100, {"1": 3, "2": 1})]
    assert len(world.timeline) == 0


def test_with_a_surge_an_old_pod_that_is_not_ready_gets_its_new_one_at_once() -> None:
    """It is no surge: another node has its new pod, too. The old one goes once that is bound."""
    world = running(agent(surge=1, unavailable=0))
    broken = next(iter(world.cluster.pods.values()))
    for condition in broken.message.status.conditions:
        if condition.type == "Ready":
            condition.status = "False"
    world.cluster.status_changed(100 * S, broken)
    world.feed(100 * S, update(agent("2", surge=1, unavailable=0)))
    assert live(world, 100, 109) == [(100, {"1": 3, "2": 2}), (100, {"1": 2, "2": 2})]
    assert broken.is_terminating


def test_two_pods_may_be_unavailable_at_once() -> None:
    """They terminate for 30 s and are ready at 140 s; then the third one goes."""
    world = running(agent(unavailable=2))
    world.feed(100 * S, update(agent("2", unavailable=2)))
    assert live(world, 100, 300) == [
        (100, {"1": 1}),
        (130, {"1": 1, "2": 2}),
        (140, {"2": 2}),
        (170, {"2": 3}),
    ]


def test_an_update_on_delete_touches_nothing() -> None:
    """A user deletes the pods."""
    world = running(agent(strategy="OnDelete"))
    world.feed(100 * S, update(agent("2", strategy="OnDelete")))
    assert live(world, 100, 300) == [(100, {"1": 3})]


def test_a_snapshot_in_the_middle_of_an_update_continues_it() -> None:
    """The label of a pod and the set's annotation have the number of their templates."""
    world = World(models=Models(ready_delay_ns=10 * S))
    daemon_set = agent("2")
    daemon_set.metadata.annotations["deprecated.daemonset.template.generation"] = "2"
    records = [create(daemon_set)]
    for node, image in (("a", "1"), ("b", "2"), ("c", "1")):
        pod = make_pod(f"agent-{node}", node=node, owner="agent", ready=True)
        pod.metadata.owner_references[0].kind = "DaemonSet"
        pod.metadata.labels["pod-template-generation"] = image
        pod.spec.containers[0].image = image
        records += [create(make_node(node)), create_pod(pod)]
    world.feed(0, *records)
    assert live(world, 0, 200) == [
        (0, {"1": 1, "2": 1}),
        (30, {"1": 1, "2": 2}),
        (40, {"2": 2}),
        (70, {"2": 3}),
    ]


def unfinished(world: World, at_s: int) -> list[str]:
    """Return the notes on rollouts that a run which ends then would have."""
    return list(world.workloads.unfinished_rollouts(at_s * S))


def test_a_rollout_that_waits_for_deletions_or_continues_is_noted() -> None:
    """OnDelete, until the pods are deleted; a rolling update, until each pod is updated."""
    world = World(models=Models(ready_delay_ns=10 * S))
    world.feed(0, create(make_node("a")), create(make_node("b")), create(agent("1")))
    live(world, 0, 50)
    assert unfinished(world, 50) == []
    world.feed(100 * S, update(agent("2", strategy="OnDelete")))
    live(world, 100, 199)
    (text,) = unfinished(world, 199)
    assert text == (
        "DaemonSet default/agent has the update strategy OnDelete: its rollout waits until its "
        "pods are deleted, with 0 of 2 pods updated and 2 of older templates"
    )
    world.feed(200 * S, update(agent("2")))
    live(world, 200, 235)
    (text,) = unfinished(world, 235)
    assert text == (
        "DaemonSet default/agent is still rolling out at the end: 1 of 2 pods are updated, 1 are "
        "of older templates"
    )
    live(world, 235, 400)
    assert unfinished(world, 400) == []
