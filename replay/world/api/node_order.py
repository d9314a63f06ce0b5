"""Orders of nodes: which are drained, or removed, first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from services.kube.requests import CPU, MEMORY, pod_requests
from services.rpc.errors import FieldError
from services.rpc.kube import fields
from services.rpc.kube.spec import PodSpecInterner


class NodeOrder(Enum):
    """An order of nodes; those that are equal in it follow by name."""

    NAME = "name"
    LEAST_USED = "least-used"
    YOUNGEST = "youngest"


def ordered_nodes(
    nodes: Mapping[str, node_pb2.Node], order: NodeOrder, pods: Iterable[pod_pb2.Pod] = ()
) -> list[str]:
    """Return the names of the nodes in an order.

    LEAST_USED: by the share of their allocatable CPU or memory, whichever is larger, that the
    `pods` on them request. YOUNGEST: the node that was created last first.
    """
    match order:
        case NodeOrder.LEAST_USED:
            shares = _shares(nodes, pods)
            return sorted(nodes, key=lambda name: (shares[name], name))
        case NodeOrder.YOUNGEST:
            return sorted(nodes, key=lambda name: (-_created_ns(nodes[name]), name))
    return sorted(nodes)


def _created_ns(node: node_pb2.Node) -> int:
    return node.metadata.creation_timestamp.ToNanoseconds()


def _shares(nodes: Mapping[str, node_pb2.Node], pods: Iterable[pod_pb2.Pod]) -> dict[str, float]:
    specs = PodSpecInterner()
    used = {name: dict.fromkeys((CPU, MEMORY), 0) for name in nodes}
    for pod in pods:
        amounts = used.get(pod.spec.node_name)
        if amounts is None:
            continue
        requests = pod_requests(specs.spec(pod.spec))
        for resource in amounts:
            amounts[resource] += requests.get(resource, 0)
    return {
        name: max(_share(amount, node, resource) for resource, amount in used[name].items())
        for name, node in nodes.items()
    }


def _share(amount: int, node: node_pb2.Node, resource: str) -> float:
    """Return the share of a node's allocatable; 0 if the node does not have it."""
    quantities = node.status.allocatable or node.status.capacity
    try:
        amounts = fields.resources({resource: quantities.get(resource, "0")}, resource)
    except FieldError:
        return 0.0
    return amount / amounts[resource] if amounts[resource] else 0.0
