"""Changes a trace's objects, from the beginning of the trace or from a later time on.

A change is a function from records to records. To make it take effect at a later time, the objects
that exist at that time are compared with the same objects after the change: objects that differ are
updated, objects that the change drops are deleted, and objects that it adds are created, all as the
last records at that time. Later records go through the change as they do from the beginning. Pods
that exist at that time stay unchanged, as in a cluster whose classes or templates change.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from replay.kube.kinds import metadata
from replay.overrides.budgets import BudgetChanges, change_budgets
from replay.overrides.devices import DeviceChanges, change_devices
from replay.overrides.inventory import TraceInventory
from replay.overrides.nodes import NodePlan, change_nodes
from replay.overrides.priority_classes import ClassChange, change_classes
from replay.overrides.requests import RequestFactor, change_requests
from replay.overrides.timed import renumbered
from replay.overrides.workloads import WorkloadChange, change_workloads
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.trace.v1beta1 import trace_pb2

Records = Iterator[trace_pb2.Record]
_Key = tuple[str, str, str]
_END = "the objects that exist have been changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceChanges:
    """Changes by name, in the order in which they are applied."""

    workloads: Mapping[tuple[str, str], WorkloadChange] = field(default_factory=dict)
    classes: Mapping[str, ClassChange] = field(default_factory=dict)
    budgets: BudgetChanges = field(default_factory=BudgetChanges)
    devices: DeviceChanges = field(default_factory=DeviceChanges)
    requests: tuple[RequestFactor, ...] = ()
    nodes: NodePlan = field(default_factory=NodePlan)
    inventory: TraceInventory = field(default_factory=TraceInventory)

    def of(self, records: Records, template_numbers: Iterator[int]) -> Records:
        """Return the changed records; each change reads the result of the previous one.

        template_numbers: the numbers that copies of templates get.
        """
        if self.workloads:
            records = change_workloads(records, self.workloads, self.inventory, template_numbers)
        if self.classes:
            records = change_classes(records, self.classes)
        if self.budgets:
            records = change_budgets(records, self.budgets)
        if self.devices:
            records = change_devices(records, self.devices)
        if self.requests:
            records = change_requests(records, self.requests, template_numbers)
        return change_nodes(records, self.nodes) if self.nodes else records


def from_time(
    records: Iterable[trace_pb2.Record], at_ns: int, change: Callable[[Records], Records]
) -> Records:
    """Yield the records, with `change` applied from `at_ns` on, renumbered."""
    return renumbered(_from_time(iter(records), at_ns, change))


def _from_time(records: Records, at_ns: int, change: Callable[[Records], Records]) -> Records:
    existing = _Existing()
    later: list[trace_pb2.Record] = []
    for record in records:
        if record.time_ns > at_ns:
            later.append(record)
            break
        existing.see(record)
        yield record
    end = trace_pb2.Record(time_ns=at_ns, issue=trace_pb2.ImportIssue(kind=_END))
    changed = change(itertools.chain(existing.records(at_ns), [end], later, records))
    yield from existing.changes(at_ns, changed)
    yield from changed


class _Existing:
    """The state of a trace at one time: objects except pods, templates, and usage of nodes."""

    def __init__(self) -> None:
        self._header = trace_pb2.Record(header=trace_pb2.Header())
        self._others: list[trace_pb2.Record] = []
        self._known = set[bytes]()
        self._objects: dict[_Key, KubernetesObject] = {}

    def see(self, record: trace_pb2.Record) -> None:
        match record.WhichOneof("record"):
            case "header":
                self._header = record
            case "create" | "update" as case:
                message: KubernetesObject = getattr(record, case)
                if not message.HasField("pod"):
                    self._objects[_key(message)] = message
            case "delete":
                ref = record.delete.object
                self._objects.pop((ref.kind, ref.namespace, ref.name), None)
            case "template" | "usage" as case if case == "template" or _is_of_many(record.usage):
                self._others.append(record)
                self._known.add(_content(record, case))

    def records(self, at_ns: int) -> Records:
        """Yield the state as records of a trace that begins at `at_ns`."""
        yield self._header
        yield from self._others
        for message in self._objects.values():
            yield trace_pb2.Record(time_ns=at_ns, create=message)

    def changes(self, at_ns: int, changed: Records) -> Records:
        """Yield the records at `at_ns` that turn this state into that of `changed`."""
        kept = set[_Key]()
        for record in changed:
            match record.WhichOneof("record"):
                case "issue" if record.issue.kind == _END:
                    break
                case "create":
                    key = _key(record.create)
                    kept.add(key)
                    existing = self._objects.get(key)
                    if existing is None:
                        yield trace_pb2.Record(time_ns=at_ns, create=record.create)
                    elif existing != record.create:
                        yield trace_pb2.Record(time_ns=at_ns, update=record.create)
                case "template" | "usage" as case:
                    if _content(record, case) not in self._known:
                        added = trace_pb2.Record()
                        added.CopyFrom(record)
                        added.time_ns = at_ns
                        yield added
        for kind, namespace, name in self._objects:
            if (kind, namespace, name) not in kept:
                gone = trace_pb2.Record(time_ns=at_ns)
                ref = gone.delete.object
                ref.kind, ref.namespace, ref.name = kind, namespace, name
                ref.uid = metadata(self._objects[kind, namespace, name]).uid
                yield gone


def _key(message: KubernetesObject) -> _Key:
    kind: str = getattr(message, message.WhichOneof("object") or "").DESCRIPTOR.name
    meta = metadata(message)
    return kind, meta.namespace, meta.name


def _is_of_many(usage: trace_pb2.UsageProfile) -> bool:
    """Return whether a profile describes a node, or all pods of a template."""
    return bool(usage.node_name or usage.template_id)


def _content(record: trace_pb2.Record, case: str) -> bytes:
    """Return a record's content, without its time and number."""
    content: bytes = getattr(record, case).SerializeToString(deterministic=True)
    return case.encode() + content
