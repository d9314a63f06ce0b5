"""Rules 26 to 35: what the outcomes of a round do to the next one."""

from __future__ import annotations

from replay.conform.contract.checks import Checks, ContractClient, expect, expect_same
from replay.conform.contract.scheduler.small_cluster import (
    SmallCluster,
    bound,
    ended,
    gone,
    node,
    patched,
    pending,
    pod,
    tick,
    updated,
)
from reprieve.scheduler.v1beta1.scheduler_pb2 import Event

CHECKS = Checks()
LONG_TAINTS = 10
MANY_PODS = 400
"""So many messages about nodes with LONG_TAINTS of the greatest length are more than 2 MiB."""


@CHECKS.level(1, rule=26)
def counts_a_binding_from_its_outcome_on(client: ContractClient) -> None:
    """Check that of two pods with room for one, the second waits until the first is removed."""
    cluster = SmallCluster(client)
    first = bound(cluster.round(0, node("n", 2), pod("a", 2), pod("b", 2)))
    expect("pods bound to a node with room for one", len(first), 1)
    (one,) = first
    other = "b" if one == "a" else "a"
    outcome = cluster.tried(other, cluster.round(5, gone(one)))
    expect(f"bind of {other} once {one} has gone", bound([outcome]), {other: "n"})


@CHECKS.level(1, rule=27)
def tries_a_pod_again_whose_binding_was_refused(client: ContractClient) -> None:
    """Check that it is bound at last, and that its room is free for others."""
    cluster = SmallCluster(client)
    cluster.refuses.add("a")
    expect("bind of a", bound(cluster.round(0, node("n", 2), pod("a", 2))), {"a": "n"})
    outcome = cluster.tried("a", cluster.round(1, node("m", 2)))
    expect("the pod is bound again", list(bound([outcome])), ["a"])
    outcome = cluster.tried("b", cluster.round(3600, pod("b", 2)))
    expect("the room of a refused binding is free", list(bound([outcome])), ["b"])


@CHECKS.level(1, rule=28)
def takes_bindings_from_patches(client: ContractClient) -> None:
    """Check that a confirmed binding counts once, and that others' bindings count, too."""
    cluster = SmallCluster(client)
    expect("bind of a", bound(cluster.round(0, node("n", 4), pod("a", 2))), {"a": "n"})
    expect("bind of b", bound(cluster.round(1, pod("b", 1))), {"b": "n"})
    other = pod("other", 1, scheduler_name="another-scheduler")
    cluster.round(2, other, patched("other", node_name="n"))
    expect("bind on a node that is full", bound(cluster.round(3, pod("c", 1))), {})
    cluster.round(4, patched("c", node_name="n"))
    expect("outcomes of a pod that has a node", cluster.round(20, node("m", 8)), [])


@CHECKS.level(1, rule=29)
def does_not_try_a_pod_for_its_own_status(client: ContractClient) -> None:
    """Check the status patch that a failed attempt causes."""
    cluster = SmallCluster(client)
    expect("binds without room", bound(cluster.round(0, node("n", 2), pod("a", 4))), {})
    expect("outcomes of the status", cluster.round(0, patched("a", status=pending())), [])
    expect("outcomes of the status", cluster.round(60, patched("a", status=pending())), [])


@CHECKS.level(1, rule=30)
def tries_a_pod_again_for_an_event_that_helps(client: ContractClient) -> None:
    """Check pods removed or ended, nodes added or changed, and the pod's own update."""
    gpu = [{"key": "gpu", "operator": "Exists"}]
    tainted, full = node("n", 2, "gpu:NoSchedule"), [node("n", 2), pod("old", 2, on="n")]
    helps: dict[str, tuple[list[Event], Event, Event]] = {
        "a pod was removed": (full, pod("a", 2), gone("old")),
        "a pod has ended": (full, pod("a", 2), patched("old", status=ended())),
        "a node was added": ([], pod("a", 2), node("n", 2)),
        "a node has grown": ([node("n", 1)], pod("a", 2), updated(node("n", 2))),
        "a taint was removed": ([tainted], pod("a"), updated(node("n", 2))),
        "a node was uncordoned": ([node("n", unschedulable=True)], pod("a"), updated(node("n"))),
        "a label was added": (
            [node("n")],
            pod("a", node_selector={"disk": "ssd"}),
            updated(node("n", disk="ssd")),
        ),
        "the pod tolerates the taint": ([tainted], pod("a"), updated(pod("a", tolerations=gpu))),
    }
    for what, (before, event, helpful) in helps.items():
        cluster = SmallCluster(client)
        expect(f"bind before {what}", bound(cluster.round(0, *before, event)), {})
        outcome = cluster.tried("a", cluster.round(60, helpful))
        expect(f"bind after {what}", bound([outcome]), {"a": "n"})


@CHECKS.level(1, rule=31)
def tries_no_pod_before_all_events_are_there(client: ContractClient) -> None:
    """Check events_only: the outcomes are the same as if all events were sent at once."""
    whole, parts = SmallCluster(client), SmallCluster(client)
    events = [*(node(f"n{cpu}", cpu) for cpu in (1, 2, 4)), *(pod(f"p{i}", i) for i in (4, 2))]
    at_once = whole.round(0, *events)
    for event in events[:-1]:
        expect("outcomes of events only", parts.round(0, event, events_only=True), [])
    seen = parts.round(0, events[-1])
    expect("outcomes after events in parts", len(seen), len(at_once))
    for one, other in zip(seen, at_once, strict=True):
        expect_same("an outcome after events in parts", one, other)


@CHECKS.level(1, rule=32)
def tries_as_many_pods_as_it_may(client: ContractClient) -> None:
    """Check that `more` is set while pods are left, and that no pod is lost or tried twice."""
    cluster = SmallCluster(client)
    pods = [pod(f"p{number}", 1) for number in range(5)]
    decided = cluster.round(0, node("n", 4), *pods, max_pods=2)
    expect("pods bound in parts of two", len(bound(decided)), 4)
    expect("pods tried in parts of two", len({outcome.pop.uid for outcome in decided}), 5)
    expect("outcomes in parts of two", len(decided), 5)


@CHECKS.level(1, rule=33)
def numbers_the_attempts_of_a_pod(client: ContractClient) -> None:
    """Check that the cycle of a later attempt is higher."""
    cluster = SmallCluster(client)
    outcome = cluster.tried("a", cluster.round(0, node("n", 2), pod("a", 4)))
    again = cluster.tried("a", cluster.round(60, node("m", 8)))
    expect("pop.cycle of the second attempt is higher", again.pop.cycle > outcome.pop.cycle, True)


@CHECKS.level(1, rule=34)
def asks_for_a_tick_while_a_pod_backs_off(client: ContractClient) -> None:
    """Check a pod that fits soon after its attempt, and a tick that was not requested."""
    cluster = SmallCluster(client)
    cluster.tried("a", cluster.round(0, node("n", 2), pod("a", 4)))
    outcome = cluster.tried("a", cluster.round(0.1, node("m", 8)))
    expect("bind after a tick", bound([outcome]), {"a": "m"})
    expect("outcomes of a tick while no pod waits", cluster.round(3600, tick()), [])


@CHECKS.level(1, rule=35)
def answers_in_parts_below_two_mebibytes(client: ContractClient) -> None:
    """Check many pods whose messages are long."""
    cluster = SmallCluster(client)
    for number in range(LONG_TAINTS):
        key = f"{'domain.' * 35}example/{'k' * 60}{number:03}"
        cluster.round(0, node(f"n{number}", 64, f"{key}={'v' * 63}:NoSchedule"), events_only=True)
    decided = cluster.round(1, *(pod(f"p{number}") for number in range(MANY_PODS)))
    expect("outcomes in parts", len(decided), MANY_PODS)
    expect("pods tried in parts", len({outcome.pop.uid for outcome in decided}), MANY_PODS)
    expect("outcomes after all parts", cluster.round(1), [])
