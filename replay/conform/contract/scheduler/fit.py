"""Rules 10 to 25: on which nodes a pod may be placed.

Where a pod is to be bound, one node fits it: a scheduler may rank nodes as it likes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from replay.conform.contract.checks import Checks, ContractClient, expect
from replay.conform.contract.scheduler.small_cluster import (
    SmallCluster,
    bound,
    container,
    gone,
    node,
    pod,
)
from reprieve.kube.v1beta1 import pod_pb2
from reprieve.scheduler.v1beta1.scheduler_pb2 import Event
from services.kube.taints import UNSCHEDULABLE

CHECKS = Checks()
EXPRESSIONS: Sequence[tuple[str, str, Sequence[str], bool]] = (
    ("disk", "In", ["ssd", "hdd"], True),
    ("disk", "In", ["hdd"], False),
    ("disk", "NotIn", ["hdd"], True),
    ("disk", "NotIn", ["ssd", "hdd"], False),
    ("absent", "NotIn", ["hdd"], True),
    ("disk", "Exists", [], True),
    ("absent", "Exists", [], False),
    ("absent", "DoesNotExist", [], True),
    ("disk", "DoesNotExist", [], False),
    ("cores", "Gt", ["9"], True),
    ("cores", "Gt", ["10"], False),
    ("cores", "Lt", ["11"], True),
    ("cores", "Lt", ["10"], False),
    ("absent", "Lt", ["10"], False),
)
"""Conditions on a node with disk=ssd and cores=10, and whether it meets them."""


def _expect_nodes(
    client: ContractClient, nodes: Sequence[Event], *pods: tuple[Event, str | None]
) -> None:
    """Check the node of each of the pods, which come one after the other; None: no node fits."""
    cluster = SmallCluster(client)
    cluster.round(0, *nodes)
    for second, (event, node_name) in enumerate(pods, 1):
        name = event.add.pod.metadata.name
        expect(
            f"bind.node_name of {name}", bound(cluster.round(second, event)).get(name), node_name
        )


def _expect_request(client: ContractClient, cpu: int, event: Event) -> None:
    """Check that a pod fits a node of so many cores, and none that is smaller by one."""
    _expect_nodes(client, [node("smaller", cpu - 1)], (event, None))
    _expect_nodes(client, [node("n", cpu)], (event, "n"), (pod("next", 1), None))


@CHECKS.level(1, rule=10)
def counts_allocatable_and_not_capacity(client: ContractClient) -> None:
    """Check a node of which pods can use a part, and one that has only a capacity."""
    reserved = node("n", 4)
    reserved.add.node.status.capacity["cpu"] = "64"
    _expect_nodes(client, [reserved], (pod("large", 5), None), (pod("a", 4), "n"))
    plain = node("n", 4)
    plain.add.node.status.ClearField("allocatable")
    _expect_nodes(client, [plain], (pod("large", 5), None), (pod("a", 4), "n"))


@CHECKS.level(1, rule=11)
def counts_every_resource(client: ContractClient) -> None:
    """Check memory, ephemeral storage and an extended resource that few nodes have."""
    for name, amount in (
        ("memory", "40Gi"),
        ("ephemeral-storage", "40Gi"),
        ("example.com/gpu", "1"),
    ):
        pods = [pod(f"p{number}") for number in range(3)]
        for event in pods:
            event.add.pod.spec.containers[0].resources.requests[name] = amount
        without = node("without", amounts={"memory": "1Gi"})
        nodes = [without, node("n", 64, amounts={name: amount})]
        _expect_nodes(client, nodes, (pods[0], "n"), (pods[1], None))


@CHECKS.level(1, rule=12)
def counts_the_pods_of_a_node(client: ContractClient) -> None:
    """Check pods without any request."""
    pods = [pod(f"p{number}", containers=[pod_pb2.Container(name="c")]) for number in range(3)]
    nodes = [node("n", amounts={"pods": "2"})]
    _expect_nodes(client, nodes, (pods[0], "n"), (pods[1], "n"), (pods[2], None))


@CHECKS.level(1, rule=13)
def adds_up_the_containers_of_a_pod(client: ContractClient) -> None:
    """Check a pod of two containers."""
    _expect_request(client, 5, pod("a", containers=[container(2), container(3)]))


@CHECKS.level(1, rule=14)
def counts_the_largest_init_container(client: ContractClient) -> None:
    """Check that init containers run one after the other, before the containers."""
    starting = [container(4), container(3)]
    _expect_request(client, 4, pod("starting", 2, init_containers=starting))
    _expect_request(client, 5, pod("running", 5, init_containers=starting))


@CHECKS.level(1, rule=15)
def counts_sidecars_beside_what_starts_after_them(client: ContractClient) -> None:
    """Check a sidecar beside containers, and before and after an init container."""
    sidecar, large = container(1, restart_policy="Always"), container(4)
    _expect_request(client, 5, pod("beside", 4, init_containers=[sidecar]))
    _expect_request(client, 5, pod("before", 1, init_containers=[sidecar, large]))
    _expect_request(client, 4, pod("after", 1, init_containers=[large, sidecar]))


@CHECKS.level(1, rule=16)
def takes_requests_of_the_pod_as_a_whole(client: ContractClient) -> None:
    """Check that they replace the sum of the containers, for the resources that they name."""
    whole = {"requests": {"cpu": "5"}}
    _expect_request(client, 5, pod("a", containers=[container(1), container(1)], resources=whole))
    memory = pod("b", 1, resources={"requests": {"memory": "2Gi"}})
    _expect_request(client, 1, memory)


@CHECKS.level(1, rule=17)
def adds_the_overhead_of_a_pod(client: ContractClient) -> None:
    """Check that it is added to the containers, and to requests of the pod as a whole."""
    _expect_request(client, 3, pod("a", 2, overhead={"cpu": "1"}))
    whole = {"requests": {"cpu": "3"}}
    _expect_request(client, 4, pod("b", 2, overhead={"cpu": "1"}, resources=whole))


@CHECKS.level(1, rule=18)
def reads_quantities(client: ContractClient) -> None:
    """Check thousandths, fractions, both kinds of suffixes, and exponents."""
    for name, held, fits, exceeds in (
        ("cpu", "1500m", "1.5", "1501m"),
        ("cpu", "2", "2000m", "2.001"),
        ("memory", "1Gi", "1073741824", "1073741825"),
        ("memory", "0.5Gi", "512Mi", "513Mi"),
        ("memory", "1G", "1000M", "1Gi"),
        ("memory", "129e6", "129M", "129001k"),
    ):
        pods = [pod("exceeds", 0), pod("fits", 0)]
        for event, amount in zip(pods, (exceeds, fits), strict=True):
            event.add.pod.spec.containers[0].resources.requests[name] = amount
            if name == "cpu":
                del event.add.pod.spec.containers[0].resources.requests["memory"]
        nodes = [node("n", amounts={name: held})]
        _expect_nodes(client, nodes, (pods[0], None), (pods[1], "n"))


@CHECKS.level(1, rule=19)
def keeps_pods_off_tainted_nodes_by_effect(client: ContractClient) -> None:
    """Check that NoSchedule and NoExecute keep a pod off, and PreferNoSchedule does not."""
    for effect, node_name in (("NoSchedule", None), ("NoExecute", None), ("PreferNoSchedule", "n")):
        _expect_nodes(client, [node("n", 8, f"gpu=a:{effect}")], (pod(effect.lower()), node_name))


@CHECKS.level(1, rule=20)
def matches_tolerations_with_taints(client: ContractClient) -> None:
    """Check key, operator, value and effect, and that each taint needs a toleration."""
    gpu = {"key": "gpu", "operator": "Exists"}
    pods = [
        (pod(f"p{number}", tolerations=[toleration]), node_name)
        for number, (toleration, node_name) in enumerate(
            (
                ({"key": "gpu", "value": "a"}, "n"),
                ({"key": "gpu", "operator": "Equal", "value": "a", "effect": "NoSchedule"}, "n"),
                ({"key": "gpu", "operator": "Equal", "value": "b"}, None),
                ({"key": "gpu"}, None),
                (gpu, "n"),
                ({"operator": "Exists"}, "n"),
                ({"key": "other", "operator": "Exists"}, None),
                ({**gpu, "effect": "NoSchedule"}, "n"),
                ({**gpu, "effect": "NoExecute"}, None),
            )
        )
    ]
    _expect_nodes(client, [node("n", 64, "gpu=a:NoSchedule")], *pods)
    both = [gpu, {"key": "zone", "operator": "Exists", "effect": "NoExecute"}]
    two_taints = node("n", 8, "gpu=a:NoSchedule", "zone=b:NoExecute")
    one, two = pod("one", tolerations=both[:1]), pod("two", tolerations=both)
    _expect_nodes(client, [two_taints], (one, None), (two, "n"))


@CHECKS.level(1, rule=21)
def keeps_pods_off_cordoned_nodes(client: ContractClient) -> None:
    """Check spec.unschedulable, and the toleration of its taint."""
    tolerant = pod("tolerant", tolerations=[{"key": UNSCHEDULABLE, "operator": "Exists"}])
    _expect_nodes(client, [node("n", unschedulable=True)], (pod("a"), None), (tolerant, "n"))


@CHECKS.level(1, rule=22)
def matches_node_selectors(client: ContractClient) -> None:
    """Check that a node must have all labels, with their values."""
    nodes = [node("n", disk="ssd"), node("m", disk="hdd", zone="z")]
    _expect_nodes(
        client,
        nodes,
        (pod("one", node_selector={"disk": "hdd"}), "m"),
        (pod("both", node_selector={"disk": "hdd", "zone": "z"}), "m"),
        (pod("neither", node_selector={"disk": "ssd", "zone": "z"}), None),
        (pod("absent", node_selector={"absent": ""}), None),
    )


def _requiring(*terms: Mapping[str, Any]) -> dict[str, Any]:
    required = {"node_selector_terms": list(terms)}
    return {"node_affinity": {"required_during_scheduling_ignored_during_execution": required}}


def _condition(key: str, operator: str, values: Sequence[str] = ()) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@CHECKS.level(1, rule=23)
def matches_required_node_affinity(client: ContractClient) -> None:
    """Check the operators, terms of which one must match, and conditions of which all must."""
    ssd, hdd = _condition("disk", "In", ["ssd"]), _condition("disk", "In", ["hdd"])
    by_operator = [
        (_requiring({"match_expressions": [_condition(key, operator, values)]}), matches)
        for key, operator, values, matches in EXPRESSIONS
    ]
    combined = [
        (_requiring({"match_expressions": [hdd]}, {"match_expressions": [ssd]}), True),
        (_requiring({"match_expressions": [ssd, hdd]}), False),
        (_requiring({}), False),
        (_requiring({}, {"match_expressions": [ssd]}), True),
    ]
    pods = [
        (pod(f"p{number}", affinity=affinity), "n" if matches else None)
        for number, (affinity, matches) in enumerate(by_operator + combined)
    ]
    preferred = [{"weight": 1, "preference": {"match_expressions": [hdd]}}]
    rather = {"node_affinity": {"preferred_during_scheduling_ignored_during_execution": preferred}}
    required = _requiring({"match_expressions": [ssd]})
    both = pod("both", affinity=required, node_selector={"disk": "hdd"})
    nodes = [node("n", 64, disk="ssd", cores="10")]
    _expect_nodes(client, nodes, *pods, (pod("rather", affinity=rather), "n"), (both, None))


@CHECKS.level(1, rule=24)
def matches_node_affinity_by_name(client: ContractClient) -> None:
    """Check matchFields, by which the pods of a DaemonSet find their nodes."""
    by_name = _condition("metadata.name", "In", ["m"])
    not_by_name = _condition("metadata.name", "NotIn", ["m"])
    ssd = _condition("disk", "In", ["ssd"])
    nodes = [node("n", disk="ssd"), node("m", disk="hdd")]
    _expect_nodes(
        client,
        nodes,
        (pod("in", affinity=_requiring({"match_fields": [by_name]})), "m"),
        (pod("not-in", affinity=_requiring({"match_fields": [not_by_name]})), "n"),
        (
            pod(
                "all", affinity=_requiring({"match_fields": [by_name], "match_expressions": [ssd]})
            ),
            None,
        ),
    )


def _with_port(name: str, port: int, protocol: str = "TCP", address: str = "") -> Event:
    event = pod(name)
    exposed = event.add.pod.spec.containers[0].ports.add(container_port=80, protocol=protocol)
    exposed.host_port, exposed.host_ip = port, address
    return event


@CHECKS.level(1, rule=25)
def keeps_host_ports_apart(client: ContractClient) -> None:
    """Check ports, protocols and addresses, and ports that are not the node's."""
    cluster = SmallCluster(client)
    cluster.round(0, node("n", 64))
    for event, fits in (
        (_with_port("first", 80), True),
        (_with_port("same", 80), False),
        (_with_port("same-address", 80, "TCP", "10.0.0.1"), False),
        (_with_port("udp", 80, "UDP"), True),
        (_with_port("other", 81, "TCP", "10.0.0.1"), True),
        (_with_port("other-address", 81, "TCP", "10.0.0.2"), True),
        (_with_port("every-address", 81), False),
        (_with_port("inside", 0), True),
        (_with_port("inside-too", 0), True),
    ):
        name = event.add.pod.metadata.name
        seen = bound(cluster.round(1, event)).get(name)
        expect(f"bind.node_name of {name}", seen, "n" if fits else None)
    outcome = cluster.tried("same", cluster.round(20, gone("same-address"), gone("first")))
    expect("bind once the port is free", bound([outcome]), {"same": "n"})
