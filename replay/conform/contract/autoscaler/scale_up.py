"""Rules 1 to 7: steps, and groups that grow for pods which fit on no node."""

from __future__ import annotations

from replay.conform.contract.autoscaler.small_cloud import (
    SmallCloud,
    daemon_set,
    expect_none,
    group,
    increases,
    node,
    pod,
    removed,
    work,
)
from replay.conform.contract.checks import Checks, ContractClient, expect
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2 as service_pb
from reprieve.kube.v1beta1 import object_pb2, workloads_pb2

CHECKS = Checks()


@CHECKS.level(1, rule=1)
def takes_steps_and_changes(client: ContractClient) -> None:
    """Check a scan of a calm cluster, changes without a step, and changes of what it has not."""
    cloud = SmallCloud(client, group(running=1), node("g-0"), pod("a", 3, "g-0"))
    expect_none("calls of a scan in which no pod waits", cloud.calls_of_scan(10))
    gone = [removed("Pod", "nobody"), removed("Node", "nowhere"), removed("Service", "none")]
    unread = object_pb2.KubernetesObject(deployment=workloads_pb2.Deployment())
    unread.deployment.metadata.name, unread.deployment.metadata.namespace = "web", "default"
    changes = [
        *gone,
        service_pb.Change(removed_node_group="none"),
        service_pb.Change(object=unread),
    ]
    cloud.session.send(service_pb.ApplyRequest(changes=changes))
    cloud.take(work(15))
    expect_none("calls of a scan after changes of what is not there", cloud.calls_of_scan(20))


@CHECKS.level(1, rule=2)
def grows_a_group_for_a_pod_that_fits_nowhere(client: ContractClient) -> None:
    """Check size, taints and labels, each by the only group of several that suits.

    The others are first by name, and a pod would fill their nodes.
    """
    tainted, plain = group("a-tainted", 4, "gpu"), group("a-plain", 4)
    small, suits = group("a-small", 2), group("b-suits", 8, labels={"disk": "ssd"})
    for case, other, selector in (
        ("size", small, {}),
        ("a taint", tainted, {}),
        ("a node selector", plain, {"disk": "ssd"}),
    ):
        cloud = SmallCloud(client, other, suits, pod("p", 4, node_selector=selector))
        grown = increases(cloud.calls_of_scan(10))
        expect(f"increases where {case} decides", grown, {"b-suits": 1})
    nowhere = pod("p", 4, node_selector={"disk": "hdd"})
    cloud = SmallCloud(client, small, tainted, plain, suits, nowhere)
    expect_none("calls for a pod that no group suits", cloud.calls_of_scan(10))


@CHECKS.level(1, rule=3)
def grows_no_group_for_pods_with_room(client: ContractClient) -> None:
    """Check pods that fit on existing or upcoming nodes, and pods never tried."""
    untried = pod("untried", 3)
    del untried.status.conditions[:]
    cloud = SmallCloud(client, group(running=1), node("g-0"), pod("fits", 2), untried)
    expect_none("calls for a pod that fits on a node, or was not tried", cloud.calls_of_scan(10))
    cloud.put(pod("a", 3, "g-0"), pod("more", 3))
    cloud.remove("Pod", "fits")
    expect("increases for a pod that fits no more", increases(cloud.calls_of_scan(20)), {"g": 1})
    expect_none("calls while its node is still to come", cloud.calls_of_scan(30))
    cloud.register("g")
    cloud.put(pod("more", 3, "g-1"))
    expect_none("calls once it runs", cloud.calls_of_scan(40))


@CHECKS.level(1, rule=4)
def grows_no_group_beyond_its_maximum(client: ContractClient) -> None:
    """Check a group that has room for less than the pods need, and one that is full."""
    pods = [pod(f"p{number}", 3) for number in range(4)]
    cloud = SmallCloud(client, group(most=2), *pods)
    expect("increases up to the maximum", increases(cloud.calls_of_scan(10)), {"g": 2})
    expect_none("calls of a full group", cloud.calls_of_scan(20))


@CHECKS.level(1, rule=5)
def grows_by_as_many_nodes_as_pods_need(client: ContractClient) -> None:
    """Check that pods share nodes: large ones first, small ones beside them."""
    sizes = (3, 3, 2, 2, 1, 1)
    cloud = SmallCloud(client, group(), *(pod(f"p{n}", cpu) for n, cpu in enumerate(sizes)))
    expect("increases for 12 cores on nodes of 4", increases(cloud.calls_of_scan(10)), {"g": 3})


@CHECKS.level(1, rule=6)
def counts_daemon_sets_on_new_nodes(client: ContractClient) -> None:
    """Check that the pods of DaemonSets count on upcoming nodes."""
    cloud = SmallCloud(client, daemon_set(1), group(), pod("p", 3.5))
    expect_none("calls for a pod beside which no daemon fits", cloud.calls_of_scan(10))
    cloud = SmallCloud(client, daemon_set(1), group(), *(pod(f"p{n}", 1.5) for n in range(4)))
    expect("increases for pods beside daemons", increases(cloud.calls_of_scan(10)), {"g": 2})


@CHECKS.level(1, rule=7)
def follows_changes(client: ContractClient) -> None:
    """Check pods and groups that are removed, and a group's new maximum."""
    cloud = SmallCloud(client, group("a", most=1, running=1), node("a-0"), pod("x", 3, "a-0"))
    cloud.put(pod("p", 3))
    expect_none("calls of a full group", cloud.calls_of_scan(10))
    cloud.put(group("a", most=2, running=1))
    expect("increases of a group that may grow", increases(cloud.calls_of_scan(20)), {"a": 1})
    cloud = SmallCloud(client, group("a"), group("b", 2), pod("p", 3))
    gone = service_pb.Change(removed_node_group="a")
    cloud.session.send(service_pb.ApplyRequest(changes=[gone]))
    expect_none("calls after the only suitable group was removed", cloud.calls_of_scan(10))
    cloud = SmallCloud(client, group("a"), pod("p", 3))
    cloud.remove("Pod", "p")
    expect_none("calls after the pod was removed", cloud.calls_of_scan(10))
