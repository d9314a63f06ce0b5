"""Which nodes are deleted at once, and how a deletion goes from stage to stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from services.autoscaler.core.calls import (
    Call,
    Calls,
    DeleteNodes,
    Done,
    Evict,
    MarkNode,
    Outcome,
    Refused,
    UnmarkNode,
)
from services.autoscaler.core.cluster import Cluster
from services.autoscaler.core.groups import Cloud, Instance, NodeGroup
from services.autoscaler.core.objects import ClusterNode, ClusterPod, ReplicaController
from services.autoscaler.core.options import GroupOptions, Options, from_flags
from services.autoscaler.core.scale_down.actuation import DELAY_DELETION, Actuator
from services.autoscaler.core.scale_down.deletions import DeleteResult
from services.autoscaler.core.scale_down.parallelism import Parallelism
from services.autoscaler.core.scale_down.resource_minimum import ResourceMinimum
from services.autoscaler.core.scale_down.soft_taints import update_soft_taints
from services.kube.taints import Taint, TaintEffect
from services.kube.time import SECOND_NS
from tests.unit.autoscaler.builders import make_node, make_pod, make_spec

S = SECOND_NS
_TAINT = Taint(key="", effect=TaintEffect.PREFER_NO_SCHEDULE)
ATOMIC = GroupOptions(zero_or_max_node_scaling=True)


def make_group(name: str, *nodes: str, options: GroupOptions | None = None) -> NodeGroup:
    """Return a group with instances of those names."""
    return NodeGroup(
        name=name,
        min_size=0,
        max_size=9,
        target=len(nodes),
        template=make_node("template"),
        instances=tuple(Instance(provider_id=f"test://{name}/{node}") for node in nodes),
        options=options or GroupOptions(),
    )


def node_of(group: str, name: str) -> ClusterNode:
    """Return a node of a group."""
    return replace(make_node(name), provider_id=f"test://{group}/{name}")


class World:
    """A cluster whose calls succeed, apart from those that `refuses` refuses; all are noted.

    Evicted pods are gone at once.
    """

    def __init__(self, options: Options | None = None, *groups: NodeGroup) -> None:
        self.cluster, self.cloud = Cluster(), Cloud()
        for group in groups or (make_group("g", "a", "b"),):
            self.cloud.put(group)
        self.nodes = [
            node_of(group.name, instance.provider_id.rpartition("/")[2])
            for group in self.cloud.groups()
            for instance in group.instances
        ]
        for node in self.nodes:
            self.cluster.put(node)
        owner = ReplicaController(kind="ReplicaSet", namespace="default", name="owner")
        self.cluster.put(owner)
        self.actuator = Actuator(
            cluster=self.cluster, cloud=self.cloud, options=options or Options()
        )
        self.refuses: Callable[[Call], Outcome | None] = lambda _call: None
        self.calls: list[Call] = []

    def put(self, *pods: ClusterPod) -> None:
        """Add pods."""
        for pod in pods:
            self.cluster.put(pod)

    def carry_out(self, step: Calls[object]) -> object:
        """Carry out a step, and return its value."""
        outcome: Outcome | None = None
        try:
            while True:
                call = next(step) if outcome is None else step.send(outcome)
                self.calls.append(call)
                outcome = self.refuses(call) or Done()
                if isinstance(call, Evict) and isinstance(outcome, Done):
                    self.cluster.remove("Pod", f"{call.namespace}/{call.name}")
        except StopIteration as end:
            return end.value

    def start(
        self, *, drain: bool, nodes: list[ClusterNode] | None = None, at_s: int = 0
    ) -> object:
        """Put nodes to deletion."""
        chosen = self.nodes if nodes is None else nodes
        return self.carry_out(
            self.actuator.start(
                [] if drain else chosen,
                chosen if drain else [],
                registered=self.nodes,
                pods_of=lambda _name: [],
                now_ns=at_s * S,
            )
        )

    def run(self, until_s: int) -> list[Call]:
        """Do the background work up to a time, and return its calls."""
        self.calls.clear()
        while True:
            due_ns = self.actuator.deletions.next_due_ns()
            if due_ns is None or due_ns > until_s * S:
                return self.calls
            self.carry_out(self.actuator.act(due_ns))

    @property
    def results(self) -> dict[str, str]:
        """Return how deletions ended since the last look."""
        results = self.actuator.deletions.take_results()
        return {name: result.value for name, result in results.items()}


def deleted(calls: list[Call]) -> list[tuple[str, ...]]:
    """Return the instances that were deleted, by call."""
    return [call.provider_ids for call in calls if isinstance(call, DeleteNodes)]


def test_an_empty_node_is_tainted_and_deleted_after_the_delay() -> None:
    """5 s by default; each node alone."""
    world = World()
    world.start(drain=False)
    assert [type(call) for call in world.calls] == [MarkNode, MarkNode]
    assert world.run(4) == []
    assert deleted(world.run(5)) == [("test://g/a",), ("test://g/b",)]
    assert world.results == {"a": "ok", "b": "ok"}


def test_a_node_that_is_no_longer_empty_is_kept() -> None:
    """Its taint is taken off, and it is uncordoned."""
    world = World()
    world.start(drain=False, nodes=world.nodes[:1])
    world.put(make_pod("late", node="a"))
    assert [type(call) for call in world.run(5)] == [UnmarkNode]
    assert world.results == {"a": "internal"}


def test_taints_are_taken_back_if_one_cannot_be_set() -> None:
    """Nothing is deleted then."""
    world = World()
    world.refuses = lambda call: (
        Refused() if isinstance(call, MarkNode) and call.node == "b" else None
    )
    assert world.start(drain=False) is None
    assert [call for call in world.calls if isinstance(call, UnmarkNode)] == [
        UnmarkNode(node="a", taint_key="ToBeDeletedByClusterAutoscaler", uncordon=True)
    ]
    assert world.actuator.deletions.running == {}


def test_a_drain_evicts_by_key_with_a_bounded_grace_period_and_then_deletes() -> None:
    """Daemon pods are evicted, too, and mirror pods are not."""
    world = World(from_flags({"max-graceful-termination-sec": "20"}))
    world.put(
        make_pod("z", make_spec(1, grace_s=60), node="a"),
        make_pod("y", make_spec(1, grace_s=5), node="a"),
        make_pod("x", node="a"),
        make_pod("m", node="a", annotations={"kubernetes.io/config.mirror": ""}),
        make_pod("p", node="b"),
    )
    world.start(drain=True, nodes=world.nodes[:1])
    calls = world.run(5)
    evictions = [(call.name, call.grace_s) for call in calls if isinstance(call, Evict)]
    assert evictions == [("x", 20), ("y", 5), ("z", 20)]
    assert deleted(calls) == [("test://g/a",)]


def test_a_refused_eviction_is_tried_every_ten_seconds_until_time_is_over() -> None:
    """The last try is before max-pod-eviction-time ends, the failure ten seconds after it."""
    world = World(from_flags({"max-pod-eviction-time": "25s"}))
    world.put(make_pod("p", node="a"))
    world.refuses = lambda call: Refused() if isinstance(call, Evict) else None
    world.start(drain=True, nodes=world.nodes[:1])
    assert len([call for call in world.run(25) if isinstance(call, Evict)]) == 3
    assert world.run(34) == []
    assert [type(call) for call in world.run(35)] == [UnmarkNode]
    assert world.results == {"a": "failed_to_evict"}


def test_a_pod_that_is_gone_counts_as_evicted() -> None:
    """As does one that is on another node when it is looked for."""
    world = World()
    world.put(make_pod("p", node="a"), make_pod("q", node="a"))
    world.refuses = lambda call: Refused(gone=True) if isinstance(call, Evict) else None
    world.start(drain=True, nodes=world.nodes[:1])
    assert deleted(world.run(5)) == []
    world.cluster.remove("Pod", "default/p")
    world.put(make_pod("q", node="b"))
    assert deleted(world.run(10)) == [("test://g/a",)]


def test_daemon_pods_may_stay_behind() -> None:
    """Their eviction is waited for, and does not matter."""
    world = World(from_flags({"max-pod-eviction-time": "15s"}))
    world.put(make_pod("p", node="a"))
    world.put(
        make_pod(
            "d",
            node="a",
            namespace="kube-system",
            annotations={"cluster-autoscaler.kubernetes.io/daemonset-pod": "true"},
            owner="Custom",
        )
    )
    world.refuses = lambda call: Refused() if isinstance(call, Evict) and call.name == "d" else None
    world.start(drain=True, nodes=world.nodes[:1])
    assert deleted(world.run(24)) == []
    assert deleted(world.run(25)) == [("test://g/a",)]


def test_an_annotation_delays_the_deletion_but_not_for_ever() -> None:
    """It is looked for every five seconds, up to node-deletion-delay-timeout."""
    asking = {DELAY_DELETION + "volume": "true"}
    world = World(from_flags({"node-deletion-delay-timeout": "12s"}))
    node = replace(world.nodes[0], node=replace(world.nodes[0].node, annotations=asking))
    world.cluster.put(node)
    world.start(drain=False, nodes=[node])
    assert deleted(world.run(16)) == []
    assert deleted(world.run(17)) == [("test://g/a",)]
    world.start(drain=False, nodes=[node])
    world.run(5)
    world.cluster.put(world.nodes[0])
    assert deleted(world.run(10)) == [("test://g/a",)]


BATCHED = from_flags({"node-deletion-batcher-interval": "20s"})


def test_nodes_that_are_ready_within_the_batcher_interval_are_deleted_by_one_call() -> None:
    """It begins with a group's first node: c is ready 5 s after a and b, d with the next batch."""
    world = World(BATCHED, make_group("g", "a", "b", "c", "d"), make_group("h", "x"))
    a, b, c, d, x = world.nodes
    world.start(drain=False, nodes=[a, b, x])
    world.run(4)
    world.start(drain=False, nodes=[c], at_s=5)
    assert deleted(world.run(24)) == []
    world.start(drain=False, nodes=[d], at_s=24)
    assert deleted(world.run(25)) == [("test://g/a", "test://g/b", "test://g/c"), ("test://h/x",)]
    assert world.results == dict.fromkeys("abxc", "ok")
    assert deleted(world.run(48)) == []
    assert deleted(world.run(49)) == [("test://g/d",)]


def test_a_batch_that_the_cloud_refuses_unmarks_all_its_nodes() -> None:
    """And their group has failed."""
    world = World(BATCHED)
    world.refuses = lambda call: Refused() if isinstance(call, DeleteNodes) else None
    world.start(drain=False)
    calls = world.run(25)
    assert deleted(calls) == [("test://g/a", "test://g/b")]
    assert [call.node for call in calls if isinstance(call, UnmarkNode)] == ["a", "b"]
    assert world.results == dict.fromkeys("ab", "failed_to_delete")
    assert world.actuator.last_failed == {"g": 25 * S}


def test_a_group_that_goes_as_one_is_batched_with_its_last_node() -> None:
    """The interval begins when the last node is ready: b, which an annotation delays by 12 s."""
    delayed = replace(BATCHED, node_deletion_delay_timeout_ns=12 * S)
    world = World(delayed, make_group("g", "a", "b", options=ATOMIC))
    a, b = world.nodes
    asking = {DELAY_DELETION + "volume": "true"}
    b = replace(b, node=replace(b.node, annotations=asking))
    world.cluster.put(b)
    world.start(drain=False, nodes=[a, b])
    assert deleted(world.run(36)) == []
    assert deleted(world.run(37)) == [("test://g/a", "test://g/b")]


def test_a_refused_deletion_unmarks_the_node() -> None:
    """The group's failure is noted for delays by group."""
    world = World()
    world.refuses = lambda call: Refused() if isinstance(call, DeleteNodes) else None
    world.start(drain=False, nodes=world.nodes[:1])
    assert [type(call) for call in world.run(5)] == [DeleteNodes, UnmarkNode]
    assert world.results == {"a": "failed_to_delete"}
    assert world.actuator.last_failed == {"g": 5 * S}


def test_a_group_that_goes_as_one_is_deleted_with_its_last_node() -> None:
    """One call; a failure of one node fails them all."""
    world = World(None, make_group("t", "a", "b", options=ATOMIC))
    world.start(drain=False)
    assert deleted(world.run(5)) == [("test://t/a", "test://t/b")]
    failing = World(None, make_group("t", "a", "b", options=ATOMIC))
    failing.start(drain=False)
    failing.put(make_pod("late", node="b"))
    assert deleted(failing.run(5)) == []
    assert failing.results == {"a": "failed_to_delete", "b": "internal"}


@pytest.mark.parametrize(
    ("left", "drains", "expected"),
    [
        (10, 1, (["a", "b"], ["c"])),
        (10, 0, (["a", "b"], [])),
        (2, 1, (["a", "b"], [])),
        (1, 1, (["a"], [])),
        (0, 1, ([], [])),
    ],
)
def test_drains_are_within_both_numbers(
    left: int, drains: int, expected: tuple[list[str], list[str]]
) -> None:
    """Empty nodes first."""
    world = World(None, make_group("g", "a", "b", "c", "d"))
    parallelism = Parallelism(
        cloud=world.cloud, registered=world.nodes, left=left, drains_left=drains
    )
    empty, drain = parallelism.crop(world.nodes[:2], world.nodes[2:])
    chosen = tuple(
        [node.name for bucket in buckets for node in bucket.nodes] for buckets in (empty, drain)
    )
    assert chosen == expected


def test_one_group_that_goes_as_one_may_exceed_the_numbers() -> None:
    """Whole groups only, the first one even beyond the numbers, and before single nodes."""
    world = World(
        None,
        make_group("s", "a", "b", "c", options=ATOMIC),
        make_group("t", "d", "e", options=ATOMIC),
        make_group("u", "x"),
    )
    parallelism = Parallelism(cloud=world.cloud, registered=world.nodes, left=2, drains_left=1)
    empty, drain = parallelism.crop(world.nodes, [])
    assert [(bucket.group.name, bucket.batch_size) for bucket in empty] == [("s", 3)]
    assert drain == []
    partly = Parallelism(cloud=world.cloud, registered=world.nodes, left=9, drains_left=1)
    empty, _ = partly.crop(world.nodes[1:], [])
    assert [bucket.group.name for bucket in empty] == ["t", "u"]


def test_the_cluster_keeps_its_least_cores_memory_and_gpus() -> None:
    """A node is taken off all of them, or none."""
    gpu = replace(make_node("a", 4000, labels={"gpu": "a100"}), provider_id="test://g/a")
    gpu = replace(
        gpu, node=replace(gpu.node, allocatable={**gpu.node.allocatable, "nvidia.com/gpu": 2})
    )
    cloud = Cloud(gpu_label="gpu")
    nodes = [gpu, make_node("x", 4000), make_node("y", 2000)]
    options = from_flags({"cores-total": "4:100", "gpu-total": "a100:1:9"})
    minimum = ResourceMinimum.of(nodes, cloud, options)
    assert minimum.take(gpu) is False
    assert minimum.take(nodes[1]) is True
    assert minimum.take(nodes[2]) is True
    assert minimum.take(nodes[2]) is False


def test_soft_taints_are_bounded_removals_first_and_never_of_nodes_in_deletion() -> None:
    """Two nodes a scan here."""
    world = World(None, make_group("g", *"abcde"))
    by_name = {node.name: node for node in world.nodes}

    def marked(name: str, *keys: str) -> ClusterNode:
        node = by_name[name]
        taints = tuple(replace(_TAINT, key=key) for key in keys)
        return replace(node, node=replace(node.node, taints=taints))

    candidate, doomed = "DeletionCandidateOfClusterAutoscaler", "ToBeDeletedByClusterAutoscaler"
    nodes = [
        by_name["a"],
        marked("b", candidate),
        marked("c", candidate, doomed),
        by_name["d"],
        by_name["e"],
    ]
    world.carry_out(update_soft_taints(nodes, {"a", "d", "e"}, limit=2, now_ns=0))
    marks = [call for call in world.calls if isinstance(call, MarkNode | UnmarkNode)]
    assert [(type(call), call.node) for call in marks] == [(UnmarkNode, "b"), (MarkNode, "a")]


def test_results_are_reported_once() -> None:
    """A second look has none."""
    world = World()
    world.start(drain=False)
    world.run(5)
    assert world.actuator.deletions.take_results()["a"] is DeleteResult.OK
    assert world.actuator.deletions.take_results() == {}
