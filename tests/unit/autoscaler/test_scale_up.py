"""What a scale-up may add: limits, similar groups, and the expander's configuration."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.autoscaler.core.estimator.limits import NO_LIMIT, NOTHING, NodeLimiter, node_limit
from services.autoscaler.core.expander.chain import ExpanderChain
from services.autoscaler.core.expander.options import ExpanderContext, ExpansionOption
from services.autoscaler.core.groups import Cloud, NodeGroup
from services.autoscaler.core.objects import ClusterNode
from services.autoscaler.core.options import OptionsError, from_flags
from services.autoscaler.core.scale_up.resource_maximum import ResourceMaximum
from services.autoscaler.core.scale_up.similar_groups import are_similar, balanced
from services.autoscaler.core.simulator.templates import NodeTemplate
from services.kube.node import Node
from services.kube.pod import EMPTY

GIB = 1 << 30
GPU_LABEL = "example.com/gpu-type"


def template(
    cpu_milli: int = 4000, memory: int = 16 * GIB, gpus: int = 0, labels: Mapping[str, str] = EMPTY
) -> ClusterNode:
    """Return a template; one with GPUs has the label of their type, a100."""
    amounts = {"cpu": cpu_milli, "memory": memory, "pods": 110}
    if gpus:
        amounts["nvidia.com/gpu"] = gpus
        labels = {**labels, GPU_LABEL: "a100"}
    return ClusterNode(
        node=Node(name="template", labels=labels, allocatable=amounts, capacity=amounts)
    )


def node_group(
    name: str, target: int = 0, max_size: int = 10, node: ClusterNode | None = None
) -> NodeGroup:
    """Return a group without instances."""
    return NodeGroup(
        name=name, min_size=0, max_size=max_size, target=target, template=node or template()
    )


@pytest.mark.parametrize(
    ("target", "max_nodes_total", "per_scaleup", "expected"),
    [
        (2, 0, 1000, 8),  # what the group may still grow by
        (2, 0, 3, 3),
        (2, 7, 1000, 2),  # five nodes are there
        (2, 5, 1000, NOTHING),
        (10, 0, 1000, NOTHING),
        (2, 0, 0, 8),  # 0: no limit of its own
    ],
)
def test_the_least_limit_bounds_an_estimate(
    target: int, max_nodes_total: int, per_scaleup: int, expected: int
) -> None:
    """Of the group, of the cluster, and of one scale-up."""
    limit = node_limit(
        node_group("g", target),
        (),
        nodes_now=5,
        max_nodes_total=max_nodes_total,
        max_nodes_per_scaleup=per_scaleup,
    )
    assert limit == expected


def test_similar_groups_lend_an_estimate_their_room() -> None:
    """A full one lends none."""
    similar = (node_group("a", 7), node_group("b", 12))
    limit = node_limit(
        node_group("g", 10), similar, nodes_now=0, max_nodes_total=0, max_nodes_per_scaleup=1000
    )
    assert limit == 3


def test_a_limiter_permits_as_many_nodes_as_its_limit_says() -> None:
    """Any number without one."""
    limiter = NodeLimiter(2)
    assert [limiter.permits_another() for _ in range(3)] == [True, True, False]
    assert not NodeLimiter(NOTHING).permits_another()
    assert all(NodeLimiter(NO_LIMIT).permits_another() for _ in range(5))


def test_gpus_of_a_type_are_bounded_beside_cores_and_memory() -> None:
    """The reason names what is exceeded, sorted."""
    options = from_flags({"cores-total": "0:10", "memory-total": "0:1000", "gpu-total": "a100:0:5"})
    cloud = Cloud(gpu_label=GPU_LABEL)
    node = template(gpus=4)
    group = node_group("g", node=node)
    maximum = ResourceMaximum.of([node], cloud, options)
    assert maximum.refusal(group, node, 1) == 'exceeded quota: "cluster-wide", resources: a100'
    assert maximum.allowed(group, node, 3) == 0
    plain = template()
    assert not maximum.refusal(node_group("p", node=plain), plain, 1)
    assert maximum.allowed(node_group("p", node=plain), plain, 3) == 1
    maximum.take(node_group("p", node=plain), plain, 1)
    assert "cpu" in maximum.refusal(node_group("p", node=plain), plain, 1)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 8)), min_size=1, max_size=5),
    st.integers(0, 30),
)
def test_nodes_go_to_the_smallest_groups(sizes: list[tuple[int, int]], count: int) -> None:
    """As a plain twin gives them out one by one; no group exceeds its maximum."""
    groups = [node_group(str(i), target, most) for i, (target, most) in enumerate(sizes)]
    changes = balanced(groups, count)
    after = {change.group.name: change.to_size for change in changes}
    expected = {group.name: group.target for group in groups}
    growing = [group for group in groups if group.target < group.max_size]
    for _ in range(min(count, sum(group.max_size - group.target for group in growing))):
        open_ = [group for group in growing if expected[group.name] < group.max_size]
        expected[min(open_, key=lambda group: expected[group.name]).name] += 1
    sizes_after = sorted(after.get(group.name, group.target) for group in groups)
    assert sizes_after == sorted(expected.values())
    for change in changes:
        assert change.from_size < change.to_size <= change.group.max_size


def test_groups_in_several_zones_are_similar() -> None:
    """Not where another label, a capacity, or more than 1.5 % of the memory differs."""
    options = from_flags({"balancing-ignore-label": "rack"})
    one = NodeTemplate(template(labels={"topology.kubernetes.io/zone": "a", "rack": "1"}))

    def is_similar(node: ClusterNode) -> bool:
        return are_similar(one, NodeTemplate(node), options)

    assert is_similar(template(labels={"topology.kubernetes.io/zone": "b", "rack": "2"}))
    assert is_similar(template(memory=16 * GIB + GIB // 8))
    assert not is_similar(template(memory=17 * GIB))
    assert not is_similar(template(cpu_milli=4001))
    assert not is_similar(template(gpus=1))
    assert not is_similar(template(labels={"team": "x"}))


def test_balancing_labels_replace_every_other_comparison() -> None:
    """A group that lacks one is similar to none."""
    options = from_flags({"balancing-label": "pool"})
    one, other = (NodeTemplate(template(cpu, labels={"pool": "x"})) for cpu in (1000, 8000))
    assert are_similar(one, other, options)
    assert not are_similar(one, NodeTemplate(template(labels={"pool": "y"})), options)
    assert not are_similar(NodeTemplate(template()), NodeTemplate(template()), options)


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ("least-waste,price,least-waste", "least-waste is there twice"),
        ("random,price", "price never has a choice after random"),
        ("cheapest", "'cheapest' is not one of most-pods"),
        ("", "'' is not one of"),
    ],
)
def test_a_chain_of_expanders_that_makes_no_sense_is_refused(names: str, problem: str) -> None:
    """By the name that is wrong."""
    with pytest.raises(OptionsError, match=problem):
        ExpanderChain(names)


@pytest.mark.parametrize(
    ("priorities", "best"),
    [
        ("10: [spot]\n50: [demand]", ["demand-1", "demand-2"]),
        ("10: ['.*']\n50: [demand-2$]", ["demand-2"]),
        ("10: [nothing]", ["demand-1", "demand-2", "spot-1"]),
        ("10: ['(']", ["demand-1", "demand-2", "spot-1"]),
        ("spot: [a]", ["demand-1", "demand-2", "spot-1"]),
        ("- a", ["demand-1", "demand-2", "spot-1"]),
        (None, ["demand-1", "demand-2", "spot-1"]),
    ],
)
def test_priorities_choose_and_unreadable_ones_leave_all(
    priorities: str | None, best: list[str]
) -> None:
    """By regular expressions that are found anywhere in a group's name."""
    options = [
        ExpansionOption(
            group=node_group(name), template=NodeTemplate(template()), node_count=1, pods=()
        )
        for name in ("demand-1", "demand-2", "spot-1")
    ]
    left = ExpanderChain("priority").best(options, ExpanderContext(priorities=priorities))
    assert [option.group.name for option in left] == best
