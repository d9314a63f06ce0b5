"""The tiers, nodes and pods that synthetic workloads are made of."""

from __future__ import annotations

from dataclasses import dataclass

from replay.identity import object_uid
from reprieve.kube.v1alpha1.node_pb2 import Node, Taint
from reprieve.kube.v1alpha1.object_pb2 import Object
from reprieve.kube.v1alpha1.pod_pb2 import Container, Pod, Toleration
from reprieve.kube.v1alpha1.scheduling_pb2 import PriorityClass

GI = 1024  # MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A priority class, the share of the pods that have it, and their grace period in s."""

    name: str
    priority: int
    weight: int
    grace_s: int
    preemption_policy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """A kind of node: cores, MiB, and what it is set aside for ("" for nothing)."""

    name: str
    cores: int
    memory_mib: int
    dedicated: str = ""


TIERS = (
    Tier(name="best-effort", priority=0, weight=40, grace_s=5),
    Tier(name="batch", priority=1_000, weight=30, grace_s=10, preemption_policy="Never"),
    Tier(name="service", priority=100_000, weight=22, grace_s=30),
    Tier(name="critical", priority=1_000_000, weight=8, grace_s=30),
)
NODE_SHAPES = (
    (NodeShape(name="small", cores=8, memory_mib=32 * GI), 55),
    (NodeShape(name="medium", cores=16, memory_mib=64 * GI), 30),
    (NodeShape(name="large", cores=32, memory_mib=128 * GI), 8),
    (NodeShape(name="infra", cores=16, memory_mib=64 * GI, dedicated="infra"), 7),
)
# Requests of pods in millicores and MiB, with their weights.
POD_SIZES = (
    ((250, 512), 20),
    ((500, 2 * GI), 25),
    ((1000, 4 * GI), 25),
    ((2000, 8 * GI), 18),
    ((4000, 12 * GI), 9),
    ((6000, 20 * GI), 3),
)


def priority_class(tier: Tier) -> Object:
    """Return the tier's priority class."""
    result = PriorityClass(value=tier.priority)
    result.metadata.name = tier.name
    if tier.preemption_policy:
        result.preemption_policy = tier.preemption_policy
    return Object(priority_class=result)


def node(name: str, shape: NodeShape, zone: str) -> Object:
    """Return a ready node of the shape."""
    result = Node()
    result.metadata.name = name
    result.metadata.uid = object_uid("Node", "", name)
    result.metadata.labels.update(
        {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": shape.name,
            "topology.kubernetes.io/zone": zone,
        }
    )
    if shape.dedicated:
        result.spec.taints.append(
            Taint(key="dedicated", value=shape.dedicated, effect="NoSchedule")
        )
    amounts = {
        "cpu": str(shape.cores),
        "memory": f"{shape.memory_mib}Mi",
        "ephemeral-storage": "100Gi",
        "pods": "110",
    }
    result.status.capacity.update(amounts)
    result.status.allocatable.update(amounts)
    result.status.conditions.add(type="Ready", status="True", reason="KubeletReady")
    return Object(node=result)


def pod_template(cpu_milli: int, memory_mib: int, *, labels: dict[str, str]) -> Pod:
    """Return a pod of one container with these requests, without a name."""
    result = Pod()
    result.metadata.labels.update(labels)
    container = Container(name="main", image="example/app:1")
    container.resources.requests.update({"cpu": f"{cpu_milli}m", "memory": f"{memory_mib}Mi"})
    result.spec.containers.append(container)
    return result


def in_tier(pod: Pod, tier: Tier) -> Pod:
    """Give the pod its tier's class and grace period; critical pods may stand on infra nodes."""
    pod.spec.priority_class_name = tier.name
    pod.spec.termination_grace_period_seconds = tier.grace_s
    if tier.name == "critical":
        pod.spec.tolerations.append(Toleration(key="dedicated", operator="Exists"))
    return pod
