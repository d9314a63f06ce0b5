"""Builders of the autoscaler's values for tests."""

from __future__ import annotations

from collections.abc import Mapping

from services.autoscaler.core.objects import ClusterNode, ClusterPod
from services.kube.node import Node
from services.kube.pod import Condition, Container, OwnerReference, Pod, PodSpec
from services.kube.selector import TopologySpreadConstraint as Spread
from services.kube.taints import Taint, Toleration

READY = Condition(type="Ready", status="True", last_transition_ns=0)
EMPTY: Mapping[str, str] = {}


def make_node(
    name: str,
    cpu: int = 4000,
    *,
    labels: Mapping[str, str] = EMPTY,
    annotations: Mapping[str, str] = EMPTY,
    taints: tuple[Taint, ...] = (),
    ready: bool = True,
    unschedulable: bool = False,
) -> ClusterNode:
    """Return a node of group "g" with `cpu` thousandths of a core and 8 GiB."""
    amounts = {"cpu": cpu, "memory": 2**33, "pods": 110}
    node = Node(
        name=name,
        labels={"kubernetes.io/hostname": name, **labels},
        annotations=annotations,
        allocatable=amounts,
        capacity=amounts,
        taints=taints,
        unschedulable=unschedulable,
        conditions=(READY if ready else Condition(type="Ready", status="False"),),
    )
    return ClusterNode(node=node, provider_id=f"test://g/{name}")


def make_spec(
    cpu: int,
    *,
    spread: tuple[Spread, ...] = (),
    tolerations: tuple[Toleration, ...] = (),
    grace_s: int | None = None,
) -> PodSpec:
    """Return a spec that requests `cpu` thousandths of a core."""
    return PodSpec(
        containers=(Container(name="c", requests={"cpu": cpu}),),
        topology_spread_constraints=spread,
        tolerations=tolerations,
        termination_grace_period_s=grace_s,
    )


def make_pod(
    name: str,
    spec: PodSpec | int = 100,
    *,
    node: str = "",
    namespace: str = "default",
    owner: str = "ReplicaSet",
    labels: Mapping[str, str] = EMPTY,
    annotations: Mapping[str, str] = EMPTY,
    creation_ns: int = 0,
    deletion_ns: int | None = None,
    local_volumes: tuple[str, ...] = (),
) -> ClusterPod:
    """Return a pod; `owner` is its controller's kind, "" for none."""
    controller = OwnerReference(
        kind=owner, name="owner", uid="uid-owner", controller=True, api_version="apps/v1"
    )
    pod = Pod(
        uid=f"uid-{name}",
        namespace=namespace,
        name=name,
        spec=make_spec(spec) if isinstance(spec, int) else spec,
        labels=labels,
        annotations=annotations,
        owners=(controller,) if owner else (),
        node_name=node,
        creation_ns=creation_ns,
        deletion_ns=deletion_ns,
    )
    return ClusterPod(pod=pod, local_volumes=local_volumes)
