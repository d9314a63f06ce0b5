"""Tasks of Google's traces as pods with usage profiles, and machines as nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import blake2b

from replay.hashing import object_uid
from replay.importers.datacenter import borg_events as borg
from replay.importers.records import ImportOptions, Issues
from replay.importers.rows import NAMESPACE, ceil_product, make_node, make_pod, share_quantities
from reprieve.kube.v1beta1.affinity_pb2 import NodeSelectorTerm
from reprieve.kube.v1beta1.meta_pb2 import ObjectReference
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.trace.v1beta1.trace_pb2 import Delete, Record, UsageProfile

GATE = "borg/queued"
_COLLECTION, _CLASS = "borg/collection", "borg/scheduling-class"
_HOSTNAME = "kubernetes.io/hostname"
WINDOWS_MAX = 512
_REQUIREMENTS = {
    borg.ConstraintOperator.EQUAL: ("In", 0),
    borg.ConstraintOperator.NOT_EQUAL: ("NotIn", 0),
    borg.ConstraintOperator.LESS_THAN: ("Lt", 0),
    borg.ConstraintOperator.LESS_THAN_EQUAL: ("Lt", 1),
    borg.ConstraintOperator.GREATER_THAN: ("Gt", 0),
    borg.ConstraintOperator.GREATER_THAN_EQUAL: ("Gt", -1),
    borg.ConstraintOperator.PRESENT: ("Exists", 0),
    borg.ConstraintOperator.NOT_PRESENT: ("DoesNotExist", 0),
}
"""Operators of node affinity, and what is added to an integer value."""
_Window = tuple[int, Decimal | None, Decimal | None]
PODS = "1000"
"""The pods of a node: Borg has no such limit."""


@dataclass(slots=True, kw_only=True)
class Task:
    """A task from its first SUBMIT to its end; times are us, None before the event.

    `number` counts tasks in the order of their SUBMITs. `ran_us` is the sum of the runs so far.
    `dead_us` is the end of a run by an eviction or a failure, after which the task may be submitted
    again. `first_machine` is where it ran at the start of the trace.
    """

    submit: borg.TaskEvent
    number: int = 0
    different_machines: bool = False
    constraints: list[borg.Constraint] = field(default_factory=list)
    running_us: int | None = None
    ran_us: int = 0
    machine: str = ""
    first_machine: str = ""
    dead_us: int | None = None
    failed: bool = False
    queued: bool = False
    enabled_us: int | None = None
    usage: list[_Window] = field(default_factory=list)
    _ref: ObjectReference | None = None

    @property
    def name(self) -> str:
        """Return the pod's name; a task that is submitted again after its end is another pod."""
        collection, index = self.submit.key
        since = f"-{self.submit.at_us}" if self.submit.at_us else ""
        return f"{collection}-{index}{since}"

    def ref(self) -> ObjectReference:
        """Return the pod's reference, which must not be changed."""
        if self._ref is None:
            uid = object_uid("Pod", NAMESPACE, self.name)
            self._ref = ObjectReference(kind="Pod", namespace=NAMESPACE, name=self.name, uid=uid)
        return self._ref

    def stop(self, at_us: int) -> None:
        """End the run."""
        if self.running_us is not None:
            self.ran_us += max(0, at_us - self.running_us)
            self.running_us = None


def class_name(priority: int) -> str:
    """Return the name of the PriorityClass with the trace's priority as its value."""
    return f"borg-{priority}"


def task_pod(task: Task, options: ImportOptions) -> Pod:
    """Return the task's pod; gated where the task was queued, bound where it ran at the start."""
    submit = task.submit
    pod = make_pod(task.name, "task", share_quantities(submit.cpu, submit.memory, options))
    pod.metadata.labels[_COLLECTION] = str(submit.key[0])
    if submit.scheduling_class:
        pod.metadata.labels[_CLASS] = submit.scheduling_class
    pod.spec.priority_class_name = class_name(submit.priority)
    pod.spec.priority = submit.priority
    if task.different_machines:
        _require_different_nodes(pod)
    if task.constraints:
        _require_attributes(pod, task.constraints)
    if task.queued:
        pod.spec.scheduling_gates.add(name=GATE)
    if task.first_machine:
        pod.spec.node_name = node_name(task.first_machine)
        pod.status.phase = "Running"
        pod.status.start_time.SetInParent()
    return pod


def _require_different_nodes(pod: Pod) -> None:
    affinity = pod.spec.affinity.pod_anti_affinity
    term = affinity.required_during_scheduling_ignored_during_execution.add()
    term.topology_key = _HOSTNAME
    term.label_selector.match_labels[_COLLECTION] = pod.metadata.labels[_COLLECTION]


def _require_attributes(pod: Pod, constraints: list[borg.Constraint]) -> None:
    affinity = pod.spec.affinity.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution
    term = required.node_selector_terms.add()
    for constraint in constraints:
        _require(term, constraint)


_DIGITS_MAX = 20
"""More digits than a number of 64 bits has."""


def _require(term: NodeSelectorTerm, constraint: borg.Constraint) -> None:
    """Add the constraint's requirement; an empty value means that the attribute is missing."""
    key, operator, value = label_key(constraint.name), constraint.operator, constraint.value
    name, moved = _REQUIREMENTS[operator]
    if not value:
        name = {"In": "DoesNotExist", "NotIn": "Exists"}.get(name, name)
    if name in {"Exists", "DoesNotExist"}:
        term.match_expressions.add(key=key, operator=name)
        return
    if moved and len(value) < _DIGITS_MAX and value.lstrip("-").isdecimal():
        value = str(int(value) + moved)
    term.match_expressions.add(key=key, operator=name, values=[label_value(value)])


def add_usage(task: Task, event: borg.TaskUsageEvent) -> bool:
    """Add a window to a running task; return whether windows were merged to keep WINDOWS_MAX.

    Windows count from the sum of the task's earlier runs, since a pod of a replay has one run.
    """
    offset_us = task.ran_us + max(0, event.at_us - (task.running_us or 0))
    if task.usage and task.usage[-1][0] >= offset_us:
        return False
    task.usage.append((offset_us, event.cpu, event.memory))
    if len(task.usage) <= WINDOWS_MAX:
        return False
    task.usage[:] = [
        (first[0], _larger(first[1], second[1]), _larger(first[2], second[2]))
        for first, second in zip(task.usage[::2], [*task.usage[1::2], task.usage[-1]], strict=False)
    ]
    return True


def usage_profile(number: int, windows: Sequence[_Window], options: ImportOptions) -> UsageProfile:
    """Return the profile of a task's windows."""
    profile = UsageProfile(id=number)
    for offset_us, cpu, memory in windows:
        segment = profile.segments.add(offset_duration_ns=offset_us * 1000)
        if cpu is not None:
            segment.cpu_milli = ceil_product(cpu, options.unit_cpu_milli)
        if memory is not None:
            segment.memory_bytes = ceil_product(memory, options.unit_memory_bytes)
    if profile.segments:
        profile.segments[0].offset_duration_ns = 0
    return profile


def _larger(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    return max((amount for amount in (one, other) if amount is not None), default=None)


class MachineNodes:
    """The nodes of a trace's machines; memory is bounded by machines and their attributes."""

    def __init__(self, options: ImportOptions, issues: Issues) -> None:
        self._options = options
        self._issues = issues
        self._sizes: dict[str, tuple[Decimal | None, Decimal | None]] = {}
        self._labels: dict[str, dict[str, str]] = defaultdict(dict)
        self.removed_us: dict[str, int] = {}

    def has(self, machine: str) -> bool:
        """Return whether the machine was added and not removed."""
        return machine in self._sizes

    def attribute(self, event: borg.MachineAttributeEvent) -> Iterator[Record]:
        """Set an attribute; yield the node's update if the node exists."""
        labels, key = self._labels[event.machine], label_key(event.name)
        before = labels.get(key)
        if event.value is None:
            labels.pop(key, None)
        else:
            labels[key] = label_value(event.value)
        if self.has(event.machine) and before != labels.get(key):
            node = self._node(event.machine, *self._sizes[event.machine])
            yield Record(time_ns=event.at_us * 1000, update=node)

    def change(self, event: borg.MachineEvent) -> Iterator[Record]:
        """Yield the creation, the update or the deletion of the machine's node."""
        machine, at_ns = event.machine, event.at_us * 1000
        exists = self.has(machine)
        if event.change is borg.MachineChange.REMOVE:
            if not exists:
                self._issues.add("unknown-machine", event.where, "removed, and was never added")
                return
            del self._sizes[machine]
            self.removed_us[machine] = event.at_us
            ref = ObjectReference(kind="Node", name=node_name(machine))
            yield Record(time_ns=at_ns, delete=Delete(object=ref, cause="user"))
            return
        cpu, memory = self._sizes.get(machine, (None, None))
        cpu = cpu if event.cpu is None else event.cpu
        memory = memory if event.memory is None else event.memory
        if cpu is None or memory is None:
            self._issues.add("no-capacity", event.where, "a machine of unknown size: nothing fits")
        self._sizes[machine] = cpu, memory
        node = self._node(machine, cpu, memory)
        yield Record(time_ns=at_ns, update=node) if exists else Record(time_ns=at_ns, create=node)

    def _node(self, machine: str, cpu: Decimal | None, memory: Decimal | None) -> KubernetesObject:
        options = self._options
        capacity = {"pods": PODS, **share_quantities(cpu, memory, options)}
        percent = options.allocatable_percent
        allocatable = {"pods": PODS, **share_quantities(cpu, memory, options, percent)}
        node = make_node(node_name(machine), capacity, allocatable)
        node.metadata.labels.update(self._labels.get(machine, {}))
        return KubernetesObject(node=node)


def node_name(machine: str) -> str:
    """Return the name of a machine's node."""
    return f"machine-{machine}"


def label_key(attribute: str) -> str:
    """Return the label key of an attribute, whose obfuscated name is not a valid key."""
    return f"attribute.borg/{blake2b(attribute.encode(), digest_size=8).hexdigest()}"


def label_value(value: str) -> str:
    """Return a label's value: a number as it is, for comparisons; a hash of any other text."""
    if value == "" or value.lstrip("-").isdecimal():
        return value
    return blake2b(value.encode(), digest_size=8).hexdigest()
