"""The nodes that a createNodes operation makes.

Source: kubernetes v1.36 test/integration/scheduler_perf, executor.go (getNodePreparer),
node_util.go (PrepareNodes) and runners.go (the strategies); pkg/apis/core/v1/defaults.go
(SetDefaults_NodeStatus: allocatable is capacity where it is absent).
"""

from __future__ import annotations

from collections.abc import Iterator

from replay.identity import object_uid
from replay.importers.kinds import to_object
from replay.importers.perf.names import Names
from replay.importers.perf.object_files import ObjectFiles
from replay.importers.perf.workload import Operation
from replay.trace.errors import TraceError
from reprieve.kube.v1alpha1.node_pb2 import Node
from reprieve.kube.v1alpha1.object_pb2 import Object
from services.rpc.errors import FieldError

_HOSTNAME = "kubernetes.io/hostname"
_MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"


def made_nodes(operation: Operation, files: ObjectFiles, names: Names) -> Iterator[Object]:
    """Yield the operation's nodes, each followed by its CSINode where it gets one."""
    count, template = operation.count(), operation.text("nodeTemplatePath")
    for index in range(count):
        if template:
            made = files.make(template, operation.template_values(index, count))
        else:
            made = Object(node=_base(f"node-{operation.index}-"))
        if made is None or made.WhichOneof("object") != "node":
            raise TraceError(str(files.path(template)), "is no template of a node")
        _prepare(operation, made.node, names, index)
        yield made
        if (csi_node := _csi_node(operation, made.node)) is not None:
            yield csi_node


def fill_in(node: Node) -> None:
    """Give the node its UID, and allocatable where it has none."""
    node.metadata.uid = object_uid("Node", "", node.metadata.name)
    if not node.status.allocatable:
        node.status.allocatable.update(node.status.capacity)


def _base(prefix: str) -> Node:
    node = Node()
    node.metadata.generate_name = prefix
    node.status.capacity.update({"pods": "110", "cpu": "4", "memory": "32Gi"})
    node.status.conditions.add(type="Ready", status="True")
    return node


def _prepare(operation: Operation, node: Node, names: Names, index: int) -> None:
    names.name(node.metadata, "Node")
    fill_in(node)
    node.metadata.labels[_HOSTNAME] = node.metadata.name
    labels = operation.mapping("labelNodePrepareStrategy")
    values = labels.get("labelValues")
    if isinstance(values, list) and values:
        node.metadata.labels[str(labels.get("labelKey"))] = str(values[index % len(values)])
    if key := operation.mapping("uniqueNodeLabelStrategy").get("labelKey"):
        node.metadata.labels[str(key)] = object_uid("label", str(key), node.metadata.name)
    amounts = operation.mapping("nodeAllocatableStrategy").get("nodeAllocatable")
    for resource, amount in (amounts if isinstance(amounts, dict) else {}).items():
        node.status.allocatable[str(resource)] = str(amount)


def _csi_node(operation: Operation, node: Node) -> Object | None:
    """Return what tells how many volumes the node takes; None where the operation does not say."""
    strategy = operation.mapping("nodeAllocatableStrategy")
    if not strategy:
        return None
    drivers, migrated = strategy.get("csiNodeAllocatable"), strategy.get("migratedPlugins")
    migrated = migrated if isinstance(migrated, list) else []
    raw = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {
            "name": node.metadata.name,
            "uid": object_uid("CSINode", "", node.metadata.name),
            "annotations": {_MIGRATED: ",".join(map(str, migrated))},
        },
        "spec": {
            "drivers": [
                {"name": name, "nodeID": node.metadata.name, "allocatable": allocatable}
                for name, allocatable in (drivers if isinstance(drivers, dict) else {}).items()
            ]
        },
    }
    try:
        return to_object(raw)
    except FieldError as error:
        raise TraceError(operation.where, f"csiNodeAllocatable: {error}") from error
