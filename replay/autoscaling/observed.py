"""Infers node groups from a trace: nodes that are alike, and the number of them over time.

Nodes are grouped by the labels that managed clusters give the nodes of a pool, and by their
machine: its type, capacity and taints. Nodes of a control plane are in no group. Karpenter makes
nodes without groups, and decides otherwise than Cluster Autoscaler does; its pools count as groups
only if that is asked for.

A node that comes later shows how long its group's nodes took: as long as the pod that was bound to
it first had waited, from its first refusal to the node's being ready. That has the autoscaler's
scan in it, some seconds.

Labels: Amazon EKS, `eks.amazonaws.com/nodegroup`; GKE, `cloud.google.com/gke-nodepool` (each zone
of a pool is a group of its own there); AKS, `kubernetes.azure.com/agentpool`; kOps,
`kops.k8s.io/instancegroup`; Cluster API, the annotation `cluster.x-k8s.io/owner-name`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from replay.autoscaling.errors import GroupsError
from replay.autoscaling.file import AutoscalerFile, GroupFile, NodesFile
from replay.trace.validate import claims_devices, pod_template
from replay.world.api.node_health import ready_status
from reprieve.kube.v1beta1 import meta_pb2, node_pb2, pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.node import LABEL_HOSTNAME, LABEL_ZONE
from services.kube.time import MINUTE_NS, SECOND_NS, format_duration
from services.kube.workloads import WORKLOAD_KINDS
from services.rpc.kube import json_codec

POOL_LABELS = (
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "kops.k8s.io/instancegroup",
)
KARPENTER = ("karpenter.sh/nodepool", "karpenter.sh/provisioner-name")
_BY_ZONE = frozenset({"cloud.google.com/gke-nodepool"})
_OWNER = "cluster.x-k8s.io/owner-name"
_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_INSTANCE_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_OF_A_MOMENT = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
OF_AUTOSCALER = ("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler")
"""The keys of the taints that Cluster Autoscaler sets."""
_DELAY_NS_MAX = 15 * MINUTE_NS
"""Cluster Autoscaler's max-node-provision-time: a pod that waited longer has waited for more."""
_NOT_IN_NAMES = re.compile(r"[^a-z0-9.-]+")


@dataclass(frozen=True, slots=True)
class _Shape:
    """The properties that the nodes of one group share."""

    pool: str
    label: str
    zone: str
    machine: str
    taints: tuple[str, ...]


@dataclass(slots=True)
class _Alike:
    """Nodes of one shape: the first of them, all names, those that exist, and how many did.

    delays_ns: how long the later ones took to come.
    """

    first: node_pb2.Node
    names: dict[str, None] = field(default_factory=dict)
    existing: set[str] = field(default_factory=set)
    least: int = 0
    most: int = 0
    delays_ns: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _NewNode:
    """A node that was added after the beginning; `ready_ns` None: it was not ready yet."""

    came_ns: int
    ready_ns: int | None = None


@dataclass(slots=True)
class ObservedNodes:
    """The nodes of a trace, as `add` has seen them.

    nodes: the first version of each. claiming: kind and name of the first object whose pods claim
    devices, "" if none does. as_groups: whether Karpenter's pools count as groups.
    """

    as_groups: bool = False
    nodes: dict[str, node_pb2.Node] = field(default_factory=dict)
    pools_of_karpenter: dict[str, None] = field(default_factory=dict)
    claiming: str = ""
    _start_ns: int | None = None
    _is_counted: bool = False
    _alike: dict[_Shape, _Alike] = field(default_factory=dict)
    _shapes: dict[str, _Shape] = field(default_factory=dict)
    _new: dict[str, _NewNode] = field(default_factory=dict)
    _refused_ns: dict[str, int] = field(default_factory=dict)

    def add(self, record: trace_pb2.Record) -> None:
        """Take a record of the trace."""
        if self._start_ns is None:
            self._start_ns = record.time_ns
        elif record.time_ns > self._start_ns and not self._is_counted:
            self._count_start()
        match record.WhichOneof("record"):
            case "create" | "update":
                message = getattr(record, record.WhichOneof("record") or "")
                if message.HasField("node"):
                    self._put(record.time_ns, message.node)
                elif message.HasField("pod"):
                    self._claims("pod", message.pod.metadata, message.pod.spec)
                elif (template := pod_template(message)) is not None:
                    case = message.WhichOneof("object") or ""
                    meta = getattr(message, case).metadata
                    self._claims(WORKLOAD_KINDS[case], meta, template.spec)
            case "delete" if record.delete.object.kind == "Node":
                self._remove(record.delete.object.name)
            case "template":
                self._claims("pod", record.template.pod.metadata, record.template.pod.spec)
            case "pod_create":
                pod = record.pod_create.pod
                self._claims("pod", pod.metadata, pod.spec)
            case "observed":
                self._observe(record.time_ns, record.observed)

    def _claims(self, kind: str, meta: meta_pb2.ObjectMeta, spec: pod_pb2.PodSpec) -> None:
        if not self.claiming and claims_devices(spec):
            name = f"{meta.namespace or 'default'}/{meta.name or meta.generate_name}"
            self.claiming = f"{kind} {name}"

    def _observe(self, now_ns: int, observed: trace_pb2.Observed) -> None:
        """Follow the waiting pods, and the new nodes that they were bound to."""
        match observed.WhichOneof("observed"):
            case "failed_scheduling":
                self._refused_ns.setdefault(observed.object.uid, now_ns)
            case "removed":
                self._refused_ns.pop(observed.object.uid, None)
            case "scheduled":
                refused_ns = self._refused_ns.pop(observed.object.uid, None)
                name = observed.scheduled.node_name
                node, shape = self._new.pop(name, None), self._shapes.get(name)
                if node is None or shape is None or refused_ns is None:
                    return
                delay_ns = (node.ready_ns or now_ns) - refused_ns
                if refused_ns <= node.came_ns and 0 < delay_ns <= _DELAY_NS_MAX:
                    self._alike[shape].delays_ns.append(delay_ns)

    def _put(self, now_ns: int, node: node_pb2.Node) -> None:
        """Count a node, which stays in the group of its first version."""
        name = node.metadata.name
        if self._is_counted and name not in self.nodes:
            self._new[name] = _NewNode(now_ns)
        if name in self._new and self._new[name].ready_ns is None and ready_status(node) == "True":
            self._new[name].ready_ns = now_ns
        self.nodes.setdefault(name, node)
        shape = self._shapes.get(name) or self._shape(node)
        if shape is None:
            return
        self._shapes[name] = shape
        alike = self._alike.setdefault(shape, _Alike(node))
        alike.names[name] = None
        alike.existing.add(name)
        alike.most = max(alike.most, len(alike.existing))

    def _remove(self, name: str) -> None:
        shape = self._shapes.get(name)
        if shape is not None:
            alike = self._alike[shape]
            alike.existing.discard(name)
            if self._is_counted:
                alike.least = min(alike.least, len(alike.existing))

    def _count_start(self) -> None:
        """Count the nodes of the trace's first moment: the least number begins there."""
        self._is_counted = True
        for alike in self._alike.values():
            alike.least = alike.most = len(alike.existing)

    def _shape(self, node: node_pb2.Node) -> _Shape | None:
        """Return the properties that a node shares with its group, None if it is in no group."""
        labels = node.metadata.labels
        if any(label in labels for label in _CONTROL_PLANE):
            return None
        pool = next((label for label in POOL_LABELS if labels.get(label)), "")
        karpenter = next((label for label in KARPENTER if labels.get(label)), "")
        if karpenter:
            self.pools_of_karpenter[labels[karpenter]] = None
            if not self.as_groups:
                return None
        label = pool or karpenter
        name = labels.get(label, "") or node.metadata.annotations.get(_OWNER, "")
        machine = next((labels[key] for key in _INSTANCE_TYPES if labels.get(key)), "")
        capacity = node.status.capacity or node.status.allocatable
        sizes = ",".join(f"{key}={capacity[key]}" for key in sorted(capacity) if _is_machines(key))
        return _Shape(
            pool=name,
            label=label,
            zone=labels.get(LABEL_ZONE, "") if label in _BY_ZONE else "",
            machine=machine or sizes,
            taints=tuple(
                sorted(f"{taint.key}={taint.value}:{taint.effect}" for taint in _lasting(node))
            ),
        )

    def groups(self) -> Sequence[GroupFile]:
        """Return the groups, in the order of their first nodes. Raises GroupsError."""
        if not self._is_counted:
            self._count_start()
        groups: list[GroupFile] = []
        for shape, alike in self._alike.items():
            name = _free_name(shape, {group.name for group in groups})
            is_pool = bool(shape.label) and not any(
                other.pool == shape.pool and other != shape for other in self._alike
            )
            nodes = (
                NodesFile(labels={shape.label: shape.pool})
                if is_pool
                else NodesFile(names=sorted(alike.names))
            )
            groups.append(
                GroupFile(
                    name=name,
                    min=alike.least,
                    max=alike.most,
                    nodes=nodes,
                    template=plain_template(alike.first),
                    provisioning_delay=list(map(_seconds, sorted(alike.delays_ns))) or None,
                )
            )
        if not groups:
            pools = ", ".join(self.pools_of_karpenter)
            why = (
                f"its nodes are Karpenter's, which decides otherwise than Cluster Autoscaler does; "
                f"--as-groups makes groups of its pools ({pools})"
                if pools
                else "it has no nodes"
            )
            raise GroupsError(f"no node group can be inferred from the trace: {why}")
        return groups


def with_templates(file: AutoscalerFile, observed: ObservedNodes) -> AutoscalerFile:
    """Return a file each of whose groups has a template: the copied node's where one is named.

    Raises GroupsError for a node that the trace does not have.
    """
    groups = []
    for index, group in enumerate(file.groups):
        path = f"groups[{index}]"
        copied = group
        if group.copy:
            node = observed.nodes.get(group.copy)
            if node is None:
                raise GroupsError(f"{path}.copy: the trace has no node {group.copy}")
            copied = replace(group, copy="", template=plain_template(node))
        for name in group.nodes.names:
            if name not in observed.nodes:
                raise GroupsError(f"{path}.nodes.names: the trace has no node {name}")
        groups.append(copied)
    return replace(file, groups=groups)


def fixed(groups: Iterable[GroupFile]) -> list[str]:
    """Return the names of the groups whose size cannot change."""
    return [group.name for group in groups if group.min == group.max]


def plain_template(node: node_pb2.Node) -> Mapping[str, object]:
    """Return the part of a node that a new node of its group shares, as Kubernetes' JSON."""
    kept = node_pb2.Node()
    meta = kept.metadata
    for key, value in sorted(node.metadata.labels.items()):
        if key != LABEL_HOSTNAME:
            meta.labels[key] = value
    kept.spec.taints.extend(_lasting(node))
    for taint in kept.spec.taints:
        taint.ClearField("time_added")
    for key in sorted(node.status.capacity):
        kept.status.capacity[key] = node.status.capacity[key]
    for key in sorted(node.status.allocatable):
        kept.status.allocatable[key] = node.status.allocatable[key]
    plain = json_codec.to_json(kept)
    return {name: part for name, part in plain.items() if part}


def _seconds(delay_ns: int) -> str:
    """Return a delay to the second, rounded up."""
    return format_duration(-(-delay_ns // SECOND_NS) * SECOND_NS)


def _is_machines(resource: str) -> bool:
    """Return whether machines of one kind have the same amount of a resource, to the last byte."""
    return resource in ("cpu", "pods") or "/" in resource


def _lasting(node: node_pb2.Node) -> list[node_pb2.Taint]:
    """Return the taints of a node without those of passing states, such as not-ready."""
    return [
        taint
        for taint in node.spec.taints
        if not taint.key.startswith(_OF_A_MOMENT) and taint.key not in OF_AUTOSCALER
    ]


def _free_name(shape: _Shape, taken: set[str]) -> str:
    parts = [part for part in (shape.pool, shape.zone) if part] or [shape.machine or "nodes"]
    text = _NOT_IN_NAMES.sub("-", "-".join(parts).lower()).strip("-.")
    name, number = text, 1
    while name in taken:
        number += 1
        name = f"{text}-{number}"
    return name
