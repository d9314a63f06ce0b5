"""`--set KEY=VALUE`, taken apart: which object or file, which field, and the value as text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import yaml

from replay.overrides.errors import OverrideError, listed

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
SCHEDULER_FIELDS = (
    "percentageOfNodesToScore",
    "podInitialBackoffSeconds",
    "podMaxBackoffSeconds",
)
_FORMS = (
    "priorityClass.NAME.FIELD",
    "pdb.[NAMESPACE/]NAME.FIELD",
    *(f"{name}.KEY" for name in KUBELET_MAPPINGS),
    *KUBELET_FIELDS,
    *SCHEDULER_FIELDS,
    "plugin.NAME.weight",
)


class Target(Enum):
    """What an assignment changes."""

    PRIORITY_CLASS = "priorityClass"
    BUDGET = "pdb"
    KUBELET = "KubeletConfiguration"
    SCHEDULER = "KubeSchedulerConfiguration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One `--set`.

    text: as given. name: of the class ("batch"), the budget ("web" or "prod/web"), the key of a
    mapping ("memory.available") or the plugin; "" for a field of the file itself. field: such as
    "value", "minAvailable" or "evictionHard".
    """

    text: str
    target: Target
    name: str
    field: str
    value: str

    @property
    def plain_value(self) -> object:
        """Return the value as YAML reads it: a number, true or false, or a text."""
        try:
            return yaml.safe_load(self.value)
        except yaml.YAMLError:
            return self.value


def parse_assignment(text: str) -> Assignment:
    """Return what `text` assigns. Raises OverrideError for a key that is none."""
    key, equals, value = text.partition("=")
    if not equals or not key or not value:
        raise OverrideError(f"--set {text}: write KEY=VALUE, such as priorityClass.batch.value=50")
    target, name, field = _target(text, key)
    return Assignment(text=text, target=target, name=name, field=field, value=value)


def _target(text: str, key: str) -> tuple[Target, str, str]:
    head, dot, rest = key.partition(".")
    if key in KUBELET_FIELDS:
        return Target.KUBELET, "", key
    if key in SCHEDULER_FIELDS:
        return Target.SCHEDULER, "", key
    if head in KUBELET_MAPPINGS and rest:
        return Target.KUBELET, rest, head
    name, last, field = rest.rpartition(".")
    if dot and last and name and field:
        match head:
            case "priorityClass":
                return Target.PRIORITY_CLASS, name, field
            case "pdb":
                return Target.BUDGET, name, field
            case "plugin":
                return Target.SCHEDULER, name, f"plugin.{field}"
    raise OverrideError(f"--set {text}: {key!r} is none of {', '.join(_FORMS)}")


def refuse_field(assignment: Assignment, fields: tuple[str, ...]) -> OverrideError:
    """Return the error for a field that an object of this kind does not have."""
    known = listed(fields, "none")
    return OverrideError(
        f"--set {assignment.text}: {assignment.field!r} cannot be set; "
        f"of a {assignment.target.value} there are {known}"
    )


def refuse_twice(assignments: tuple[Assignment, ...]) -> None:
    """Raise OverrideError where one field is set twice."""
    seen: dict[tuple[Target, str, str], str] = {}
    for each in assignments:
        key = (each.target, each.name, each.field)
        if key in seen:
            raise OverrideError(f"--set {seen[key]} and --set {each.text} set the same field")
        seen[key] = each.text
