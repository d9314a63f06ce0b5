"""Overrides PriorityClasses, and the priorities of their pods.

Admission gives a pod the priority and the preemption policy of its class when the pod is created.
Therefore pods that were recorded with a priority are changed here, and pods of controllers get the
priority from the changed class. If pods name a class that the trace does not create, the class is
created at the start of the trace.

Source: kubernetes v1.34 plugin/pkg/admission/priority/admission.go, admitPod.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from replay.hashing import object_uid
from replay.overrides.assignment import Assignment, unknown_field_error
from replay.overrides.errors import OverrideError
from replay.overrides.inventory import TraceInventory
from replay.overrides.names import unknown_name
from replay.overrides.timed import after_header
from replay.trace.validate import pod_template
from reprieve.kube.v1beta1 import object_pb2, pod_pb2, scheduling_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.pod import HIGHEST_USER_PRIORITY, SYSTEM_PREFIX, PreemptionPolicy

FIELDS = ("value", "preemptionPolicy", "globalDefault")
_INT32_MIN = -(2**31)


@dataclass(slots=True, kw_only=True)
class ClassChange:
    """The change of one class; None keeps a field. `is_new`: the trace has no such class."""

    value: int | None = None
    preemption_policy: str | None = None
    global_default: bool | None = None
    is_new: bool = False


def class_changes(
    assignments: Iterable[Assignment], inventory: TraceInventory
) -> Mapping[str, ClassChange]:
    """Return the changes by class.

    Raises OverrideError for a class that is not in the trace, and for a new one without a value.
    """
    changes: dict[str, ClassChange] = {}
    for assignment in assignments:
        if assignment.name not in inventory.classes:
            raise assignment.without_effect(
                unknown_name("PriorityClass", assignment.name, inventory.classes)
            )
        if assignment.name.startswith(SYSTEM_PREFIX):
            raise assignment.refused(
                f"{assignment.name} is a system class, which cannot be changed"
            )
        is_new = inventory.classes[assignment.name] is None
        _assign(changes.setdefault(assignment.name, ClassChange(is_new=is_new)), assignment)
    for name, change in changes.items():
        if change.is_new and change.value is None:
            raise OverrideError(
                f"PriorityClass {name} is named by pods, and the trace does not create it: add "
                f"--set priorityClass.{name}.value=NUMBER"
            )
    return changes


def change_classes(
    records: Iterable[trace_pb2.Record], changes: Mapping[str, ClassChange]
) -> Iterator[trace_pb2.Record]:
    """Yield the records with the changes of classes and of their pods."""
    missing = [
        object_pb2.KubernetesObject(priority_class=_new_class(name, change))
        for name, change in changes.items()
        if change.is_new
    ]
    for record in after_header(records, missing) if missing else records:
        case = record.WhichOneof("record")
        if case in {"template", "pod_create"}:
            yield _with_pod(record, case, changes)
        elif case in {"create", "update"}:
            yield _with_object(record, case, changes)
        else:
            yield record


def _assign(change: ClassChange, given: Assignment) -> None:
    value = given.plain_value
    match given.field:
        case "value":
            number = given.whole_number
            if number is None:
                raise given.refused("write a whole number")
            if not _INT32_MIN <= number <= HIGHEST_USER_PRIORITY:
                raise given.refused(
                    f"a priority lies between {_INT32_MIN} and {HIGHEST_USER_PRIORITY}"
                )
            change.value = number
        case "preemptionPolicy":
            policies = tuple(policy.value for policy in PreemptionPolicy)
            if value not in policies:
                raise given.refused(f"write one of {', '.join(policies)}")
            change.preemption_policy = str(value)
        case "globalDefault":
            if not isinstance(value, bool):
                raise given.refused("write true or false")
            change.global_default = value
        case _:
            raise unknown_field_error(given, FIELDS)


def _with_pod(
    record: trace_pb2.Record, case: str, changes: Mapping[str, ClassChange]
) -> trace_pb2.Record:
    name = getattr(record, case).pod.spec.priority_class_name
    if name not in changes:
        return record
    changed = copy.deepcopy(record)
    _readmit(getattr(changed, case).pod.spec, changes[name])
    return changed


def _with_object(
    record: trace_pb2.Record, case: str, changes: Mapping[str, ClassChange]
) -> trace_pb2.Record:
    recorded = getattr(record, case)
    is_named = recorded.HasField("pod") or recorded.HasField("priority_class")
    if not is_named and pod_template(recorded) is None:
        return record
    changed = copy.deepcopy(record)
    message: object_pb2.KubernetesObject = getattr(changed, case)
    if message.HasField("priority_class"):
        change = changes.get(message.priority_class.metadata.name)
        if change is not None:
            _redefine(message.priority_class, change)
        return changed
    template = pod_template(message)
    spec = message.pod.spec if template is None else template.spec
    if spec.priority_class_name in changes:
        _readmit(spec, changes[spec.priority_class_name])
    return changed


def _readmit(spec: pod_pb2.PodSpec, change: ClassChange) -> None:
    """Change a pod that was recorded with a priority; the replay admits other pods."""
    is_admitted = spec.HasField("priority")
    if change.value is not None and is_admitted:
        spec.priority = change.value
    if change.preemption_policy is not None and (is_admitted or spec.HasField("preemption_policy")):
        spec.preemption_policy = change.preemption_policy


def _new_class(name: str, change: ClassChange) -> scheduling_pb2.PriorityClass:
    made = scheduling_pb2.PriorityClass()
    made.metadata.name, made.metadata.uid = name, object_uid("PriorityClass", "", name)
    _redefine(made, change)
    return made


def _redefine(message: scheduling_pb2.PriorityClass, change: ClassChange) -> None:
    if change.value is not None:
        message.value = change.value
    if change.preemption_policy is not None:
        message.preemption_policy = change.preemption_policy
    if change.global_default is not None:
        message.global_default = change.global_default
