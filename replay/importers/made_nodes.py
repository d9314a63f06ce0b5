"""Nodes for traces that have none: made by number and size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

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


def with_made_nodes(
    records: Iterable[Record], amounts: Mapping[str, str], options: ImportOptions
) -> Iterator[Record]:
    """Yield the records, with `options.made_nodes` nodes behind the header.

    Each has `amounts`, and `options.node_amounts` in place of those of the same name.
    """
    chosen = {**amounts, **options.node_amounts}
    for record in records:
        if not record.HasField("header"):
            record.sequence += options.made_nodes
            yield record
            continue
        yield record
        for index in range(options.made_nodes):
            node = make_node(f"node-{index:05d}", chosen, chosen)
            sequence = record.sequence + 1 + index
            yield Record(at_ns=record.at_ns, sequence=sequence, create=Object(node=node))
