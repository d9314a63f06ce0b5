"""The inventory of a trace: the names in it that an override may use.

It is taken before the trace is changed and before a service is started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from replay.trace.validate import CONTROLLERS, pod_template
from replay.world.api.pod_record import controller_uid
from reprieve.kube.v1beta1 import (
    device_pb2,
    meta_pb2,
    node_pb2,
    object_pb2,
    pod_pb2,
    policy_pb2,
    scheduling_pb2,
)
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.workloads import WORKLOAD_KINDS
from services.rpc.errors import FieldError
from services.rpc.kube import fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload as the trace creates it.

    key: "namespace/name". owner_uid: the UID of the workload's own controller, "" if it has none.
    labels: the labels of its pods.
    """

    kind: str
    key: str
    uid: str
    owner_uid: str
    labels: Mapping[str, str]
    selector: meta_pb2.LabelSelector


@dataclass(slots=True)
class TraceInventory:
    """The names in a trace.

    classes: PriorityClasses as the trace creates them; None for a class that only pods name.
    budgets, workloads: by "namespace/name". nodes: as the trace creates them, by name. allocatable:
    the sum over all nodes at their creation, by resource ("cpu" in millicores). start_ns: the time
    of the first record. end_ns: the end of the recorded window, 0 for a trace without an end.
    templates: the highest number of a template. slices, device_classes: by name, as the trace has
    them last.
    """

    classes: dict[str, scheduling_pb2.PriorityClass | None] = field(default_factory=dict)
    budgets: dict[str, policy_pb2.PodDisruptionBudget] = field(default_factory=dict)
    workloads: dict[tuple[str, str], Workload] = field(default_factory=dict)
    nodes: dict[str, node_pb2.Node] = field(default_factory=dict)
    allocatable: Counter[str] = field(default_factory=Counter)
    pods: int = 0
    start_ns: int | None = None
    end_ns: int = 0
    templates: int = 0
    slices: dict[str, device_pb2.ResourceSlice] = field(default_factory=dict)
    device_classes: dict[str, device_pb2.DeviceClass] = field(default_factory=dict)

    @property
    def node_labels(self) -> dict[str, Mapping[str, str]]:
        """Return the nodes' labels, by name."""
        return {name: node.metadata.labels for name, node in self.nodes.items()}


def take_inventory(records: Iterable[trace_pb2.Record]) -> TraceInventory:
    """Return the inventory of a whole trace; memory is bounded by its nodes, not by its pods."""
    inventory = TraceInventory()
    for record in records:
        if inventory.start_ns is None:
            inventory.start_ns = record.time_ns
        match record.WhichOneof("record"):
            case "header":
                inventory.end_ns = record.header.window_end_time_ns
            case "template":
                inventory.templates = max(inventory.templates, record.template.id)
                _note_class(inventory, record.template.pod)
            case "pod_create":
                inventory.pods += 1
                _note_class(inventory, record.pod_create.pod)
            case "create" | "update" as case:
                _note_object(inventory, getattr(record, case))
    return inventory


def _note_object(inventory: TraceInventory, message: object_pb2.KubernetesObject) -> None:
    match message.WhichOneof("object"):
        case "pod":
            inventory.pods += 1
            _note_class(inventory, message.pod)
        case "priority_class":
            inventory.classes[message.priority_class.metadata.name] = message.priority_class
        case "pod_disruption_budget":
            budget = message.pod_disruption_budget
            inventory.budgets[_key(budget.metadata)] = budget
        case "resource_slice":
            inventory.slices[message.resource_slice.metadata.name] = message.resource_slice
        case "device_class":
            inventory.device_classes[message.device_class.metadata.name] = message.device_class
        case "node" if message.node.metadata.name not in inventory.nodes:
            node = message.node
            inventory.nodes[node.metadata.name] = node
            inventory.allocatable.update(
                resource_amounts(node.status.allocatable or node.status.capacity)
            )
        case kind if kind in CONTROLLERS:
            _note_workload(inventory, message)


def _note_workload(inventory: TraceInventory, message: object_pb2.KubernetesObject) -> None:
    field_name, template = message.WhichOneof("object") or "", pod_template(message)
    if template is None:
        return
    _note_class_name(inventory, template.spec)
    held = getattr(message, field_name)
    kind, key = WORKLOAD_KINDS[field_name], _key(held.metadata)
    selector = meta_pb2.LabelSelector(match_labels=template.metadata.labels)
    if field_name not in ("replication_controller", "cron_job") and held.spec.HasField("selector"):
        selector = held.spec.selector
    inventory.workloads.setdefault(
        (kind, key),
        Workload(
            kind=kind,
            key=key,
            uid=held.metadata.uid,
            owner_uid=controller_uid(held.metadata),
            labels=dict(template.metadata.labels),
            selector=selector,
        ),
    )


def _key(meta: meta_pb2.ObjectMeta) -> str:
    return f"{meta.namespace or 'default'}/{meta.name}"


def resource_amounts(quantities: Mapping[str, str]) -> dict[str, int]:
    """Return quantities as integers, "cpu" in millicores; invalid quantities are 0."""
    amounts: dict[str, int] = {}
    for name, text in quantities.items():
        try:
            amounts[name] = fields.resources({name: text}, name)[name]
        except FieldError:
            amounts[name] = 0
    return amounts


def _note_class(inventory: TraceInventory, pod: pod_pb2.Pod) -> None:
    _note_class_name(inventory, pod.spec)


def _note_class_name(inventory: TraceInventory, spec: pod_pb2.PodSpec) -> None:
    if spec.priority_class_name:
        inventory.classes.setdefault(spec.priority_class_name, None)
