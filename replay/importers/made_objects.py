"""Objects of traces that are no Kubernetes objects: nodes, pods, priority classes, and amounts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal

from replay.identity import object_uid
from replay.importers.options import ImportOptions
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.kube.v1beta1.node_pb2 import Node
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.kube.v1beta1.scheduling_pb2 import PriorityClass
from reprieve.trace.v1beta1.trace_pb2 import ImportIssue, Record

NAMESPACE = "default"


def machine_amounts(options: ImportOptions) -> Mapping[str, str]:
    """Return what a made node has where nothing else is said: one whole machine."""
    return {
        "cpu": f"{options.unit_cpu_milli}m",
        "memory": str(options.unit_memory_bytes),
        "pods": "110",
    }


def make_node(name: str, capacity: Mapping[str, str], allocatable: Mapping[str, str]) -> Node:
    """Return a ready node with the usual labels and these amounts."""
    node = Node()
    node.metadata.name, node.metadata.uid = name, object_uid("Node", "", name)
    node.metadata.labels.update({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"})
    node.status.capacity.update(capacity)
    node.status.allocatable.update(allocatable)
    node.status.conditions.add(type="Ready", status="True", reason="KubeletReady")
    return node


def make_pod(name: str, container: str, requests: Mapping[str, str]) -> Pod:
    """Return a pod of one container, in NAMESPACE."""
    pod = Pod()
    pod.metadata.name, pod.metadata.namespace = name, NAMESPACE
    pod.metadata.uid = object_uid("Pod", NAMESPACE, name)
    pod.spec.containers.add(name=container).resources.requests.update(requests)
    return pod


def pod_ref(pod: Pod) -> ObjectReference:
    """Return the name of a pod for a record."""
    meta = pod.metadata
    return ObjectReference(kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid)


def priority_class(name: str, value: int) -> KubernetesObject:
    """Return a class that pods name."""
    result = PriorityClass(value=value)
    result.metadata.name = name
    return KubernetesObject(priority_class=result)


def made_nodes(amounts: Mapping[str, str], options: ImportOptions) -> Iterator[Node]:
    """Yield `options.made_nodes` nodes.

    Each has `amounts`, and `options.node_amounts` in place of those of the same name.
    """
    chosen = {**amounts, **options.node_amounts}
    for index in range(options.made_nodes):
        yield make_node(f"node-{index:05d}", chosen, chosen)


def completed(
    records: Iterable[Record], nodes: Sequence[Node], issues: Iterable[ImportIssue]
) -> Iterator[Record]:
    """Yield the records, with nodes behind the header and issues at the end."""
    last, shift = Record(), 0
    for record in records:
        record.sequence += shift
        yield record
        last = record
        if record.HasField("header"):
            for node in nodes:
                create = KubernetesObject(node=node)
                last = Record(at_ns=last.at_ns, sequence=last.sequence + 1, create=create)
                yield last
            shift = len(nodes)
    for issue in issues:
        last = Record(at_ns=last.at_ns, sequence=last.sequence + 1, issue=issue)
        yield last


def scaled(share: Decimal, unit: int) -> int:
    """Return `share` of `unit`, rounded up; equal shares stay equal, so that what fitted fits."""
    return int((share * unit).to_integral_value(ROUND_CEILING))


def amounts(
    cpu: Decimal | None, memory: Decimal | None, options: ImportOptions, percent: int = 100
) -> dict[str, str]:
    """Return quantities of the shares that are known, `percent` of them."""
    factor = Decimal(percent) / 100
    result = {}
    if cpu is not None:
        result["cpu"] = f"{scaled(cpu * factor, options.unit_cpu_milli)}m"
    if memory is not None:
        result["memory"] = str(scaled(memory * factor, options.unit_memory_bytes))
    return result
