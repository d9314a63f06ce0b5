"""Pods of kubelets that do not act: they stay as they are, whatever is requested."""

from __future__ import annotations

import pytest

from replay.world.controller import Ending
from replay.world.models import Models
from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from services.rpc.kube.fields import set_time
from tests.unit.world.builders import (
    S,
    World,
    create,
    create_pod,
    delete,
    make_node,
    make_pod,
    make_replica_set,
    update,
)
from tests.unit.world.test_node_lives import FAIL, RECOVER, UNREACHABLE, action, causes
from tests.unit.world.workloads.builders import make_daemon_set, make_stateful_set, phases, place

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
NETWORK = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady"
PLEG = "PLEG is not healthy: pleg was last seen active 5m30s ago; threshold is 3m0s"


def unready(status: str = "Unknown", message: str = "", name: str = "n") -> node_pb2.Node:
    """Return a node that is not ready."""
    node = make_node(name)
    node.status.conditions.add(type="Ready", status=status, message=message)
    return node


def tainted(node: node_pb2.Node, key: str, *, at_s: int | None = None) -> node_pb2.Node:
    """Return the node with a NoExecute taint, added at a time (None: the taint has no time)."""
    taint = node.spec.taints.add(key=key, effect="NoExecute")
    if at_s is not None:
        set_time(taint.time_added, at_s * S)
    return node


def bound(name: str, at_s: int, *, tolerates_s: int = 300) -> pod_pb2.Pod:
    """Return a running pod that was bound to node n at a time, with admission's toleration."""
    pod = make_pod(name, node="n", ready=True)
    condition = pod.status.conditions.add(type="PodScheduled", status="True")
    set_time(condition.last_transition_time, at_s * S)
    pod.spec.tolerations.add(
        key=UNREACHABLE, operator="Exists", effect="NoExecute", toleration_seconds=tolerates_s
    )
    return pod


def other() -> node_pb2.Node:
    """Return a node that is ready: without one, all zones would be lost."""
    return make_node("other")


def test_a_node_that_is_unknown_in_a_snapshot_carries_out_nothing() -> None:
    """Its pods neither start, end nor stop, and none of them is ready."""
    world = World()
    world.feed(0, create(unready()), create(other()))
    world.feed(0, create_pod(make_pod("ends", node="n", ready=True), service_duration_ns=10 * S))
    world.feed(0, create_pod(make_pod("starts", node="n")))
    world.feed(0, create_pod(make_pod("stops", node="n", ready=True)))
    world.feed(S, delete("Pod", "stops"))
    world.run_until(200 * S)
    assert phases(world) == {"ends": "Running", "starts": "Pending", "stops": "Terminating"}
    assert not any(world.pod(name).is_ready for name in ("ends", "stops"))
    assert _noted(world) == [
        "silent-node: node n of the trace is not ready: its pods neither start nor end until it is",
        (
            "silent-node: pods terminate on node n, whose kubelet does not act: they stay until it "
            f"is ready, is deleted, or has the taint {OUT_OF_SERVICE}"
        ),
    ]


def _noted(world: World) -> list[str]:
    """Return the notes at the end, each as one text."""
    world.manager.conclude(Ending(at_ns=0, start_ns=0, is_finished=True, is_cut=True))
    return [f"{kind}: {text}" for kind, text in world.journal.notes]


def test_the_notes_name_the_first_of_many_nodes() -> None:
    """In one sentence for all."""
    world = World()
    world.feed(0, create(other()), *(create(unready(name=f"n{number}")) for number in range(7)))
    world.feed(0, create_pod(make_pod("far", node="m1")), create_pod(make_pod("off", node="m2")))
    assert _noted(world) == [
        (
            "silent-node: nodes n0, n1, n2, n3, n4 and 2 more of the trace are not ready: their "
            "pods neither start nor end until they are"
        ),
        (
            "missing-node: pods are on nodes m1 and m2, which are not in the trace: they run and "
            "stay as they are"
        ),
    ]


def test_an_update_that_makes_the_node_ready_ends_its_silence() -> None:
    """What was missed happens then."""
    world = World()
    world.feed(0, create(unready()), create(other()))
    world.feed(0, create_pod(make_pod("ends", node="n", ready=True), service_duration_ns=10 * S))
    world.feed(0, create_pod(make_pod("starts", node="n")))
    world.feed(0, create_pod(make_pod("stops", node="n", ready=True)))
    world.feed(0, create_pod(make_pod("stays", node="n", ready=True)))
    world.feed(S, delete("Pod", "stops"))
    world.feed(100 * S, update(unready("True")))
    world.run_until(100 * S)
    assert phases(world) == {"ends": "Succeeded", "starts": "Running", "stays": "Running"}
    assert world.pod("stays").is_ready


@pytest.mark.parametrize("message", ["", PLEG, "container runtime is down", f"[{PLEG}, {NETWORK}]"])
def test_a_kubelet_whose_runtime_is_not_ready_synchronizes_no_pod(message: str) -> None:
    """Though it reports; a message that names no reason is taken so, too."""
    world = World()
    world.feed(0, create(unready("False", message)), create(other()))
    world.feed(0, create_pod(make_pod("starts", node="n")))
    world.feed(0, create_pod(make_pod("stops", node="n", ready=True)))
    world.feed(S, delete("Pod", "stops"))
    world.run_until(100 * S)
    assert phases(world) == {"starts": "Pending", "stops": "Terminating"}
    assert world.pod("stops").is_ready


def test_a_kubelet_without_a_pod_network_starts_pods_of_the_hosts_network_only() -> None:
    """And stops pods as usual."""
    world = World()
    on_host = make_pod("on-host", node="n")
    on_host.spec.host_network = True
    world.feed(0, create(unready("False", NETWORK)), create(other()), create_pod(on_host))
    world.feed(0, create_pod(make_pod("starts", node="n")))
    world.feed(0, create_pod(make_pod("stops", node="n", ready=True)))
    world.feed(S, delete("Pod", "stops"))
    world.run_until(100 * S)
    assert phases(world) == {"on-host": "Running", "starts": "Pending"}
    world.feed(101 * S, update(unready("True")))
    world.run_until(101 * S)
    assert phases(world) == {"on-host": "Running", "starts": "Running"}


def test_a_recorded_recovery_does_not_end_a_failure_that_the_run_caused() -> None:
    """Neither before it is Unknown nor after; its taints keep their times."""
    world = World()
    world.feed(0, create(unready("True")), create(other()), create_pod(bound("p", 0)))
    world.feed(0, action(FAIL))
    world.feed(10 * S, update(unready("True")), delete("Pod", "p"))
    world.run_until(100 * S)
    world.feed(100 * S, update(unready("True")))
    assert phases(world) == {"p": "Terminating"}
    node = world.cluster.nodes["n"]
    assert [(condition.type, condition.status) for condition in node.status.conditions] == [
        ("Ready", "Unknown")
    ]
    assert [taint.time_added.seconds for taint in node.spec.taints] == [50, 55]
    world.feed(200 * S, action(RECOVER))
    world.run_until(200 * S)
    assert phases(world) == {}


def test_a_toleration_counts_from_the_later_of_taint_and_binding() -> None:
    """The snapshot is taken at 1000 s; the taint was added at 896 s, 104 s before.

    `old` was bound long before: its 300 s are over at 1196 s. `young` was bound at 950 s: 1250 s.
    `late` tolerated 60 s, which are over: it is deleted at once.
    """
    world = World()
    world.feed(1000 * S, create(tainted(unready(), UNREACHABLE, at_s=896)), create(other()))
    world.feed(1000 * S, create_pod(bound("old", 100)), create_pod(bound("young", 950)))
    world.feed(1000 * S, create_pod(bound("late", 100, tolerates_s=60)))
    assert phases(world)["late"] == "Terminating"
    world.run_until(1195 * S)
    assert phases(world)["old"] == "Running"
    world.run_until(1196 * S)
    assert (phases(world)["old"], phases(world)["young"]) == ("Terminating", "Running")
    world.run_until(1249 * S)
    assert phases(world)["young"] == "Running"
    world.run_until(1250 * S)
    assert phases(world)["young"] == "Terminating"


def test_a_taint_without_a_time_or_of_the_future_counts_from_now() -> None:
    """As where a clock is wrong."""
    for at_s in (None, 5000):
        world = World()
        world.feed(1000 * S, create(tainted(unready(), UNREACHABLE, at_s=at_s)), create(other()))
        world.feed(1000 * S, create_pod(bound("p", 100)))
        world.run_until(1299 * S)
        assert phases(world) == {"p": "Running"}
        world.run_until(1300 * S)
        assert phases(world) == {"p": "Terminating"}


def test_a_forced_deletion_removes_the_pod_of_a_silent_node_at_once() -> None:
    """And a pod that has ended goes at once, too."""
    world = World()
    world.feed(0, create(unready()), create(other()))
    ended = make_pod("ended", node="n")
    ended.status.phase = "Succeeded"
    world.feed(0, create_pod(ended))
    for name in ("terminating", "running"):
        world.feed(0, create_pod(make_pod(name, node="n", ready=True)))
    world.feed(S, delete("Pod", "terminating"), delete("Pod", "ended"))
    assert phases(world) == {"terminating": "Terminating", "running": "Running"}
    world.feed(2 * S, delete("Pod", "terminating", grace_s=0), delete("Pod", "running", grace_s=0))
    assert phases(world) == {}


def test_a_stateful_set_makes_no_second_pod_of_a_name_until_the_first_is_collected() -> None:
    """The node is silent from 0 s on and deleted at 1000 s; its pods are collected a minute later.

    A ReplicaSet makes another pod when the first is deleted, at 355 s: Unknown at 50 s, tainted at
    55 s, tolerated for 300 s.
    """
    world = World()
    world.feed(0, create(unready("True")), create(other()))
    world.feed(0, create(make_stateful_set(replicas=1)), create(make_replica_set(replicas=1)))
    place(world, 0)
    world.feed(0, action(FAIL))
    world.run_until(355 * S)
    place(world, 355 * S, "other")
    web = [name for name in phases(world) if name.startswith("web-")]
    assert [phases(world)[name] for name in web] == ["Terminating", "Running"]
    world.run_until(999 * S)
    assert phases(world)["db-0"] == "Terminating"
    first = world.pod("db-0").uid
    world.feed(1000 * S, delete("Node", "n"))
    world.run_until(1059 * S)
    assert (world.pod("db-0").uid, phases(world)["db-0"]) == (first, "Terminating")
    world.run_until(1060 * S)
    assert world.pod("db-0").uid != first
    assert phases(world)["db-0"] == "Pending"
    assert causes(world) == {web[0]: "taint", "db-0": "taint"}


def test_terminating_pods_of_a_node_that_is_out_of_service_are_collected() -> None:
    """The taint is set at 401 s: all pods are deleted at once, and collected at 420 s.

    Not even the daemon's pod tolerates it; its set makes the next one when the taint has gone.
    """
    world = World()
    world.feed(0, create(unready("True")), create(other()))
    world.feed(0, create(make_stateful_set(replicas=1)), create(make_daemon_set()))
    place(world, 0)
    world.feed(0, action(FAIL))
    world.run_until(400 * S)
    on_node = [pod for pod in world.cluster.pods.values() if pod.node_name == "n"]
    assert [pod.is_terminating for pod in on_node] == [True, False]
    world.feed(401 * S, update(tainted(unready("True"), OUT_OF_SERVICE)))
    assert all(pod.is_terminating for pod in on_node)
    world.run_until(419 * S)
    assert all(pod.uid in world.cluster.pods for pod in on_node)
    world.run_until(420 * S)
    assert not any(pod.uid in world.cluster.pods for pod in on_node)
    assert phases(world)["db-0"] == "Pending"
    assert len([name for name in world.names() if name.startswith("agent")]) == 1
    world.feed(500 * S, action(RECOVER), update(unready("True")))
    world.run_until(510 * S)
    assert len([name for name in world.names() if name.startswith("agent")]) == 2


def test_the_taint_out_of_service_collects_nothing_on_a_node_that_is_ready() -> None:
    """Its kubelet finishes the pods."""
    world = World()
    world.feed(0, create(tainted(unready("True"), OUT_OF_SERVICE)), create(other()))
    world.feed(0, create_pod(make_pod("p", node="n", ready=True, grace_s=100)))
    world.run_until(99 * S)
    assert phases(world) == {"p": "Terminating"}
    world.run_until(100 * S)
    assert phases(world) == {}


def test_a_pod_that_is_bound_to_a_node_that_just_fell_silent_never_starts() -> None:
    """It is deleted when its toleration is over, and waits for its kubelet like the others."""
    world = World()
    world.feed(0, create(unready("True")), create(other()), create(make_replica_set(replicas=1)))
    world.feed(0, action(FAIL))
    place(world, 10 * S)
    (first,) = world.names()
    world.run_until(354 * S)
    assert phases(world) == {first: "Pending"}
    world.run_until(1000 * S)
    assert phases(world)[first] == "Terminating"


def test_no_eviction_by_taints_leaves_pods_where_they_are() -> None:
    """--model taint-eviction=off."""
    world = World(models=Models(toleration_s=None))
    world.feed(0, create(unready()), create(other()), create_pod(bound("p", 0)))
    world.run_until(1000 * S)
    assert phases(world) == {"p": "Running"}


def test_a_container_that_crashes_on_a_silent_node_is_not_restarted() -> None:
    """Its exit is not reported either."""
    world = World()
    world.feed(0, create(unready("True")), create(other()))
    pod = make_pod("p", node="n", ready=True)
    world.feed(0, create_pod(pod, service_duration_ns=10 * S, exit_code=1))
    world.feed(15 * S, action(FAIL))
    world.run_until(15 * S)
    restarts = world.pod("p").message.SerializeToString(deterministic=True)
    world.run_until(49 * S)
    assert world.pod("p").message.SerializeToString(deterministic=True) == restarts
