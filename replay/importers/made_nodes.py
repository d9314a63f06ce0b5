"""Nodes for traces that have none: made by number and size, or taken from another trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from replay.identity import object_uid
from replay.importers.options import ImportOptions
from reprieve.kube.v1alpha1.node_pb2 import Node
from reprieve.kube.v1alpha1.object_pb2 import Object
from reprieve.trace.v1alpha1.trace_pb2 import Record


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


def made_nodes(amounts: Mapping[str, str], options: ImportOptions) -> Iterator[Node]:
    """Yield `options.made_nodes` nodes.

    Each has `amounts`, and `options.node_amounts` in place of those of the same name.
    """
    chosen = {**amounts, **options.node_amounts}
    for index in range(options.made_nodes):
        yield make_node(f"node-{index:05d}", chosen, chosen)


def with_nodes(records: Iterable[Record], nodes: Sequence[Node]) -> Iterator[Record]:
    """Yield the records, with the nodes behind the header."""
    for record in records:
        if not record.HasField("header"):
            record.sequence += len(nodes)
            yield record
            continue
        yield record
        for number, node in enumerate(nodes, record.sequence + 1):
            yield Record(at_ns=record.at_ns, sequence=number, create=Object(node=node))
