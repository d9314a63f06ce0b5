"""A task as a pod."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from replay.identity import object_uid
from replay.importers.borg.events import Constraint, Key, Operator, TaskEvent
from replay.importers.borg.machines import label_key, label_value, node_name
from replay.importers.options import ImportOptions
from replay.importers.shares import amounts
from reprieve.kube.v1alpha1.affinity_pb2 import NodeSelectorTerm
from reprieve.kube.v1alpha1.object_pb2 import Object
from reprieve.kube.v1alpha1.object_ref_pb2 import ObjectRef
from reprieve.kube.v1alpha1.pod_pb2 import Container, Pod
from reprieve.kube.v1alpha1.scheduling_pb2 import PriorityClass

NAMESPACE = "default"
GATE = "borg/queued"
_COLLECTION, _CLASS = "borg/collection", "borg/scheduling-class"
_HOSTNAME = "kubernetes.io/hostname"


@dataclass(slots=True, kw_only=True)
class Task:
    """A task from its first SUBMIT to its end; times are us, None: it has not happened.

    `number` counts tasks in the order of their SUBMITs. `ran_us` adds up its runs so far.
    `dead_us`: an eviction or a failure ended its run, after which it may be submitted again.
    `first_machine`: it ran there at the trace's beginning.
    """

    submit: TaskEvent
    number: int = 0
    apart: bool = False
    constraints: list[Constraint] = field(default_factory=list)
    running_us: int | None = None
    ran_us: int = 0
    machine: str = ""
    first_machine: str = ""
    dead_us: int | None = None
    failed: bool = False
    queued: bool = False
    enabled_us: int | None = None
    usage: list[tuple[int, Decimal | None, Decimal | None]] = field(default_factory=list)
    _ref: ObjectRef | None = None

    @property
    def key(self) -> Key:
        """Return collection and index."""
        return self.submit.key

    @property
    def name(self) -> str:
        """Return the pod's name; a task that comes a second time is another pod."""
        collection, index = self.submit.key
        since = f"-{self.submit.at_us}" if self.submit.at_us else ""
        return f"{collection}-{index}{since}"

    def ref(self) -> ObjectRef:
        """Return the pod's reference, which must not be changed."""
        if self._ref is None:
            uid = object_uid("Pod", NAMESPACE, self.name)
            self._ref = ObjectRef(kind="Pod", namespace=NAMESPACE, name=self.name, uid=uid)
        return self._ref

    def stop(self, at_us: int) -> None:
        """End the run."""
        if self.running_us is not None:
            self.ran_us += max(0, at_us - self.running_us)
            self.running_us = None


def class_name(priority: int) -> str:
    """Return the PriorityClass of a priority."""
    return f"borg-{priority}"


def priority_class(priority: int) -> Object:
    """Return the class whose value is the trace's own priority: the order is what counts."""
    result = PriorityClass(value=priority)
    result.metadata.name = class_name(priority)
    return Object(priority_class=result)


def task_pod(task: Task, options: ImportOptions) -> Pod:
    """Return the task's pod, gated where it was queued; on its node where it ran at the start."""
    submit, pod = task.submit, Pod()
    meta = pod.metadata
    ref = task.ref()
    meta.name, meta.namespace, meta.uid = ref.name, ref.namespace, ref.uid
    meta.labels[_COLLECTION] = str(submit.key[0])
    if submit.scheduling_class:
        meta.labels[_CLASS] = submit.scheduling_class
    pod.spec.priority_class_name = class_name(submit.priority)
    pod.spec.priority = submit.priority
    container = Container(name="task")
    container.resources.requests.update(amounts(submit.cpu, submit.memory, options))
    pod.spec.containers.append(container)
    if task.apart:
        _keep_apart(pod)
    if task.constraints:
        _constrain(pod, task.constraints)
    if task.queued:
        pod.spec.scheduling_gates.add(name=GATE)
    if task.first_machine:
        pod.spec.node_name = node_name(task.first_machine)
        pod.status.phase = "Running"
        pod.status.start_time.SetInParent()
    return pod


def _keep_apart(pod: Pod) -> None:
    affinity = pod.spec.affinity.pod_anti_affinity
    term = affinity.required_during_scheduling_ignored_during_execution.add()
    term.topology_key = _HOSTNAME
    term.label_selector.match_labels[_COLLECTION] = pod.metadata.labels[_COLLECTION]


def _constrain(pod: Pod, constraints: list[Constraint]) -> None:
    affinity = pod.spec.affinity.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution
    term = required.node_selector_terms.add()
    for each in constraints:
        _require(term, each)


def _require(term: NodeSelectorTerm, constraint: Constraint) -> None:
    """Add what the constraint requires; an empty value stands for a missing attribute."""
    key, operator, value = label_key(constraint.name), constraint.operator, constraint.value
    presence = {Operator.PRESENT: "Exists", Operator.NOT_PRESENT: "DoesNotExist"}
    if not value:
        presence |= {Operator.EQUAL: "DoesNotExist", Operator.NOT_EQUAL: "Exists"}
    if operator in presence:
        term.match_expressions.add(key=key, operator=presence[operator])
        return
    name, moved = {
        Operator.EQUAL: ("In", 0),
        Operator.NOT_EQUAL: ("NotIn", 0),
        Operator.LESS_THAN: ("Lt", 0),
        Operator.LESS_THAN_EQUAL: ("Lt", 1),
        Operator.GREATER_THAN: ("Gt", 0),
        Operator.GREATER_THAN_EQUAL: ("Gt", -1),
    }[operator]
    if moved and value.lstrip("-").isdecimal():
        value = str(int(value) + moved)
    term.match_expressions.add(key=key, operator=name, values=[label_value(value)])
