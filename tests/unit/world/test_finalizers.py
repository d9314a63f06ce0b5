"""Pods with finalizers: they terminate until the trace has an update without them."""

from __future__ import annotations

import pytest

from reprieve.kube.v1beta1 import pod_pb2
from services.rpc.kube.fields import set_time
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
from tests.unit.world.test_node_lives import FAIL, RECOVER, action, causes
from tests.unit.world.workloads.builders import make_stateful_set, phases, place

OURS = "example.com/backup"


def held(name: str = "p", *finalizers: str, node: str = "n") -> pod_pb2.Pod:
    """Return a pod with finalizers that runs on a node, unless that is ""."""
    pod = make_pod(name, node=node, ready=bool(node), grace_s=10)
    pod.metadata.finalizers.extend(finalizers or (OURS,))
    return pod


def without(pod: pod_pb2.Pod) -> pod_pb2.Pod:
    """Return the pod without finalizers."""
    made = pod_pb2.Pod()
    made.CopyFrom(pod)
    del made.metadata.finalizers[:]
    return made


def test_a_pod_stays_terminating_until_its_finalizers_are_removed() -> None:
    """Its containers stop as usual, at 11 s: it is Failed, and takes nothing of its node."""
    world = World()
    world.feed(0, create(make_node()), create_pod(held()))
    world.feed(S, delete("Pod", "p"))
    world.run_until(1000 * S)
    pod = world.pod("p")
    assert (pod.is_terminating, pod.message.status.phase) == (True, "Failed")
    assert pod.message.metadata.deletion_grace_period_seconds == 0
    assert "n" not in world.cluster.active_by_node
    ((kind, text),) = world.journal.notes
    assert kind == "finalizers"
    assert text.startswith(f"pod default/p terminates and is held by {OURS}: no controller")
    world.feed(1001 * S, update(without(held())))
    assert (world.names(), causes(world)) == ([], {"p": "deleted"})


def test_finalizers_removed_before_the_kubelet_stops_the_pod_hold_nothing() -> None:
    """It goes when its containers have stopped."""
    world = World()
    world.feed(0, create(make_node()), create_pod(held()))
    world.feed(S, delete("Pod", "p"))
    world.feed(2 * S, update(without(held())))
    assert phases(world) == {"p": "Terminating"}
    world.run_until(11 * S)
    assert world.names() == []


@pytest.mark.parametrize(
    "finalizer", ["batch.kubernetes.io/job-tracking", "foregroundDeletion", "orphan"]
)
def test_a_finalizer_that_a_controller_of_kubernetes_removes_holds_nothing(finalizer: str) -> None:
    """The Job controller's, and the garbage collector's."""
    world = World()
    world.feed(0, create(make_node()), create_pod(held("p", finalizer)))
    world.feed(S, delete("Pod", "p"))
    world.run_until(11 * S)
    assert (world.names(), world.journal.notes) == ([], {})


def test_a_forced_deletion_does_not_remove_finalizers() -> None:
    """The kubelet stops the pod at once."""
    world = World()
    world.feed(0, create(make_node()), create_pod(held()))
    world.feed(S, delete("Pod", "p", grace_s=0))
    world.run_until(S)
    assert (phases(world), world.pod("p").is_terminal) == ({"p": "Terminating"}, True)
    world.feed(2 * S, update(without(held())))
    assert world.names() == []


def test_on_a_silent_node_a_held_pod_waits_for_its_kubelet_too() -> None:
    """It is removed without its finalizers only when the kubelet has confirmed, or by force."""
    world = World()
    world.feed(0, create(make_node()), create(make_node("other")), create_pod(held()))
    world.feed(0, action(FAIL), delete("Pod", "p"))
    world.run_until(50 * S)
    world.feed(60 * S, update(without(held())))
    assert phases(world) == {"p": "Terminating"}
    world.feed(70 * S, action(RECOVER))
    world.run_until(70 * S)
    assert world.names() == []


def test_a_pod_without_a_node_fails_at_the_garbage_collectors_next_look() -> None:
    """And is never tried again; it is deleted at 1 s and looked at at 20 s."""
    world = World()
    world.feed(0, create(make_node()), create_pod(held(node="")))
    world.feed(S, delete("Pod", "p"))
    assert (phases(world), dict(world.cluster.pending)) == ({"p": "Terminating"}, {})
    world.run_until(19 * S)
    assert world.pod("p").message.status.phase == "Pending"
    world.run_until(20 * S)
    assert world.pod("p").message.status.phase == "Failed"
    assert world.timeline.is_idle
    world.feed(30 * S, update(without(held(node=""))))
    assert world.names() == []


def test_a_pod_of_a_deleted_node_fails_and_stays() -> None:
    """The garbage collector does not remove finalizers either."""
    world = World()
    world.feed(0, create(make_node()), create_pod(held()))
    world.feed(S, delete("Node", "n"))
    world.run_until(1000 * S)
    assert (phases(world), world.pod("p").is_terminal) == ({"p": "Terminating"}, True)
    assert world.timeline.is_idle
    world.feed(1001 * S, update(without(held())))
    assert causes(world) == {"p": "node-lost"}


def test_a_held_pod_keeps_its_name_from_its_stateful_set() -> None:
    """The template's finalizers are those of its pods; the next db-0 comes after the first."""
    world = World()
    made = make_stateful_set(replicas=1)
    made.spec.template.metadata.finalizers.append(OURS)
    world.feed(0, create(make_node()), create(made))
    place(world, 0)
    first = world.pod("db-0")
    world.feed(S, delete("Pod", "db-0"))
    world.run_until(1000 * S)
    assert world.names() == ["db-0"]
    assert world.pod("db-0") is first
    world.feed(1001 * S, update(without(first.message)))
    assert world.pod("db-0").uid != first.uid


def test_a_snapshots_held_pod_that_has_ended_keeps_its_name() -> None:
    """Its deletion was requested before; it is removed by the update."""
    world = World()
    pod = held()
    pod.status.phase = "Failed"
    set_time(pod.metadata.deletion_timestamp, 5 * S)
    pod.metadata.deletion_grace_period_seconds = 0
    world.feed(10 * S, create(make_node()), create_pod(pod))
    world.run_until(100 * S)
    assert phases(world) == {"p": "Terminating"}
    world.feed(101 * S, update(without(held())))
    assert world.names() == []
