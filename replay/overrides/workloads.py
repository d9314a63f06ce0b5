"""Overrides the number of replicas of workloads, and the PriorityClass of their pods.

Both are set from the beginning, in every version of the workload in the trace. A new class is also
set in the pods that the trace creates for the workload, and in a Deployment's ReplicaSets, so it
causes no rollout; use `--apply` to simulate a rollout.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from replay.overrides.assignment import Assignment, OverrideTarget, unknown_field_error
from replay.overrides.inventory import TraceInventory, Workload
from replay.overrides.names import unknown_name
from replay.overrides.priority_classes import ClassChange
from replay.overrides.template_copies import TemplateCopies
from replay.overrides.timed import renumbered
from replay.trace.validate import pod_template
from replay.world.api.pod_record import controller_uid
from reprieve.kube.v1beta1 import meta_pb2, object_pb2, pod_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.pod import SYSTEM_CLASSES
from services.kube.workloads import WORKLOAD_KINDS

_REPLICAS, _CLASS = "replicas", "priorityClassName"
_KINDS = {
    OverrideTarget.DEPLOYMENT: ("Deployment", (_REPLICAS, _CLASS)),
    OverrideTarget.STATEFUL_SET: ("StatefulSet", (_REPLICAS, _CLASS)),
    OverrideTarget.REPLICA_SET: ("ReplicaSet", (_REPLICAS, _CLASS)),
    OverrideTarget.DAEMON_SET: ("DaemonSet", (_CLASS,)),
    OverrideTarget.JOB: ("Job", (_CLASS,)),
}
_REPLICAS_MAX = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewClass:
    """A PriorityClass: the priority and the preemption policy that admission gives its pods."""

    name: str
    value: int
    preemption_policy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadChange:
    """The changes of a workload; None keeps a field."""

    workload: Workload
    replicas: int | None = None
    priority_class: NewClass | None = None


def workload_changes(
    assignments: Iterable[Assignment], inventory: TraceInventory, classes: Mapping[str, ClassChange]
) -> Mapping[tuple[str, str], WorkloadChange]:
    """Return the changes by kind and "namespace/name"; `classes` are the changes of classes.

    Raises OverrideError for a workload or a class that is not in the trace.
    """
    changes: dict[tuple[str, str], WorkloadChange] = {}
    for assignment in assignments:
        workload = _workload(assignment, inventory)
        named = (workload.kind, workload.key)
        change = changes.get(named, WorkloadChange(workload=workload))
        if assignment.field == _REPLICAS:
            changes[named] = replace(change, replicas=_replicas(assignment))
        else:
            changes[named] = replace(change, priority_class=_class(assignment, inventory, classes))
    return changes


def _workload(given: Assignment, inventory: TraceInventory) -> Workload:
    kind, fields = _KINDS[given.target]
    if given.field not in fields:
        raise unknown_field_error(given, fields)
    keys = [key for its_kind, key in inventory.workloads if its_kind == kind]
    key = given.only_named(keys)
    if not key:
        raise given.without_effect(unknown_name(kind, given.name, keys))
    workload = inventory.workloads[kind, key]
    owner = next(
        (
            other
            for other in inventory.workloads.values()
            if other.uid and other.uid == workload.owner_uid
        ),
        None,
    )
    if owner is not None:
        raise given.refused(
            f"{owner.kind} {owner.key} keeps {kind} {key} as it wants it: set "
            f"{owner.kind.lower()}.{owner.key}.{given.field}"
        )
    return workload


def _replicas(given: Assignment) -> int:
    number = given.whole_number
    if number is None or not 0 <= number <= _REPLICAS_MAX:
        raise given.refused(f"write a whole number of 0 to {_REPLICAS_MAX:,}")
    return number


def _class(
    given: Assignment, inventory: TraceInventory, classes: Mapping[str, ClassChange]
) -> NewClass:
    for system in SYSTEM_CLASSES:
        if system.name == given.value:
            return NewClass(name=system.name, value=system.value)
    recorded, change = inventory.classes.get(given.value), classes.get(given.value, ClassChange())
    value = change.value if recorded is None or change.value is not None else recorded.value
    if value is None:
        names = [name for name, created in inventory.classes.items() if created is not None]
        raise given.refused(
            f"{unknown_name('PriorityClass', given.value, names)}; --set "
            f"priorityClass.{given.value}.value=NUMBER makes one"
        )
    policy = change.preemption_policy or (
        recorded.preemption_policy if recorded is not None else ""
    )
    return NewClass(name=given.value, value=value, preemption_policy=policy)


def change_workloads(
    records: Iterable[trace_pb2.Record],
    changes: Mapping[tuple[str, str], WorkloadChange],
    inventory: TraceInventory,
    numbers: Iterator[int],
) -> Iterator[trace_pb2.Record]:
    """Yield the records with the changes, renumbered.

    Changed pods of a template get a copy of it, which gets the next of `numbers`.
    """
    return renumbered(_WorkloadChanges(changes, inventory, numbers).of(records))


class _WorkloadChanges:
    def __init__(
        self,
        changes: Mapping[tuple[str, str], WorkloadChange],
        inventory: TraceInventory,
        numbers: Iterator[int],
    ) -> None:
        self._changes = changes
        self._classes = _classes_by_owner(changes, inventory)
        self._copies = TemplateCopies(numbers)

    def of(self, records: Iterable[trace_pb2.Record]) -> Iterator[trace_pb2.Record]:
        for record in records:
            self._copies.note(record)
            match record.WhichOneof("record"):
                case "pod_create":
                    yield from self._with_pod(record)
                case "create" | "update" as case:
                    yield self._with_object(record, case)
                case _:
                    yield record

    def _class_of(self, meta: meta_pb2.ObjectMeta) -> NewClass | None:
        return self._classes.get(controller_uid(meta))

    def _with_pod(self, record: trace_pb2.Record) -> Iterator[trace_pb2.Record]:
        new = self._class_of(record.pod_create.pod.metadata)
        if new is None:
            yield record
            return
        assign = partial(_assign, new=new)
        yield from self._copies.with_spec(copy.deepcopy(record), new.name, assign)

    def _with_object(self, record: trace_pb2.Record, case: str) -> trace_pb2.Record:
        given: object_pb2.KubernetesObject = getattr(record, case)
        field = given.WhichOneof("object") or ""
        if field == "pod":
            new = self._class_of(given.pod.metadata)
            if new is None:
                return record
            changed = copy.deepcopy(record)
            _assign(getattr(changed, case).pod.spec, new)
            return changed
        if field not in WORKLOAD_KINDS:
            return record
        meta = getattr(given, field).metadata
        change = self._changes.get(
            (WORKLOAD_KINDS[field], f"{meta.namespace or 'default'}/{meta.name}")
        )
        new = change.priority_class if change is not None else self._class_of(meta)
        if change is None and new is None:
            return record
        changed = copy.deepcopy(record)
        message: object_pb2.KubernetesObject = getattr(changed, case)
        if change is not None and change.replicas is not None:
            getattr(message, field).spec.replicas = change.replicas
        template = pod_template(message)
        if new is not None and template is not None:
            template.spec.priority_class_name = new.name
            template.spec.ClearField("priority")
            template.spec.ClearField("preemption_policy")
        return changed


def _classes_by_owner(
    changes: Mapping[tuple[str, str], WorkloadChange], inventory: TraceInventory
) -> dict[str, NewClass]:
    """Return the classes by UID of workloads, and of objects that they own, such as ReplicaSets."""
    classes = {
        change.workload.uid: change.priority_class
        for change in changes.values()
        if change.workload.uid and change.priority_class is not None
    }
    for other in inventory.workloads.values():
        if other.uid and other.owner_uid in classes:
            classes[other.uid] = classes[other.owner_uid]
    return classes


def _assign(spec: pod_pb2.PodSpec, new: NewClass) -> None:
    """Set a pod's class; if it was recorded with a priority, set the fields that admission sets."""
    spec.priority_class_name = new.name
    if spec.HasField("priority"):
        spec.priority = new.value
        spec.preemption_policy = new.preemption_policy or "PreemptLowerPriority"
    else:
        spec.ClearField("preemption_policy")
