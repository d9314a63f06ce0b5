"""Machines as nodes, with their attributes as labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b

from replay.importers.borg.events import AttributeEvent, MachineChange, MachineEvent
from replay.importers.made_objects import amounts, make_node
from replay.importers.options import ImportOptions
from replay.importers.records import Issues
from reprieve.kube.v1alpha1.object_pb2 import Object
from reprieve.kube.v1alpha1.object_ref_pb2 import ObjectRef
from reprieve.trace.v1alpha1.trace_pb2 import Delete, Record

PODS = "1000"
"""Pods that a node takes: Borg has no such limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    cpu: Decimal | None
    memory: Decimal | None


class Machines:
    """The machines that are there; memory is bounded by their number and attributes."""

    def __init__(self, options: ImportOptions, issues: Issues) -> None:
        self._options = options
        self._issues = issues
        self._sizes: dict[str, _Size] = {}
        self._labels: dict[str, dict[str, str]] = defaultdict(dict)
        self.removed_us: dict[str, int] = {}

    def has(self, machine: str) -> bool:
        """Tell whether the machine is there."""
        return machine in self._sizes

    def attribute(self, event: AttributeEvent) -> Iterator[Record]:
        """Take an attribute; yield the node's update where the node is there already."""
        labels, key = self._labels[event.machine], label_key(event.name)
        before = labels.get(key)
        if event.value is None:
            labels.pop(key, None)
        else:
            labels[key] = label_value(event.value)
        if self.has(event.machine) and before != labels.get(key):
            node = self._node(event.machine, self._sizes[event.machine])
            yield Record(at_ns=event.at_us * 1000, update=node)

    def change(self, event: MachineEvent) -> Iterator[Record]:
        """Yield what becomes of the machine's node."""
        machine, at_ns = event.machine, event.at_us * 1000
        there = self.has(machine)
        if event.change is MachineChange.REMOVE:
            if not there:
                self._issues.add("unknown-machine", event.where, "removed, and was never added")
                return
            del self._sizes[machine]
            self.removed_us[machine] = event.at_us
            ref = ObjectRef(kind="Node", name=node_name(machine))
            yield Record(at_ns=at_ns, delete=Delete(object=ref, cause="user"))
            return
        before = self._sizes.get(machine)
        size = _Size(
            cpu=event.cpu if event.cpu is not None or before is None else before.cpu,
            memory=event.memory if event.memory is not None or before is None else before.memory,
        )
        if size.cpu is None or size.memory is None:
            self._issues.add("no-capacity", event.where, "a machine of unknown size: nothing fits")
        self._sizes[machine] = size
        node = self._node(machine, size)
        if there:
            yield Record(at_ns=at_ns, update=node)
        else:
            yield Record(at_ns=at_ns, create=node)

    def _node(self, machine: str, size: _Size) -> Object:
        options = self._options
        capacity = {"pods": PODS, **amounts(size.cpu, size.memory, options)}
        percent = options.allocatable_percent
        allocatable = {"pods": PODS, **amounts(size.cpu, size.memory, options, percent)}
        node = make_node(node_name(machine), capacity, allocatable)
        node.metadata.labels.update(self._labels.get(machine, {}))
        return Object(node=node)


def node_name(machine: str) -> str:
    """Return the node of a machine."""
    return f"machine-{machine}"


def label_key(attribute: str) -> str:
    """Return a label's key for an attribute, whose obfuscated name is no key of Kubernetes."""
    return f"attribute.borg/{blake2b(attribute.encode(), digest_size=8).hexdigest()}"


def label_value(value: str) -> str:
    """Return a label's value: a number as it is, for comparisons; a hash of anything else."""
    if value == "" or value.lstrip("-").isdecimal():
        return value
    return blake2b(value.encode(), digest_size=8).hexdigest()
