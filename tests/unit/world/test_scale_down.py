"""Who goes first when a ReplicaSet shrinks."""

from __future__ import annotations

import pytest

from replay.world.api.pod_record import PodRecord
from replay.world.controllers.workloads.pod_control import DELETION_COST, deletion_cost, first_to_go
from reprieve.trace.v1beta1 import trace_pb2
from tests.unit.world.builders import S, make_pod

NOW_NS = 1000 * S


def record(
    name: str,
    *,
    node: str = "",
    ready_s: int | None = None,
    created_s: int = 0,
    cost: str = "",
    phase: str = "Running",
) -> PodRecord:
    """Return a pod that is ready since `ready_s`, or not ready."""
    message = make_pod(name, node=node or f"node-of-{name}")
    message.status.phase = phase
    message.metadata.creation_timestamp.FromSeconds(created_s)
    if ready_s is not None:
        condition = message.status.conditions.add(type="Ready", status="True")
        condition.last_transition_time.FromSeconds(ready_s)
    if cost:
        message.metadata.annotations[DELETION_COST] = cost
    return PodRecord(uid=name, key=f"default/{name}", message=message, life=trace_pb2.PodLife())


def order(*pods: PodRecord) -> list[str]:
    """Return the pods' names by who goes first."""
    return [pod.message.metadata.name for pod in first_to_go(pods, pods, NOW_NS)]


def test_unassigned_pending_and_not_ready_pods_go_first_in_that_order() -> None:
    """Each criterion beats all after it."""
    unassigned = record("d", ready_s=0, cost="9")
    unassigned.message.spec.node_name = ""
    pods = [
        record("a", ready_s=900, cost="-5"),
        record("b"),
        record("c", phase="Pending"),
        unassigned,
    ]
    assert order(*pods) == ["d", "c", "b", "a"]


def test_a_lower_deletion_cost_goes_before_a_crowded_node() -> None:
    """The cost is the users' word."""
    pods = [
        record("a", node="n", ready_s=0),
        record("b", node="n", ready_s=0),
        record("c", ready_s=0, cost="-1"),
        record("d", ready_s=0),
    ]
    assert order(*pods) == ["c", "a", "b", "d"]


def test_pods_of_the_same_deployment_crowd_a_node_unless_they_end() -> None:
    """Other ReplicaSets' pods count as well."""
    first, second = record("a", ready_s=0), record("b", ready_s=0)
    sibling = record("s", node=second.node_name)
    ending = record("t", node=first.node_name)
    ending.message.metadata.deletion_timestamp.FromSeconds(1)
    ended = record("u", node=first.node_name, phase="Failed")
    ranked = first_to_go([first, second], [first, second, sibling, ending, ended, ended], NOW_NS)
    assert [pod.uid for pod in ranked] == ["b", "a"]


def test_the_shorter_ready_goes_first_by_orders_of_magnitude_only() -> None:
    """Within a power of two the UID decides."""
    assert order(record("a", ready_s=0), record("b", ready_s=900)) == ["b", "a"]
    assert order(record("b", ready_s=0), record("a", ready_s=1)) == ["a", "b"]
    assert order(record("a", ready_s=0), record("b", ready_s=1)) == ["a", "b"]


def test_the_newer_goes_first_where_nothing_else_decides() -> None:
    """Of pods that are not ready too; one of this very moment before all."""
    assert order(record("a", created_s=1), record("b", created_s=990)) == ["b", "a"]
    assert order(record("a", created_s=999), record("b", created_s=1000)) == ["b", "a"]


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("0", 0),
        ("7", 7),
        ("-7", -7),
        ("+7", 0),
        ("07", 0),
        ("-0", 0),
        ("1.5", 0),
        ("", 0),
        ("-", 0),
        ("2147483647", 2**31 - 1),
        ("2147483648", 0),
        ("-2147483648", -(2**31)),
        ("٣", 0),
    ],
)
def test_a_deletion_cost_is_a_plain_int32(text: str, cost: int) -> None:
    """Anything else counts as none."""
    pod = record("p")
    pod.message.metadata.annotations[DELETION_COST] = text
    assert deletion_cost(pod) == cost
