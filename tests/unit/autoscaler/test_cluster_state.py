"""The state of groups: backoff, requests, upcoming nodes, health."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from services.autoscaler.core.calls import Call, Calls, DecreaseTargetSize, Done
from services.autoscaler.core.cluster_state.backoff import GroupBackoff
from services.autoscaler.core.cluster_state.readiness import is_ready
from services.autoscaler.core.cluster_state.registry import ClusterState
from services.autoscaler.core.groups import Cloud, Instance, InstanceState, NodeGroup
from services.autoscaler.core.now import Now
from services.autoscaler.core.objects import ClusterNode
from services.autoscaler.core.options import Options
from services.kube.node import Node
from services.kube.pod import Condition
from services.kube.taints import NOT_READY, Taint, TaintEffect
from services.kube.time import HOUR_NS, MINUTE_NS

M = MINUTE_NS


def node(name: str, group: str = "g", *, ready: bool = True, created_ns: int = 0) -> ClusterNode:
    """Return a node of a group."""
    condition = Condition(type="Ready", status="True" if ready else "False")
    return ClusterNode(
        node=Node(name=name, conditions=(condition,)),
        provider_id=f"test://{group}/{name}",
        creation_ns=created_ns,
    )


def group(
    *names: str, target: int, name: str = "g", errors: Iterable[str] = (), state: str = "Running"
) -> NodeGroup:
    """Return a group with instances; `errors` names those that cannot be created."""
    return NodeGroup(
        name=name,
        min_size=0,
        max_size=10,
        target=target,
        template=ClusterNode(node=Node(name="template")),
        instances=tuple(
            Instance(
                provider_id=f"test://{name}/{instance}",
                state=InstanceState.CREATING if instance in errors else InstanceState(state),
                error_code="QUOTA" if instance in errors else "",
            )
            for instance in names
        ),
    )


def cluster(*groups: NodeGroup) -> ClusterState:
    """Return the state of a cluster that was never scanned."""
    cloud = Cloud()
    for group_ in groups:
        cloud.put(group_)
    backoff = GroupBackoff(initial_ns=5 * M, duration_ns_max=30 * M, reset_ns=3 * HOUR_NS)
    return ClusterState(cloud=cloud, options=Options(), backoff=backoff)


def carried_out(steps: Calls[None]) -> list[Call]:
    """Carry out a part of a step where every call is done, and return the calls."""
    calls: list[Call] = []
    try:
        call = next(steps)
        while True:
            calls.append(call)
            call = steps.send(Done())
    except StopIteration:
        return calls


def test_a_failure_after_the_end_doubles_and_one_during_it_repeats() -> None:
    """The end belongs to the backoff; the longest one is bounded."""
    backoff = GroupBackoff(initial_ns=10, duration_ns_max=30, reset_ns=1000)
    backoff.back_off("g", "a", 0)
    assert backoff.active("g", Now(10)) is not None
    assert backoff.active("g", Now(11)) is None
    backoff.back_off("g", "b", 10)
    assert backoff.failures["g"].until_ns == 20
    backoff.back_off("g", "c", 21)
    assert backoff.failures["g"].until_ns == 41
    backoff.back_off("g", "d", 42)
    assert backoff.failures["g"].until_ns == 72


def test_a_group_is_forgotten_after_its_last_failure() -> None:
    """Strictly later than the reset timeout; the next failure begins anew."""
    backoff = GroupBackoff(initial_ns=10, duration_ns_max=30, reset_ns=100)
    backoff.back_off("g", "a", 0)
    backoff.forget_old(Now(100))
    assert "g" in backoff.failures
    backoff.forget_old(Now(101))
    assert backoff.failures == {}


@pytest.mark.parametrize(
    ("conditions", "taint", "expected"),
    [
        ([("Ready", "True")], None, True),
        ([("Ready", "True"), ("MemoryPressure", "True")], None, True),
        ([("Ready", "True"), ("DiskPressure", "True")], None, False),
        ([("Ready", "Unknown")], None, False),
        ([("Ready", "True")], NOT_READY, False),
        ([], None, False),
    ],
)
def test_a_node_is_ready_unless_something_speaks_against_it(
    conditions: list[tuple[str, str]], taint: str | None, expected: bool
) -> None:
    """Memory pressure does not; without a condition Ready nothing is known."""
    taints = (Taint(key=taint, effect=TaintEffect.NO_SCHEDULE),) if taint else ()
    made = tuple(Condition(type=kind, status=status) for kind, status in conditions)
    assert is_ready(Node(name="n", conditions=made, taints=taints)) is expected


def test_nodes_are_upcoming_while_a_request_is_open_and_the_group_is_not_backed_off() -> None:
    """What the target promises counts only then."""
    state = cluster(group("a", target=3))
    carried_out(state.update([node("a")], Now(0)))
    assert state.upcoming(Now(0)) == {}
    state.register_scale_up(state.cloud.by_name["g"], 2, 0)
    assert state.upcoming(Now(0)) == {"g": 2}
    state.register_failed_scale_up("g", "x", 0)
    assert state.upcoming(Now(0)) == {}


def test_a_fulfilled_request_is_closed() -> None:
    """Nothing is upcoming any more."""
    state = cluster(group("a", "b", target=2))
    carried_out(state.update([node("a")], Now(0)))
    state.register_scale_up(state.cloud.by_name["g"], 1, 0)
    carried_out(state.update([node("a"), node("b")], Now(M)))
    assert state.requests == {}


def test_an_overdue_request_fails_and_asks_for_its_whole_increase_back() -> None:
    """Strictly later than max-node-provision-time after the last increase."""
    state = cluster(group("a", target=3))
    carried_out(state.update([node("a")], Now(0)))
    state.register_scale_up(state.cloud.by_name["g"], 1, 0)
    state.register_scale_up(state.cloud.by_name["g"], 1, M)
    assert carried_out(state.update([node("a")], Now(16 * M))) == []
    calls = carried_out(state.update([node("a")], Now(16 * M + 1)))
    assert calls == [DecreaseTargetSize(group="g", delta=2)]
    assert state.requests == {}
    failure = state.backed_off("g", Now(16 * M + 1))
    assert failure is not None
    assert failure.error_code == "timeout"


def test_an_instance_that_cannot_be_created_counts_once() -> None:
    """It takes itself off the request and has the group back off, at its first sight only."""
    state = cluster(group("a", target=3))
    carried_out(state.update([node("a")], Now(0)))
    state.register_scale_up(state.cloud.by_name["g"], 2, 0)
    state.cloud.put(group("a", "b", target=3, errors=["b"]))
    carried_out(state.update([node("a")], Now(M)))
    assert state.requests["g"].increase == 1
    assert state.backoff.failures["g"].failed_ns == M
    assert state.creation_errors() == {"g": ["test://g/b"]}
    carried_out(state.update([node("a")], Now(2 * M)))
    assert state.requests["g"].increase == 1
    assert state.backoff.failures["g"].failed_ns == M


def test_a_listing_is_kept_until_it_is_refreshed() -> None:
    """A new instance of a group that is not scaling up is not seen before."""
    state = cluster(group("a", target=1))
    carried_out(state.update([node("a")], Now(0)))
    state.cloud.put(group("a", "b", target=1))
    carried_out(state.update([node("a")], Now(M)))
    assert state.unregistered == {}
    state.refresh_listing()
    carried_out(state.update([node("a")], Now(2 * M)))
    assert {id_: instance.since_ns for id_, instance in state.unregistered.items()} == {
        "test://g/b": 2 * M
    }


def test_an_instance_is_long_unregistered_strictly_after_the_provision_time() -> None:
    """Then it is not upcoming, and not expected."""
    state = cluster(group("a", "b", target=2))
    carried_out(state.update([node("a")], Now(0)))
    state.register_scale_up(state.cloud.by_name["g"], 1, 0)
    carried_out(state.update([node("a")], Now(15 * M)))
    assert state.by_group["g"].unregistered == ["test://g/b"]
    carried_out(state.update([node("a")], Now(15 * M + 1)))
    assert state.by_group["g"].long_unregistered == ["test://g/b"]
    assert state.expected_min == {"g": 1}


def test_a_cluster_is_unhealthy_only_above_both_limits() -> None:
    """More than three unready nodes, and more than 45% of all."""
    names = [f"n{number}" for number in range(8)]
    state = cluster(group(*names, target=8))
    late = 16 * M

    def scan(unready: int) -> bool:
        nodes = [node(name, ready=number >= unready) for number, name in enumerate(names)]
        carried_out(state.update(nodes, Now(late)))
        return state.is_healthy

    assert scan(3) is True
    assert scan(4) is False


def test_a_wrong_size_is_remembered_since_it_is_the_same() -> None:
    """A change of either number begins the time anew."""
    state = cluster(group("a", target=3))
    carried_out(state.update([node("a")], Now(0)))
    carried_out(state.update([node("a")], Now(M)))
    assert state.wrong_sizes["g"].since_ns == 0
    state.cloud.put(group("a", target=2))
    carried_out(state.update([node("a")], Now(2 * M)))
    assert state.wrong_sizes["g"].since_ns == 2 * M


def test_a_group_with_missing_nodes_is_unhealthy_beyond_what_was_asked_for() -> None:
    """The open request's increase is not missing."""
    state = cluster(group("a", target=6))
    carried_out(state.update([node("a")], Now(0)))
    assert state.is_group_healthy("g") is False
    state.register_scale_up(state.cloud.by_name["g"], 2, 0)
    state.recalculate()
    assert state.is_group_healthy("g") is True
    assert state.is_group_healthy("none") is False
