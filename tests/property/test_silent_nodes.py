"""On generated clusters whose nodes fail, no pod of a silent node changes through its kubelet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from replay.world.api.pod_record import PodRecord
from reprieve.kube.v1beta1 import node_pb2
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
from tests.unit.world.test_node_lives import FAIL, RECOVER, action
from tests.unit.world.workloads.builders import make_stateful_set

NODES = ("a", "b", "c", "d")
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


class Step(NamedTuple):
    """What happens at a time: a kind, a node, a pod by its place, a grace period (s)."""

    after_s: int
    kind: str
    node: str
    place: int
    grace_s: int | None


STEPS = st.lists(
    st.builds(
        Step,
        st.integers(0, 400),
        st.sampled_from(
            ("fail", "fail", "recover", "unknown", "delete", "delete", "remove", "out", "free")
        ),
        st.sampled_from(NODES),
        st.integers(0, 9),
        st.sampled_from((None, None, 0, 5)),
    ),
    min_size=1,
    max_size=8,
)


def node_of(name: str, status: str, *, out_of_service: bool = False) -> node_pb2.Node:
    """Return a node of one of two zones."""
    node = make_node(name)
    node.metadata.labels["topology.kubernetes.io/zone"] = "x" if name in "ab" else "y"
    node.status.conditions.add(type="Ready", status=status)
    if out_of_service:
        node.spec.taints.add(key=OUT_OF_SERVICE, effect="NoExecute")
    return node


def cluster_of(places: Sequence[int]) -> World:
    """Return a world: two controllers' pods, bare pods that end, crash, or have a finalizer."""
    world = World()
    world.feed(0, *(create(node_of(name, "True")) for name in NODES))
    world.feed(0, create(make_stateful_set(replicas=2)), create(make_replica_set(replicas=3)))
    for number, node in enumerate(places):
        pod = make_pod(f"p-{number}", node=NODES[node], ready=bool(number % 2), grace_s=20)
        if number % 3 == 0:
            pod.metadata.finalizers.append("example.com/held")
        life: dict[str, int] = {
            "service_duration_ns": (50 + 70 * number) * S,
            "exit_code": number % 2,
        }
        world.feed(0, create_pod(pod, **(life if number % 4 else {})))
    return world


def shown(pod: PodRecord) -> tuple[object, ...]:
    """Return the fields of a pod that a kubelet writes: phase, start time, containers."""
    status = pod.message.status
    containers = tuple(container.SerializeToString() for container in status.container_statuses)
    return status.phase, status.start_time.ToNanoseconds(), containers, pod.running_ns


class Watcher:
    """Compares the pods of silent nodes before and after each moment."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.before: dict[str, tuple[PodRecord, tuple[object, ...]]] = {}

    def note(self) -> None:
        """Store the state of the pods of silent nodes."""
        self.before = {
            uid: (pod, shown(pod))
            for uid, pod in self.world.cluster.pods.items()
            if pod.node_name in self.world.silent and not pod.is_terminal
        }

    def check(self, forced: str = "") -> None:
        """Assert that the state is unchanged, apart from `forced` and garbage-collected pods."""
        for uid, (pod, was) in self.before.items():
            node = self.world.cluster.nodes.get(pod.node_name)
            is_collected = node is None or any(
                taint.key == OUT_OF_SERVICE for taint in node.spec.taints
            )
            if uid == forced or is_collected or pod.node_name not in self.world.silent:
                continue
            assert uid in self.world.cluster.pods, f"{pod.key} was removed: {pod.removal}"
            assert shown(pod) == was
        for name, node in self.world.cluster.nodes.items():
            if any(condition.status == "Unknown" for condition in node.status.conditions):
                on_node = self.world.cluster.active_by_node.get(name, {}).values()
                assert not any(pod.is_ready for pod in on_node)
        keys = [pod.key for pod in self.world.cluster.pods.values()]
        assert len(keys) == len(set(keys))


def schedule(world: World, now_ns: int) -> None:
    """Bind pending pods to nodes in turn, as a scheduler that knows no taints would."""
    nodes = list(world.cluster.nodes)
    for number, pod in enumerate(list(world.cluster.pending.values())):
        if nodes:
            world.cluster.bind(now_ns, pod, nodes[number % len(nodes)])
            world.lifecycle.bound(now_ns, pod)
    world.settle(now_ns)


def advance(world: World, watcher: Watcher, until_ns: int) -> None:
    """Go from moment to moment, and check each."""
    while (at_ns := world.timeline.next_ns()) is not None and at_ns <= until_ns:
        watcher.note()
        world.run_until(at_ns)
        watcher.check()


def take(world: World, watcher: Watcher, now_ns: int, step: Step) -> None:
    """Carry out a step."""
    watcher.note()
    pods = list(world.cluster.pods.values())
    pod = pods[step.place % len(pods)] if pods else None
    exists, forced = step.node in world.cluster.nodes, ""
    if step.kind == "delete" and pod is not None:
        forced = pod.uid if step.grace_s == 0 else ""
        name = pod.message.metadata.name
        world.feed(now_ns, delete("Pod", name, grace_s=step.grace_s))
    elif step.kind == "free" and pod is not None:
        freed = make_pod(pod.message.metadata.name)
        forced = pod.uid
        world.feed(now_ns, update(freed))
    elif step.kind == "remove" and exists:
        world.feed(now_ns, delete("Node", step.node))
    elif step.kind == "unknown":
        world.feed(now_ns, update(node_of(step.node, "Unknown")))
    elif step.kind == "out":
        world.feed(now_ns, update(node_of(step.node, "Unknown", out_of_service=True)))
    elif step.kind in {"fail", "recover"} and exists:
        world.feed(now_ns, action(FAIL if step.kind == "fail" else RECOVER, step.node))
    watcher.check(forced)


@settings(max_examples=150, deadline=None)
@given(places=st.lists(st.integers(0, 3), max_size=6), steps=STEPS)
def test_the_kubelet_of_a_silent_node_changes_no_pod(places: list[int], steps: list[Step]) -> None:
    """Nothing starts, ends, restarts or goes, but by force or the pod garbage collector.

    None of them is ready while the node is Unknown, and no name, such as db-0, exists twice.
    """
    world = cluster_of(places)
    watcher = Watcher(world)
    now_ns = 0
    for step in steps:
        schedule(world, now_ns)
        advance(world, watcher, now_ns + step.after_s * S)
        now_ns += step.after_s * S
        take(world, watcher, now_ns, step)
    schedule(world, now_ns)
    advance(world, watcher, now_ns + 1000 * S)
