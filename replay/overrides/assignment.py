"""The syntax of `--set KEY=VALUE`: the objects and configuration fields that it can set."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

import yaml

from replay.bounds import yaml_value
from replay.durations import duration_ns
from replay.errors import TraceError
from replay.overrides.errors import NoEffectError, OverrideError
from replay.overrides.names import shown_names

KUBELET_MAPPINGS = (
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMinimumReclaim",
    "featureGates",
)
KUBELET_FIELDS = (
    "evictionPressureTransitionPeriod",
    "evictionMaxPodGracePeriod",
    "mergeDefaultEvictionSettings",
    "localStorageCapacityIsolation",
    "kernelMemcgNotification",
)
SCHEDULER_FIELDS = ("percentageOfNodesToScore", "podInitialBackoffSeconds", "podMaxBackoffSeconds")
_FORMS = (
    "priorityClass.NAME.FIELD",
    "pdb.[NAMESPACE/]NAME.FIELD",
    "deployment.[NAMESPACE/]NAME.FIELD",
    "statefulset.[NAMESPACE/]NAME.FIELD",
    "daemonset.[NAMESPACE/]NAME.FIELD",
    "replicaset.[NAMESPACE/]NAME.FIELD",
    "job.[NAMESPACE/]NAME.FIELD",
    "resourceslice.NAME.FIELD",
    "deviceclass.NAME.FIELD",
    "pods(SELECTOR).requests*",
    *(f"{name}.KEY" for name in KUBELET_MAPPINGS),
    *KUBELET_FIELDS,
    *SCHEDULER_FIELDS,
    "plugin.NAME.weight",
    "nodeGroup.NAME.FIELD",
    "autoscaler.FLAG",
)
_TEXT_SHOWN = 80


class OverrideTarget(Enum):
    """The kind of object or configuration that an assignment changes."""

    PRIORITY_CLASS = "priorityClass"
    BUDGET = "pdb"
    DEPLOYMENT = "deployment"
    STATEFUL_SET = "statefulset"
    DAEMON_SET = "daemonset"
    REPLICA_SET = "replicaset"
    JOB = "job"
    RESOURCE_SLICE = "resourceslice"
    DEVICE_CLASS = "deviceclass"
    PODS = "pods"
    KUBELET = "KubeletConfiguration"
    SCHEDULER = "KubeSchedulerConfiguration"
    NODE_GROUP = "nodeGroup"
    AUTOSCALER = "autoscaler"


WORKLOADS = (
    OverrideTarget.DEPLOYMENT,
    OverrideTarget.STATEFUL_SET,
    OverrideTarget.DAEMON_SET,
    OverrideTarget.REPLICA_SET,
    OverrideTarget.JOB,
)

DEVICES = (OverrideTarget.RESOURCE_SLICE, OverrideTarget.DEVICE_CLASS)

TIMED = frozenset(
    {
        *(OverrideTarget.PRIORITY_CLASS, OverrideTarget.BUDGET, OverrideTarget.PODS),
        *(*WORKLOADS, *DEVICES),
    }
)
"""Targets that can be set at a later time (`at=`): objects of the trace."""
_AT = ",at="
_OF_PODS = re.compile(r"pods\((?P<selector>.*)\)\.(?P<field>[^()=]+)=(?P<value>.+)")
"""A label selector may have "=", unlike the keys of other assignments."""
_OBJECTS = {
    target.value: target
    for target in (
        OverrideTarget.PRIORITY_CLASS,
        OverrideTarget.BUDGET,
        OverrideTarget.NODE_GROUP,
        *DEVICES,
        *WORKLOADS,
    )
}
_SLICE_FIELD = re.compile(r"(?P<name>.+?)\.(?P<field>(devices|sharedCounters)(\..+)?)")
"""A slice's name, which may have dots, and a field of its spec, of which names are parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One `--set`, whose argument is `text`.

    name: the name of a PriorityClass ("batch"), budget or workload ("web" or "prod/web"), plugin,
    device class, node group or autoscaler flag, a selector of pods, a pattern of names of slices,
    or a key in a mapping ("memory.available"); "" for a top-level field of a configuration.
    field: the field, such as "value", "minAvailable" or "evictionHard". at_ns: when the assignment
    takes effect, since the start of the trace.
    """

    text: str
    target: OverrideTarget
    name: str
    field: str
    value: str
    at_ns: int = 0

    @property
    def plain_value(self) -> object:
        """Return the value parsed as YAML, such as a number or a boolean.

        Raises OverrideError if it exceeds a bound.
        """
        try:
            return yaml_value(self.value, "--set")
        except yaml.YAMLError:
            return self.value
        except TraceError as error:
            raise OverrideError(f"--set {self.text[:_TEXT_SHOWN]}: {error.problem}") from error

    @property
    def whole_number(self) -> int | None:
        """Return the value as an integer; None if it is not one."""
        value = self.plain_value
        return value if type(value) is int else None

    def refused(self, problem: str) -> OverrideError:
        """Return the error for an assignment that is invalid."""
        return OverrideError(f"--set {self.text}: {problem}")

    def without_effect(self, problem: str) -> NoEffectError:
        """Return the error for an assignment that changes nothing."""
        return NoEffectError(f"--set {self.text} has no effect: {problem}")

    def only_named(self, keys: Iterable[str], kinds: str = "") -> str:
        """Return the key "namespace/name" in `keys` that the assignment names; "" if none matches.

        A name without a namespace matches the keys of all namespaces. Raises OverrideError if
        several keys match.
        """
        name = self.name
        named = [key for key in keys if name == key or key.partition("/")[2] == name]
        if len(named) > 1:
            problem = f"several {kinds} have" if kinds else "several have"
            raise self.refused(
                f"{problem} this name: {shown_names(named, '')}; write NAMESPACE/NAME"
            )
        return named[0] if named else ""


def parse_assignment(text: str) -> Assignment:
    """Return the assignment of "KEY=VALUE[,at=TIME]". Raises OverrideError for an unknown key."""
    assigned, at, time = text.rpartition(_AT)
    assigned = assigned if at else text
    of_pods = _OF_PODS.fullmatch(assigned)
    if of_pods is not None:
        target, name, field = OverrideTarget.PODS, of_pods["selector"], of_pods["field"]
        value = of_pods["value"]
    else:
        key, equals, value = assigned.partition("=")
        if not equals or not key or not value:
            problem = "write KEY=VALUE, such as priorityClass.batch.value=50"
            raise OverrideError(f"--set {text}: {problem}")
        target, name, field = _target(text, key)
    made = Assignment(text=text, target=target, name=name, field=field, value=value)
    if not at:
        return made
    if target not in TIMED:
        raise made.refused("a configuration is that of the whole replay: leave at= out")
    try:
        return replace(made, at_ns=duration_ns(time))
    except ValueError:
        raise made.refused(f"at={time} is not a duration; write at=10m") from None


def _target(text: str, key: str) -> tuple[OverrideTarget, str, str]:
    head, dot, rest = key.partition(".")
    if key in KUBELET_FIELDS:
        return OverrideTarget.KUBELET, "", key
    if key in SCHEDULER_FIELDS:
        return OverrideTarget.SCHEDULER, "", key
    if head in KUBELET_MAPPINGS and rest:
        return OverrideTarget.KUBELET, rest, head
    if head == OverrideTarget.AUTOSCALER.value and rest:
        return OverrideTarget.AUTOSCALER, rest, "flags"
    if head == OverrideTarget.RESOURCE_SLICE.value and (found := _SLICE_FIELD.fullmatch(rest)):
        return OverrideTarget.RESOURCE_SLICE, found["name"], found["field"]
    name, last, field = rest.rpartition(".")
    if dot and last and name and field:
        if head == "plugin":
            return OverrideTarget.SCHEDULER, name, f"plugin.{field}"
        if head in _OBJECTS:
            return _OBJECTS[head], name, field
    raise OverrideError(f"--set {text}: {key!r} is not one of {', '.join(_FORMS)}")


def unknown_field_error(assignment: Assignment, fields: tuple[str, ...]) -> OverrideError:
    """Return the error for a field that cannot be set; `fields` can be set."""
    names = shown_names(fields, "no fields")
    return assignment.refused(
        f"{assignment.field!r} cannot be set; fields of {assignment.target.value}: {names}"
    )


def refuse_duplicates(assignments: tuple[Assignment, ...]) -> None:
    """Raise OverrideError if one field is set twice."""
    seen: dict[tuple[OverrideTarget, str, str, int], str] = {}
    for assignment in assignments:
        key = (assignment.target, assignment.name, assignment.field, assignment.at_ns)
        if key in seen:
            raise OverrideError(f"--set {seen[key]} and --set {assignment.text} set the same field")
        seen[key] = assignment.text
