"""What the limits of pods and nodes are, and whom the kernel picks."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from replay.world.kubelet.memory_limits import (
    KubeletMemory,
    MemoryUser,
    kubepods_limit,
    oom_score_adj,
    pod_limit,
    qos_class,
    victim,
)
from reprieve.kube.v1beta1 import pod_pb2
from tests.unit.world.builders import make_node

GIB = 1 << 30
CAPACITY = 16 * GIB


def pod(
    *containers: Mapping[str, str], inits: Mapping[str, str] | None = None, class_name: str = ""
) -> pod_pb2.Pod:
    """Return a pod; each container by its "request" and "limit" of memory, inits by their limits.

    An init container whose name begins with "side" is a sidecar; its request is its limit.
    """
    made = pod_pb2.Pod()
    made.spec.priority_class_name = class_name
    for number, amounts in enumerate(containers):
        _set(made.spec.containers.add(name=f"c{number}"), amounts)
    for name, limit in (inits or {}).items():
        policy = "Always" if name.startswith("side") else ""
        added = made.spec.init_containers.add(name=name, restart_policy=policy)
        _set(added, {"request": limit, "limit": limit})
    return made


def _set(container: pod_pb2.Container, amounts: Mapping[str, str]) -> None:
    for kind, text in amounts.items():
        of = container.resources.requests if kind == "request" else container.resources.limits
        of["memory"] = text


@pytest.mark.parametrize(
    ("made", "limit_gib"),
    [
        (pod({"limit": "1Gi"}, {"limit": "2Gi"}), 3),
        (pod({"limit": "1Gi"}, {}), None),
        (pod({"limit": "1Gi"}, inits={"init": "5Gi"}), 5),
        (pod({"limit": "1Gi"}, inits={"side": "2Gi", "init": "5Gi"}), 7),
        (pod({"limit": "1Gi"}, inits={"side": "2Gi", "init": "0"}), None),
    ],
)
def test_a_pods_cgroup_has_a_limit_where_every_container_has_one(
    made: pod_pb2.Pod, limit_gib: int | None
) -> None:
    """Init containers count one by one beside the sidecars before them, as requests do."""
    assert pod_limit(made.spec) == (None if limit_gib is None else limit_gib * GIB)


def test_a_pods_own_limit_takes_precedence_and_its_overhead_is_added() -> None:
    """Whatever its containers have."""
    made = pod({"limit": "1Gi"}, {})
    made.spec.resources.limits["memory"] = "4Gi"
    made.spec.overhead["memory"] = "1Gi"
    assert pod_limit(made.spec) == 5 * GIB


@pytest.mark.parametrize(
    ("hard", "limit_mib"), [("100Mi", 15_360 + 100), ("", 15_360), ("5%", 16_179), ("2Gi", 16_384)]
)
def test_kubepods_has_what_is_allocatable_and_the_hard_threshold(hard: str, limit_mib: int) -> None:
    """At most the capacity; of percentages the share of it."""
    node = make_node(memory="16Gi")
    node.status.allocatable["memory"] = "15Gi"
    limit = kubepods_limit(node, KubeletMemory(hard_threshold=hard))
    assert limit is not None
    assert limit >> 20 == limit_mib
    assert kubepods_limit(node, KubeletMemory(limits_pods=False)) is None


@pytest.mark.parametrize(
    ("made", "score"),
    [
        (pod({}), 1000),
        (pod({"request": "4Gi"}), 750),
        (pod({"request": "1"}), 999),
        (pod({"request": "16Gi"}), 3),
        (pod({"request": "4Gi"}, class_name="system-node-critical"), -997),
        (pod({"request": "4Gi"}, class_name="system-cluster-critical"), 750),
    ],
)
def test_the_score_of_a_container_falls_with_its_request(made: pod_pb2.Pod, score: int) -> None:
    """A thousandth for each thousandth of the node; BestEffort 1000, others 3 to 999."""
    assert oom_score_adj(made, made.spec.containers[0], CAPACITY) == score


def test_a_guaranteed_pod_is_spared() -> None:
    """It has equal requests and limits of cpu and memory, or limits only."""
    made = pod({"request": "1Gi", "limit": "1Gi"})
    assert qos_class(made.spec) == "Burstable"
    made.spec.containers[0].resources.limits["cpu"] = "1"
    assert qos_class(made.spec) == "Guaranteed"
    assert oom_score_adj(made, made.spec.containers[0], CAPACITY) == -997
    made.spec.containers[0].resources.requests["cpu"] = "500m"
    assert qos_class(made.spec) == "Burstable"


def test_a_sidecar_is_killed_no_sooner_than_the_containers_that_need_it() -> None:
    """Its request counts as that of the smallest container at least."""
    made = pod({"request": "4Gi"}, {"request": "8Gi"}, inits={"side": "1Gi"})
    assert oom_score_adj(made, made.spec.init_containers[0], CAPACITY) == 750


def test_what_a_pod_requests_beyond_its_containers_is_shared_by_them() -> None:
    """8 GiB for the pod, 4 in its two containers: 2 more for each."""
    made = pod({"request": "4Gi"}, {})
    made.spec.resources.requests["memory"] = "8Gi"
    scores = [oom_score_adj(made, container, CAPACITY) for container in made.spec.containers]
    assert scores == [625, 875]


def test_the_victim_has_most_pages_and_points() -> None:
    """Of 16 GiB, 100 points are 1.6 GiB; a container without memory frees none."""
    small = MemoryUser(key=("a", "c"), usage_bytes=GIB, oom_score_adj=900)
    large = MemoryUser(key=("b", "c"), usage_bytes=3 * GIB, oom_score_adj=800)
    empty = MemoryUser(key=("d", "c"), usage_bytes=0, oom_score_adj=1000)
    assert victim([small, large, empty], CAPACITY) == large
    assert victim([small, large, empty], 64 * GIB) == small
    assert victim([empty], CAPACITY) is None
