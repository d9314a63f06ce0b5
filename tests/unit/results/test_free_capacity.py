"""Why waiting pods cannot use free capacity."""

from __future__ import annotations

from collections import Counter

import pytest

from replay.results.run.cluster import NodeUse
from replay.results.tables.history_rows import CORDONED, FITS, TAINTED, UNSELECTED, free_capacity
from services.kube.node import Node
from services.kube.pod import Container, NodeAffinity, PodSpec
from services.kube.requests import pod_requests
from services.kube.selector import NodeSelector, NodeSelectorTerm, Operator, Requirement
from services.kube.taints import Taint, TaintEffect, Toleration

_TAINT = Taint(key="dedicated", value="infra", effect=TaintEffect.NO_SCHEDULE)


def _spec(cpu: int = 1000, **of: object) -> PodSpec:
    return PodSpec(containers=(Container(name="c", requests={"cpu": cpu}),), **of)  # type: ignore[arg-type] # fields of one test


def _free(spec: PodSpec, used: int = 0, **of: object) -> dict[str, int]:
    """Return the free capacity of a node with four cores, by the reason for one waiting pod."""
    node = Node(name="n", allocatable={"cpu": 4000, "pods": 10}, **of)  # type: ignore[arg-type] # fields of one test
    state = NodeUse(node=node, requested={"cpu": used, "pods": 1})
    capacities = free_capacity([state], Counter([spec]), {spec: pod_requests(spec)})
    return {capacity.reason: capacity.free for capacity in capacities if capacity.resource == "cpu"}


@pytest.mark.parametrize(
    ("spec", "node", "reason"),
    [
        (_spec(), {}, FITS),
        (_spec(5000), {}, "Insufficient cpu"),
        (_spec(), {"used": 3500}, "Insufficient cpu"),
        (_spec(overhead={"x.io/gpu": 1}), {"used": 3500}, "Insufficient cpu and x.io/gpu"),
        (_spec(), {"taints": (_TAINT,)}, TAINTED),
        (_spec(tolerations=(Toleration(operator="Exists"),)), {"taints": (_TAINT,)}, FITS),
        (_spec(), {"unschedulable": True}, CORDONED),
        (_spec(node_selector={"zone": "a"}), {"labels": {"zone": "b"}}, UNSELECTED),
        (_spec(node_selector={"zone": "a"}), {"labels": {"zone": "a"}}, FITS),
    ],
)
def test_free_capacity_is_assigned_to_the_first_reason(
    spec: PodSpec, node: dict[str, object], reason: str
) -> None:
    """Cordon, taints, node affinity, then requests."""
    used = node.get("used", 0)
    assert _free(spec, **node) == {reason: 4000 - int(str(used))}  # type: ignore[arg-type] # fields of one test


def test_required_node_affinity_refuses() -> None:
    """As the scheduler's filter does."""
    wanted = Requirement(key="zone", operator=Operator.IN, values=("a",))
    required = NodeSelector(terms=(NodeSelectorTerm(match_expressions=(wanted,)),))
    spec = _spec(node_affinity=NodeAffinity(required=required))
    assert _free(spec, labels={"zone": "b"}) == {UNSELECTED: 4000}


def test_waiting_pods_divide_free_capacity_by_their_reasons() -> None:
    """Three of four cannot have it for its size."""
    large, small = _spec(9000), _spec(100)
    state = NodeUse(node=Node(name="n", allocatable={"cpu": 4000, "pods": 10}))
    amounts = {spec: pod_requests(spec) for spec in (large, small)}
    capacities = free_capacity([state], Counter({large: 3, small: 1}), amounts)
    shares = {
        capacity.reason: capacity.free for capacity in capacities if capacity.resource == "cpu"
    }
    assert shares == {"Insufficient cpu": 3000, FITS: 1000}


def test_where_no_pod_waits_there_is_no_reason() -> None:
    """And where there is no node, nothing is free."""
    state = NodeUse(node=Node(name="n", allocatable={"cpu": 4000}))
    capacities = {
        (capacity.resource, capacity.reason, capacity.free)
        for capacity in free_capacity([state], Counter(), {})
    }
    assert capacities == {("cpu", "", 4000), ("memory", "", 0)}
    assert [capacity.free for capacity in free_capacity([], Counter(), {})] == [0, 0]
