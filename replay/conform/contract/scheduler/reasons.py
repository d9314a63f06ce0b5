"""Rules 36 to 39: why a pod is not placed, in kube-scheduler's words, and the figures beside it."""

from __future__ import annotations

from replay.conform.contract.checks import CheckError, Checks, ContractClient, expect
from replay.conform.contract.scheduler.small_cluster import SmallCluster, bound, gone, node, pod
from reprieve.scheduler.v1beta1.scheduler_pb2 import Event, Unschedulable
from services.kube.time import SECOND_NS

CHECKS = Checks()
NODES_START = "0/{} nodes are available: "
_SSD = {"disk": "ssd"}
_PORT = {"name": "c", "ports": [{"container_port": 80, "host_port": 80, "protocol": "TCP"}]}
REASONS: dict[str, tuple[str, list[Event], Event]] = {
    "1 Insufficient cpu": ("NodeResourcesFit", [node("n", 2)], pod("a", 4)),
    "1 Insufficient example.com/gpu": (
        "NodeResourcesFit",
        [node("n")],
        pod("a", containers=[{"resources": {"requests": {"example.com/gpu": "1"}}}]),
    ),
    "1 Too many pods": ("NodeResourcesFit", [node("n", amounts={"pods": "0"})], pod("a")),
    "1 node(s) had untolerated taint {gpu: a}": (
        "TaintToleration",
        [node("n", 8, "gpu=a:NoSchedule")],
        pod("a"),
    ),
    "1 node(s) were unschedulable": (
        "NodeUnschedulable",
        [node("n", unschedulable=True)],
        pod("a"),
    ),
    "1 node(s) didn't match Pod's node affinity/selector": (
        "NodeAffinity",
        [node("n")],
        pod("a", node_selector=_SSD),
    ),
    "1 node(s) didn't have free ports for the requested pod ports": (
        "NodePorts",
        [node("n"), pod("old", on="n", containers=[_PORT])],
        pod("a", containers=[_PORT]),
    ),
}
"""Reasons with the plugin of each, a cluster, and the pod that has it there."""


def _expect_message(verdict: Unschedulable, start: str, *reasons: str) -> None:
    """Check a message's start and reasons; a message of preemption may follow."""
    if not verdict.message.startswith(start) or any(it not in verdict.message for it in reasons):
        raise CheckError(f"message is {verdict.message!r}, expected {start!r} with {reasons}")


@CHECKS.level(2, rule=36)
def gives_the_message_of_kube_scheduler(client: ContractClient) -> None:
    """Check that nodes are counted by reasons, and a cluster without nodes."""
    cluster = SmallCluster(client)
    verdict = cluster.tried("a", cluster.round(0, pod("a", 1))).unschedulable
    expect("message", verdict.message, "no nodes available to schedule pods")
    nodes = (node("n", 2), node("m", 2), node("tainted", 64, "gpu:NoSchedule"))
    verdict = cluster.tried("b", cluster.round(1, *nodes, pod("b", 4))).unschedulable
    untolerated = "1 node(s) had untolerated taint {gpu: }"
    _expect_message(verdict, NODES_START.format(3), "2 Insufficient cpu", untolerated)
    counts = {reason.reason: reason.nodes for reason in verdict.reasons}
    expect("reasons[Insufficient cpu].nodes", counts.get("Insufficient cpu"), 2)
    expect("nodes of all reasons", sum(counts.values()), 3)


@CHECKS.level(2, rule=37)
def names_reasons_and_plugins(client: ContractClient) -> None:
    """Check the reasons of level 1, each with its plugin."""
    for reason, (plugin, before, event) in REASONS.items():
        cluster = SmallCluster(client)
        verdict = cluster.tried("a", cluster.round(0, *before, event)).unschedulable
        _expect_message(verdict, NODES_START.format(1), reason)
        expect("unschedulable_plugins", list(verdict.unschedulable_plugins), [plugin])


@CHECKS.level(2, rule=38)
def counts_the_attempts_of_a_pod(client: ContractClient) -> None:
    """Check attempts that fail and one that binds, and the time at which the pod came."""
    cluster = SmallCluster(client)
    decided = cluster.round(1, node("n", 2), pod("a", 4))
    decided += cluster.round(60, node("m", 5), pod("old", 2, on="m"))
    decided.append(cluster.tried("a", cluster.round(120, gone("old"))))
    expect("bind of a", bound(decided), {"a": "m"})
    attempts = [outcome.attempts for outcome in decided]
    expect("attempts", attempts, list(range(1, len(decided) + 1)))
    for outcome in decided:
        if outcome.HasField("first_enqueued_time_ns"):
            expect("first_enqueued_time_ns", outcome.first_enqueued_time_ns, SECOND_NS)


@CHECKS.level(2, rule=39)
def counts_nodes_of_a_binding(client: ContractClient) -> None:
    """Check that no more nodes are feasible than were evaluated, or are there; 0 is unknown."""
    cluster = SmallCluster(client)
    decided = cluster.round(0, node("n", 2), node("m", 8), node("o", 8), pod("a", 4))
    expect("pods bound", list(bound(decided)), ["a"])
    evaluated, feasible = decided[0].bind.evaluated_nodes, decided[0].bind.feasible_nodes
    if evaluated or feasible:
        is_possible = 1 <= feasible <= min(evaluated, 2) and evaluated <= 3
        counts = f"{evaluated} and {feasible}"
        expect(f"bind's evaluated_nodes and feasible_nodes, {counts}, can be", is_possible, True)
