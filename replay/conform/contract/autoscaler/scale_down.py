"""Rules 13 to 18: nodes that are not needed go, and those that are needed stay."""

from __future__ import annotations

from typing import Any

from replay.conform.contract.autoscaler.small_cloud import (
    SAFE_TO_EVICT,
    TO_BE_DELETED,
    SmallCloud,
    budget,
    changing,
    deleted,
    expect_none,
    group,
    node,
    pod,
)
from replay.conform.contract.checks import CheckError, Checks, ContractClient, expect
from reprieve.autoscaler.v1beta1 import autoscaler_pb2 as pb
from services.kube.time import SECOND_NS

CHECKS = Checks()
UNNEEDED_S = 30
FLAGS = {
    "scale_down_unneeded_time": f"{UNNEEDED_S}s",
    "scale_down_delay_after_add": "0s",
    "max_bulk_soft_taint_count": "0",
}
LAST_S = 120
"""A scan at which a node that may go has long gone."""


def _two_nodes(client: ContractClient, *more: Any, **flags: str) -> SmallCloud:
    """Return a cloud with g-0, which a pod fills, and g-1 of the same group."""
    kept = (group(running=2), node("g-0"), node("g-1"), pod("full", 3, "g-0"))
    return SmallCloud(client, *kept, *more, **FLAGS | flags)


def _why(report: pb.ScanReport, name: str) -> str:
    """Return why a node cannot go, "" if the report does not have it."""
    return next((it.reason for it in report.unremovable if it.node_name == name), "")


@CHECKS.level(3, rule=13)
def deletes_a_node_that_is_unneeded_for_long(client: ContractClient) -> None:
    """Check the time, the reports, the taint before the deletion, and what happens after it."""
    cloud = _two_nodes(client, node_delete_delay_after_taint="5s")
    report = cloud.scan(10)
    since = [(it.node_name, it.since_time_ns) for it in report.unneeded]
    expect("unneeded", since, [("g-1", 10 * SECOND_NS)])
    expect("unremovable", _why(report, "g-1"), "NotUnneededLongEnough")
    expect("unremovable of a node in use", _why(report, "g-0"), "NotUnderutilized")
    expect_none("calls before the unneeded time is over", changing(cloud.run(20, 40)))
    calls, report = cloud.take_scan(50)
    started = [(it.node_name, it.drained) for it in report.deletions]
    expect("deletions after it", started, [("g-1", False)])
    expect("scale_down", report.scale_down, "NodeDeleteStarted")
    marks = [(it.call.mark_node.node_name, it.call.mark_node.taint.key) for it in calls]
    expect("the node's taint before its deletion", ("g-1", TO_BE_DELETED) in marks, expected=True)
    expect("deletions within the delay", deleted(cloud.work_until(54)), [])
    expect("next_due_time_ns is set while a deletion runs", cloud.due_ns is not None, expected=True)
    expect("deletions after the delay", deleted(cloud.work_until(60)), [("g-1", 55)])
    report = cloud.scan(60)
    expect("delete_results", dict(report.delete_results), {"g-1": "ok"})
    expect_none("calls once it is gone", changing(cloud.run(70, LAST_S)))


@CHECKS.level(3, rule=13)
def counts_an_unbroken_time(client: ContractClient) -> None:
    """Check that the unneeded time of a node starts again after it was needed."""
    cloud = _two_nodes(client)
    cloud.run(10, 20)
    cloud.put(pod("brief", 3, "g-1"))
    report = cloud.scan(30)
    expect("unneeded while a pod needs it", [it.node_name for it in report.unneeded], [])
    cloud.remove("Pod", "brief")
    expect("deletions within the new time", deleted(cloud.run(40, 70)), [])
    names = [name for name, _ in deleted(cloud.run(80, LAST_S))]
    expect("deletions after it", names, ["g-1"])


@CHECKS.level(3, rule=14)
def drains_a_node_whose_pods_fit_elsewhere(client: ContractClient) -> None:
    """Check that the node is deleted after its pods are removed, and not before."""
    cloud = _two_nodes(client, pod("a", 1, "g-1"))
    cloud.stays.add("a")
    calls = cloud.run(10, 70)
    evicted = [it.call.evict_pod.name for it in calls if it.call.HasField("evict_pod")]
    expect("evictions of its pod", set(evicted), {"a"})
    expect("deletions while the pod is there", deleted(calls), [])
    cloud.remove("Pod", "a")
    names = [name for name, _ in deleted(cloud.run(80, LAST_S))]
    expect("deletions once it is gone", names, ["g-1"])


@CHECKS.level(3, rule=14)
def evicts_again_where_it_is_refused(client: ContractClient) -> None:
    """Check that a refused eviction is tried again, and that the node goes only once it is not."""
    cloud = _two_nodes(client, pod("a", 1, "g-1"), max_pod_eviction_time="60s")
    cloud.refuses["evict_pod"] = {"a"}
    calls = cloud.run(10, 80)
    tries = [it for it in calls if it.call.HasField("evict_pod")]
    expect("evictions are tried again", len(tries) > 1, expected=True)
    expect("deletions while they are refused", deleted(calls), [])
    cloud.refuses.clear()
    names = [name for name, _ in deleted(cloud.run(90, LAST_S))]
    expect("deletions once the eviction is accepted", names, ["g-1"])


@CHECKS.level(3, rule=15)
def keeps_a_node_with_pods_that_cannot_move(client: ContractClient) -> None:
    """Check pods without a controller, by annotation, by budget, and without another place."""
    annotated = pod("a", 1, "g-1", annotations={SAFE_TO_EVICT: "false"})
    guarded = pod("a", 1, "g-1", labels={"app": "a"})
    blocked = "BlockedByPod"
    for things, reason, why in (
        ([pod("a", 1, "g-1", is_bare=True)], blocked, "NotReplicated"),
        ([annotated], blocked, "NotSafeToEvictAnnotation"),
        ([guarded, budget(0, app="a")], blocked, "NotEnoughPdb"),
        ([pod("a", 1.5, "g-1")], "NoPlaceToMovePods", ""),
        ([pod("a", 2.5, "g-1")], "NotUnderutilized", ""),
    ):
        cloud = _two_nodes(client, *things)
        report = cloud.scan(10)
        expect("unremovable", _why(report, "g-1"), reason)
        (found,) = (it for it in report.unremovable if it.node_name == "g-1")
        expect("blocking_reason", found.blocking_reason, why)
        expect("blocking_pod", found.blocking_pod, "default/a" if why else "")
        calls = changing(cloud.run(20, LAST_S))
        expect_none(f"calls for a node that cannot go: {why or reason}", calls)


@CHECKS.level(3, rule=16)
def keeps_the_minimum_of_a_group(client: ContractClient) -> None:
    """Check a group that could lose two nodes and may lose one."""
    nodes = [node(f"g-{number}") for number in range(3)]
    things = (group(running=3, least=2), *nodes, pod("full", 3, "g-0"))
    cloud = SmallCloud(client, *things, **FLAGS)
    gone = deleted(cloud.run(10, LAST_S))
    if len(gone) != 1:
        raise CheckError(f"deletions of a group of 3 with a minimum of 2 are {gone}, expected one")


@CHECKS.level(3, rule=17)
def deletes_nothing_soon_after_a_scale_up(client: ContractClient) -> None:
    """Check scale-down-delay-after-add, and that a node's time counts meanwhile."""
    cloud = _two_nodes(client, group("h", 8), scale_down_delay_after_add="60s")
    cloud.put(pod("large", 7))
    report = cloud.scan(10)
    expect("scale_up.result", report.scale_up.result, "Successful")
    cloud.register("h", cpu=8)
    cloud.put(pod("large", 7, "h-0"))
    expect("deletions within the cooldown", deleted(cloud.run(20, 60)), [])
    expect("scale_down within it", cloud.scan(60).scale_down, "InCooldown")
    report = cloud.scan(70)
    expect("deletions after it", [it.node_name for it in report.deletions], ["g-1"])


@CHECKS.level(3, rule=18)
def follows_the_options_of_a_group(client: ContractClient) -> None:
    """Check that a group's own unneeded time counts in place of the session's."""
    slow = group("slow", running=1, options={"scale-down-unneeded-time": "80s"})
    cloud = _two_nodes(client, slow, node("slow-0"))
    gone = [name for name, _ in deleted(cloud.run(10, 80))]
    expect("deletions by the session's option", gone, ["g-1"])
    gone = [name for name, _ in deleted(cloud.run(90, LAST_S + 30))]
    expect("deletions by the group's own option", gone, ["slow-0"])
