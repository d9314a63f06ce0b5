"""DaemonSets."""

from __future__ import annotations

from replay.world.controllers.workloads.daemon_sets import target
from reprieve.kube.v1beta1 import node_pb2
from tests.unit.world.builders import S, World, create, delete, make_node, make_pod, update
from tests.unit.world.workloads.builders import end, make_daemon_set, phases, place


def places(world: World) -> list[str]:
    """Return the nodes that the daemon pods are meant for, sorted."""
    return sorted(target(pod.message) for pod in world.cluster.pods.values())


def tainted(name: str, key: str, effect: str) -> node_pb2.Node:
    """Return a node with a taint."""
    node = make_node(name)
    node.spec.taints.add(key=key, effect=effect)
    return node


def test_each_node_gets_one_pod_that_only_it_admits() -> None:
    """Nodes that come later, too; nodes that go take theirs along."""
    world = World()
    world.feed(0, create(make_node("a")), create(make_daemon_set()))
    world.feed(S, create(make_node("b")))
    assert places(world) == ["a", "b"]
    place(world, S)
    assert {pod.node_name for pod in world.cluster.pods.values()} == {"a", "b"}
    world.feed(2 * S, delete("Node", "b"))
    world.run_until(200 * S)
    assert places(world) == ["a"]


def test_a_pending_pod_of_a_node_that_has_gone_is_deleted() -> None:
    """It could never be scheduled."""
    world = World()
    world.feed(0, create(make_node("a")), create(make_daemon_set()))
    world.feed(S, delete("Node", "a"))
    assert world.names() == []


def test_a_node_that_the_template_does_not_select_gets_none() -> None:
    """By nodeSelector; when the node's labels come to fit, it does."""
    world = World()
    message = make_daemon_set()
    message.spec.template.spec.node_selector["disk"] = "ssd"
    world.feed(0, create(make_node("a")), create(message))
    assert world.names() == []
    fits = make_node("a")
    fits.metadata.labels["disk"] = "ssd"
    world.feed(S, update(fits))
    assert places(world) == ["a"]
    place(world, S)
    world.feed(2 * S, update(make_node("a")))
    assert list(phases(world).values()) == ["Terminating"]


def test_daemon_pods_tolerate_the_taints_of_failing_nodes() -> None:
    """Cordoned, unreachable and under pressure; not a taint of somebody else's."""
    world = World()
    world.feed(
        0,
        create(tainted("a", "node.kubernetes.io/unschedulable", "NoSchedule")),
        create(tainted("b", "node.kubernetes.io/unreachable", "NoExecute")),
        create(tainted("c", "dedicated", "NoSchedule")),
        create(make_daemon_set()),
    )
    assert places(world) == ["a", "b"]
    keys = {
        toleration.key for toleration in world.cluster.pods.popitem()[1].message.spec.tolerations
    }
    assert "node.kubernetes.io/memory-pressure" in keys


def test_a_pod_stays_where_only_new_ones_are_kept_away_and_goes_where_none_may_run() -> None:
    """NoSchedule and NoExecute."""
    world = World()
    world.feed(0, create(make_node("a")), create(make_daemon_set()))
    place(world, 0)
    world.feed(S, update(tainted("a", "dedicated", "NoSchedule")))
    assert list(phases(world).values()) == ["Running"]
    world.feed(2 * S, update(tainted("a", "dedicated", "NoExecute")))
    assert list(phases(world).values()) == ["Terminating"]


def test_a_pod_is_replaced_once_it_has_gone() -> None:
    """Not while it terminates."""
    world = World()
    world.feed(0, create(make_node("a")), create(make_daemon_set()))
    place(world, 0)
    (name,) = world.names()
    world.feed(S, delete("Pod", name))
    assert list(phases(world).values()) == ["Terminating"]
    world.run_until(31 * S)
    assert list(phases(world).values()) == ["Pending"]
    assert world.names() != [name]


def test_a_pod_that_fails_again_and_again_is_replaced_after_a_growing_wait() -> None:
    """At once, after 1 s, then after 2 s."""
    world = World()
    world.feed(0, create(make_node("a")), create(make_daemon_set()))
    seen = []
    for at_s, next_s in ((0, 0), (0, 1), (1, 3), (3, 7)):
        place(world, at_s * S)
        (name,) = world.names()
        seen.append(name)
        end(world, at_s * S, name, failed=True)
        assert (world.names() == [name]) == (next_s > at_s)
        world.run_until(next_s * S)
    assert len({*seen, *world.names()}) == 5


def test_a_second_pod_of_a_node_is_deleted() -> None:
    """The older one stays."""
    world = World()
    extra = make_pod("extra", node="a", owner="agent")
    extra.metadata.owner_references[0].kind = "DaemonSet"
    extra.metadata.creation_timestamp.FromSeconds(5)
    world.feed(0, create(make_node("a")), create(make_daemon_set()))
    (name,) = world.names()
    place(world, 0)
    world.lifecycle.create(9 * S, extra, world.pod(name).life)
    world.settle(9 * S)
    assert world.pod("extra").is_terminating or "extra" not in world.names()
    assert not world.pod(name).is_terminating


def test_a_new_template_replaces_one_pod_after_the_other() -> None:
    """MaxUnavailable is 1 unless the set says otherwise."""
    world = World()
    nodes = [create(make_node(name)) for name in "abc"]
    world.feed(0, *nodes, create(make_daemon_set(image="1")))
    place(world, 0)
    world.feed(S, update(make_daemon_set(image="2")))
    assert sorted(phases(world).values()) == ["Running", "Running", "Terminating"]
    for at_s in (31, 61, 91):
        world.run_until(at_s * S)
        place(world, at_s * S)
    images = {pod.message.spec.containers[0].image for pod in world.cluster.pods.values()}
    assert images == {"2"}


def test_a_nodes_pods_pair_in_two_runs_whatever_other_nodes_there_are() -> None:
    """A pod's identity hangs on its node."""
    uids = []
    for names in ("ab", "cab"):
        world = World()
        world.feed(0, *(create(make_node(name)) for name in names), create(make_daemon_set()))
        uids.append({target(pod.message): pod.uid for pod in world.cluster.pods.values()})
    assert uids[0]["b"] == uids[1]["b"]


def test_deleting_a_set_takes_its_pods() -> None:
    """Nobody makes them again."""
    world = World()
    world.feed(0, create(make_node("a")), create(make_daemon_set()))
    world.feed(1, delete("DaemonSet", "agent"))
    assert world.names() == []
