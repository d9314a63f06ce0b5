"""The cluster's own books: who is pending, who was tried, conditions."""

from __future__ import annotations

from replay.world.api.cluster import Cluster
from replay.world.api.conditions import set_node_condition, set_pod_condition
from replay.world.api.pod_record import new_pod
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.kube.fields import time_ns, timestamp
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


def make_world() -> World:
    """Return a world with the pending pods "a", which was tried, and "b", which was not."""
    world = World()
    world.feed(0, create(make_node()), create_pod(make_pod("a")), create_pod(make_pod("b")))
    world.cluster.tried_now(world.pod("a"))
    return world


def test_all_are_tried_once_each_pending_pod_was() -> None:
    """Trying one twice counts once."""
    world = make_world()
    world.cluster.tried_now(world.pod("a"))
    assert not world.cluster.all_tried()
    world.cluster.tried_now(world.pod("b"))
    assert world.cluster.all_tried()


def test_a_tried_pod_that_is_deleted_does_not_count_for_another() -> None:
    """Pending pods leave the snapshot as it is."""
    world = make_world()
    world.feed(1, delete("Pod", "a"))
    assert not world.cluster.all_tried()


def test_a_pod_that_a_user_changes_is_to_be_tried_again() -> None:
    """The verdict was on another pod."""
    world = make_world()
    world.cluster.tried_now(world.pod("b"))
    world.feed(1, update(make_pod("a", labels={"x": "1"})))
    assert not world.cluster.all_tried()


def test_a_new_scheduler_has_tried_no_pod_and_takes_those_of_its_own_names() -> None:
    """Pods that the former one took alone are not pending any more."""
    world = make_world()
    world.cluster.tried_now(world.pod("b"))
    world.cluster.scheduler_restarted(frozenset({"default-scheduler"}))
    assert not world.cluster.all_tried()
    world.cluster.scheduler_restarted(frozenset({"other"}))
    assert not world.cluster.pending
    pod = make_pod("c")
    pod.spec.scheduler_name = "other"
    world.feed(1, create_pod(pod))
    assert [pod.key for pod in world.cluster.pending.values()] == ["default/c"]


def test_a_change_of_the_snapshot_invalidates_all_verdicts() -> None:
    """A node, a binding, a pod on a node that ends, changes or goes."""
    world = make_world()
    cluster = world.cluster

    def tried_all() -> None:
        for pod in cluster.pending.values():
            cluster.tried_now(pod)
        assert cluster.all_tried()

    tried_all()
    cluster.bind(1, world.pod("a"), "n")
    assert not cluster.all_tried()
    tried_all()
    world.feed(2, update(make_node()))
    assert not cluster.all_tried()
    tried_all()
    world.feed(3, update(make_pod("a", labels={"x": "1"})))
    assert not cluster.all_tried()
    tried_all()
    world.pod("a").message.status.phase = "Failed"
    cluster.status_changed(4, world.pod("a"))
    assert not cluster.all_tried()
    tried_all()
    world.feed(5, delete("Pod", "a"))
    assert cluster.all_tried()


def test_pods_of_each_served_scheduler_are_pending() -> None:
    """Those that the scheduler's profiles name."""
    cluster = Cluster(frozenset({"one", "two"}))
    for name in ("one", "two", "three"):
        pod = make_pod(name)
        pod.spec.scheduler_name = name
        cluster.create_pod(*new_pod(0, pod, trace_pb2.PodLife()))
    assert list(cluster.pending) == ["uid-one", "uid-two"]


def test_a_conditions_transition_time_moves_only_with_its_status() -> None:
    """A new reason alone leaves it."""
    status = pod_pb2.PodStatus()
    assert set_pod_condition(status, "Ready", "False", 1 * S, "Waiting")
    assert not set_pod_condition(status, "Ready", "False", 2 * S, "Waiting")
    assert set_pod_condition(status, "Ready", "False", 3 * S, "Other")
    assert time_ns(status.conditions[0].last_transition_time) == 1 * S
    assert set_pod_condition(status, "Ready", "True", 4 * S)
    assert time_ns(status.conditions[0].last_transition_time) == 4 * S
    assert len(status.conditions) == 1


def test_a_nodes_condition_is_written_only_when_its_status_changes() -> None:
    """Heartbeats are no changes."""
    status = node_pb2.NodeStatus()
    assert set_node_condition(status, "MemoryPressure", "True", 1, "r", "m")
    assert not set_node_condition(status, "MemoryPressure", "True", 2, "other", "m")
    assert status.conditions[0].reason == "r"


def test_times_survive_as_timestamps() -> None:
    """To the nanosecond, before 1970 too."""
    for at_ns in (0, 1, 1_700_000_000_123_456_789, -1):
        assert time_ns(timestamp(at_ns)) == at_ns
