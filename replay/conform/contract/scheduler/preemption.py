"""Rules 40 to 54: who is first, and who has to go."""

from __future__ import annotations

from replay.conform.contract.checks import Checks, ContractClient, expect
from replay.conform.contract.scheduler.small_cluster import (
    SmallCluster,
    bound,
    budget,
    gone,
    node,
    pod,
    terminating,
    updated,
)
from reprieve.scheduler.v1beta1.scheduler_pb2 import Event, Outcome

CHECKS = Checks()


def _expect_victims(outcome: Outcome, victims: set[str]) -> str:
    """Check the victims of an outcome's preemption and return its node."""
    verdict = outcome.unschedulable
    expect("preemption is set", verdict.HasField("preemption"), True)
    expect("preemption.victims", _victims(outcome), victims)
    expect("nominated_node_name", verdict.nominated_node_name, verdict.preemption.node_name)
    return verdict.preemption.node_name


def _victims(outcome: Outcome) -> set[str]:
    preemption = outcome.unschedulable.preemption
    return {victim.pod.uid.removeprefix("uid-") for victim in preemption.victims}


def _expect_no_preemption(client: ContractClient, nodes: list[Event], preemptor: Event) -> None:
    cluster = SmallCluster(client)
    name = preemptor.add.pod.metadata.name
    verdict = cluster.tried(name, cluster.round(0, *nodes, preemptor)).unschedulable
    expect(f"preemption for {name} is set", verdict.HasField("preemption"), False)


def _preempting(client: ContractClient, priority: int = 5) -> SmallCluster:
    """Return a cluster in which pod high preempts low-a and low-b, and low-a is removed."""
    cluster = SmallCluster(client)
    low = [pod(name, 1, 1, on="n") for name in ("low-a", "low-b")]
    outcome = cluster.tried("high", cluster.round(0, node("n", 2), *low, pod("high", 2, priority)))
    _expect_victims(outcome, {"low-a", "low-b"})
    cluster.round(0, terminating("low-a", 0), terminating("low-b", 0))
    return cluster


@CHECKS.level(3, rule=40)
def tries_pods_of_higher_priority_first(client: ContractClient) -> None:
    """Check pods of one round, also without a priority, which is 0, and below that."""
    for name, low, high in (("high", 1, 9), ("none", -5, None), ("zero", -1, 0)):
        cluster = SmallCluster(client)
        decided = cluster.round(0, node("n", 2), pod("low", 2, low), pod(name, 2, high))
        expect("pods bound to a node with room for one", bound(decided), {name: "n"})


@CHECKS.level(3, rule=41)
def tries_pods_of_equal_priority_by_their_age(client: ContractClient) -> None:
    """Check that the pod that has waited longest is tried first."""
    cluster = SmallCluster(client)
    for second, name in enumerate("cab"):
        expect("binds without a node", bound(cluster.round(second, pod(name, 2, 3))), {})
    outcome = cluster.tried("c", cluster.round(60, node("n", 2)))
    expect("bind of the oldest pod", bound([outcome]), {"c": "n"})
    outcome = cluster.tried("a", cluster.round(120, gone("c")))
    expect("bind of the next pod", bound([outcome]), {"a": "n"})


@CHECKS.level(3, rule=42)
def preempts_pods_of_lower_priority_alone(client: ContractClient) -> None:
    """Check pods of equal and of higher priority, whose room would be enough."""
    equal = [node("n", 2), pod("old", 2, 5, on="n")]
    _expect_no_preemption(client, equal, pod("equal", 2, 5))
    mixed = [node("n", 4), pod("top", 2, 9, on="n"), pod("low", 2, 1, on="n")]
    _expect_no_preemption(client, mixed, pod("mid", 4, 5))


@CHECKS.level(3, rule=43)
def does_not_preempt_by_policy_never(client: ContractClient) -> None:
    """Check preemptionPolicy Never, and the default."""
    low = [node("n", 2), pod("low", 2, 1, on="n")]
    _expect_no_preemption(client, low, pod("never", 2, 9, preemption_policy="Never"))
    cluster = SmallCluster(client)
    lower = pod("high", 2, 9, preemption_policy="PreemptLowerPriority")
    _expect_victims(cluster.tried("high", cluster.round(0, *low, lower)), {"low"})


@CHECKS.level(3, rule=44)
def does_not_preempt_where_it_does_not_help(client: ContractClient) -> None:
    """Check a pod that is too large, and nodes that refuse it for another reason."""
    low = pod("low", 2, 1, on="n")
    _expect_no_preemption(client, [node("n", 2), low], pod("vast", 64, 9))
    for cluster in (node("n", 2, "gpu:NoSchedule"), node("n", 2, unschedulable=True)):
        _expect_no_preemption(client, [cluster, low], pod("high", 2, 9))
    choosy = pod("choosy", 2, 9, node_selector={"disk": "ssd"})
    _expect_no_preemption(client, [node("n", 2), low], choosy)


@CHECKS.level(3, rule=45)
def preempts_no_pod_that_can_stay(client: ContractClient) -> None:
    """Check that without any of the victims there would not be enough room."""
    cluster = SmallCluster(client)
    pods = [pod("low", 2, 1, on="n"), pod("mid", 1, 5, on="n"), pod("top", 1, 9, on="n")]
    outcome = cluster.tried("high", cluster.round(0, node("n", 4), *pods, pod("high", 2, 9)))
    _expect_victims(outcome, {"low"})
    cluster = SmallCluster(client)
    three = [pod(name, 1, 1, on="n") for name in ("low-a", "low-b", "low-c")]
    outcome = cluster.tried("high", cluster.round(0, node("n", 3), *three, pod("high", 2, 9)))
    expect("the number of victims", len(_victims(outcome)), 2)


@CHECKS.level(3, rule=46)
def preempts_pods_of_the_node(client: ContractClient) -> None:
    """Check that all victims are on the node of the preemption."""
    cluster = SmallCluster(client)
    nodes = [node("n", 2), node("m", 2), node("o", 2, "gpu:NoSchedule")]
    low = [pod(f"low-{name}", 1, 1, on=name) for name in ("n", "m", "o")]
    also = [pod(f"also-{name}", 1, 1, on=name) for name in ("n", "m", "o")]
    outcome = cluster.tried("high", cluster.round(0, *nodes, *low, *also, pod("high", 2, 9)))
    node_name = outcome.unschedulable.preemption.node_name
    _expect_victims(outcome, {f"low-{node_name}", f"also-{node_name}"})


@CHECKS.level(3, rule=47)
def reserves_room_for_a_nominated_pod(client: ContractClient) -> None:
    """Check pods of lower and of equal priority that are added while a victim terminates."""
    cluster = _preempting(client)
    late = [pod("lower", 1, 1), pod("equal", 1, 5)]
    decided = cluster.round(10, gone("low-a"), *late)
    expect("bind in the room of a nominated pod", bound(decided), {})
    outcome = cluster.tried("high", cluster.round(20, gone("low-b")))
    expect("bind of the nominated pod", bound([outcome]), {"high": "n"})


@CHECKS.level(3, rule=48)
def waits_for_its_victims(client: ContractClient) -> None:
    """Check that a pod whose victims terminate preempts no others."""
    cluster = SmallCluster(client)
    low = [pod(f"low-{name}", 2, 1, on=name) for name in ("n", "m")]
    preemptor = pod("high", 2, 9)
    outcome = cluster.tried("high", cluster.round(0, node("n", 2), node("m", 2), *low, preemptor))
    node_name = outcome.unschedulable.preemption.node_name
    _expect_victims(outcome, {f"low-{node_name}"})
    cluster.round(0, terminating(f"low-{node_name}", 0))
    for outcome in cluster.round(20, node("o", 1), updated(node("o", 1, zone="z"))):
        expect("preemption while a victim terminates", _victims(outcome), set())
    outcome = cluster.tried("high", cluster.round(30, gone(f"low-{node_name}")))
    expect("bind of the preemptor", bound([outcome]), {"high": node_name})


@CHECKS.level(3, rule=49)
def lets_a_pod_of_higher_priority_pass(client: ContractClient) -> None:
    """Check that room is not reserved from pods of higher priority than the nominated one."""
    cluster = _preempting(client)
    outcome = cluster.tried("top", cluster.round(10, gone("low-a"), pod("top", 1, 9)))
    expect("bind of a pod of higher priority", bound([outcome]), {"top": "n"})


@CHECKS.level(3, rule=50)
def frees_reserved_room_with_its_pod(client: ContractClient) -> None:
    """Check that a nomination ends where its pod is removed."""
    cluster = _preempting(client)
    cluster.round(10, gone("low-a"), gone("high"))
    outcome = cluster.tried("late", cluster.round(11, pod("late", 1, 1)))
    expect("bind in room that is free again", bound([outcome]), {"late": "n"})


@CHECKS.level(3, rule=51)
def knows_nominations_of_pods_that_come(client: ContractClient) -> None:
    """Check a pod that is added with status.nominatedNodeName, as after a restart."""
    cluster = SmallCluster(client)
    high = pod("high", 2, 9)
    high.add.pod.status.nominated_node_name = "n"
    low = pod("low", 1, 1, on="n")
    decided = cluster.round(0, node("n", 2), low, high, terminating("low", 0))
    victims = [name for outcome in decided for name in _victims(outcome)]
    expect("victims beside one that terminates", victims, [])
    expect("bind in reserved room", bound(cluster.round(1, pod("late", 1, 1))), {})
    outcome = cluster.tried("high", cluster.round(20, gone("low")))
    expect("bind of the nominated pod", bound([outcome]), {"high": "n"})


@CHECKS.level(3, rule=52)
def marks_victims_beyond_their_budget(client: ContractClient) -> None:
    """Check victims of budgets that allow a disruption, or none, and of no budget."""
    for allowed, label, violates in ((1, "web", False), (0, "web", True), (0, "other", False)):
        cluster = SmallCluster(client)
        low = pod("low", 2, 1, on="n")
        low.add.pod.metadata.labels["app"] = label
        events = (node("n", 2), budget("web", allowed), low, pod("high", 2, 9))
        outcome = cluster.tried("high", cluster.round(0, *events))
        victims = outcome.unschedulable.preemption.victims
        expect("victims' violates_budget", [it.violates_budget for it in victims], [violates])


@CHECKS.level(3, rule=53)
def ends_a_round_at_a_victim_with_a_budget(client: ContractClient) -> None:
    """Check that of two preemptors of one round the second one reads the budget's new status."""
    cluster = SmallCluster(client)
    guarded = [pod(f"low-{n}", 2, 1, on=n) for n in ("n", "m")]
    for event in guarded:
        event.add.pod.metadata.labels["app"] = "web"
    preemptors = (pod("high-a", 2, 9), pod("high-b", 2, 9))
    decided = cluster.round(0, node("n", 2), node("m", 2), *guarded, budget("web", 1), *preemptors)
    expect("outcomes up to a victim with a budget", len(decided), 1)
    expect("awaits_effects", cluster.awaits_effects, True)
    first = decided[0].unschedulable.preemption
    expect("victims' violates_budget", [it.violates_budget for it in first.victims], [False])
    other = "high-b" if decided[0].pop.uid == "uid-high-a" else "high-a"
    (victim,) = _victims(decided[0])
    spent = updated(budget("web", 0))
    outcome = cluster.tried(other, cluster.round(0, terminating(victim, 0), spent))
    second = outcome.unschedulable.preemption
    expect("victims' violates_budget", [it.violates_budget for it in second.victims], [True])


@CHECKS.level(3, rule=54)
def continues_where_a_victim_cannot_be_deleted(client: ContractClient) -> None:
    """Check that the pod is not lost: it is bound once there is room after all."""
    cluster = SmallCluster(client)
    cluster.refuses.add("high")
    low = pod("low", 2, 1, on="n")
    outcome = cluster.tried("high", cluster.round(0, node("n", 2), low, pod("high", 2, 9)))
    _expect_victims(outcome, {"low"})
    expect("binds without room", bound(cluster.round(1)), {})
    outcome = cluster.tried("high", cluster.round(30, gone("low")))
    expect("bind of the preemptor", bound([outcome]), {"high": "n"})
