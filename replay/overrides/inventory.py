"""What a trace holds that an override may name: read before anything is changed or started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from replay.trace.validate import pod_template
from reprieve.kube.v1beta1 import object_pb2, pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc import kube_fields
from services.rpc.errors import FieldError


@dataclass(slots=True)
class Inventory:
    """Names by kind.

    classes: priority classes that are created (True), or that pods only name. budgets:
    "namespace/name". nodes: labels at their creation, by name. allocatable: of all nodes at their
    creation, by resource ("cpu" in thousandths of a core, else whole units).
    """

    classes: dict[str, bool] = field(default_factory=dict)
    budgets: dict[str, None] = field(default_factory=dict)
    nodes: dict[str, Mapping[str, str]] = field(default_factory=dict)
    allocatable: Counter[str] = field(default_factory=Counter)
    pods: int = 0


def take_inventory(records: Iterable[trace_pb2.Record]) -> Inventory:
    """Read a whole trace and return what it holds; memory grows with nodes, not with pods."""
    found = Inventory()
    for record in records:
        match record.WhichOneof("record"):
            case "template":
                _note_class(found, record.template.pod)
            case "pod_create":
                found.pods += 1
                _note_class(found, record.pod_create.pod)
            case "create" | "update" as case:
                _note_object(found, getattr(record, case))
    return found


def _note_object(found: Inventory, message: object_pb2.KubernetesObject) -> None:
    match message.WhichOneof("object"):
        case "pod":
            found.pods += 1
            _note_class(found, message.pod)
        case "priority_class":
            found.classes[message.priority_class.metadata.name] = True
        case "pod_disruption_budget":
            meta = message.pod_disruption_budget.metadata
            found.budgets[f"{meta.namespace or 'default'}/{meta.name}"] = None
        case "node" if message.node.metadata.name not in found.nodes:
            node = message.node
            found.nodes[node.metadata.name] = dict(node.metadata.labels)
            found.allocatable.update(amounts(node.status.allocatable or node.status.capacity))
        case _ if (template := pod_template(message)) is not None:
            _note_class_name(found, template.spec)


def amounts(quantities: Mapping[str, str]) -> dict[str, int]:
    """Return quantities as integers, "cpu" in thousandths; those that cannot be read are 0."""
    found: dict[str, int] = {}
    for name, text in quantities.items():
        try:
            found[name] = kube_fields.resources({name: text}, name)[name]
        except FieldError:
            found[name] = 0
    return found


def _note_class(found: Inventory, pod: pod_pb2.Pod) -> None:
    _note_class_name(found, pod.spec)


def _note_class_name(found: Inventory, spec: pod_pb2.PodSpec) -> None:
    if spec.priority_class_name:
        found.classes.setdefault(spec.priority_class_name, False)
