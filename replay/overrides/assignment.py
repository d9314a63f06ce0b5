"""The syntax of overrides (`--set KEY=VALUE`, label selectors), and configurations with them.

An assignment to a configuration sets a field in the text of the file. The service that reads the
text validates it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import yaml

from replay.bounds import yaml_value
from replay.errors import TraceError
from services.config.kubelet import API_VERSION as KUBELET_API_VERSION
from services.config.kubelet import KIND as KUBELET_KIND
from services.config.kubelet import read_kubelet_configuration
from services.config.strict import qualified_name_problem
from services.kube.selector import LabelSelector, Operator, Requirement
from services.kube.yaml_scalars import written
from services.typed import DataError

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
    *(f"{name}.KEY" for name in KUBELET_MAPPINGS),
    *KUBELET_FIELDS,
    *SCHEDULER_FIELDS,
    "plugin.NAME.weight",
)
_SHOWN = 8
_TEXT_SHOWN = 80
_SCHEDULER_API_VERSION = "kubescheduler.config.k8s.io/v1"
_SCHEDULER_KIND = "KubeSchedulerConfiguration"
_EVICTION_HARD = "evictionHard"
_WEIGHT = "plugin.weight"
_REQUIREMENT = re.compile(
    r"\s*(?:"
    r"(?P<key>[^\s=!,()<>]+)\s*(?:"
    r"(?P<sign>==|!=|=|<|>)\s*(?P<value>[^\s=!,()<>]*)"
    r"|(?P<word>in|notin)\s*\((?P<values>[^()]*)\)"
    r")?"
    r"|!\s*(?P<absent>[^\s=!,()<>]+)"
    r")\s*(?:,|$)"
)
_SIGNS = {
    "=": Operator.IN,
    "==": Operator.IN,
    "!=": Operator.NOT_IN,
    ">": Operator.GT,
    "<": Operator.LT,
}
_WORDS = {"in": Operator.IN, "notin": Operator.NOT_IN}


class OverrideTarget(Enum):
    """The kind of object or configuration that an assignment changes."""

    PRIORITY_CLASS = "priorityClass"
    BUDGET = "pdb"
    DEPLOYMENT = "deployment"
    STATEFUL_SET = "statefulset"
    DAEMON_SET = "daemonset"
    REPLICA_SET = "replicaset"
    JOB = "job"
    KUBELET = "KubeletConfiguration"
    SCHEDULER = "KubeSchedulerConfiguration"


WORKLOADS = (
    OverrideTarget.DEPLOYMENT,
    OverrideTarget.STATEFUL_SET,
    OverrideTarget.DAEMON_SET,
    OverrideTarget.REPLICA_SET,
    OverrideTarget.JOB,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One `--set`, whose argument is `text`.

    name: of the PriorityClass ("batch"), the budget or workload ("web" or "prod/web"), the plugin,
    or the key in a mapping ("memory.available"); "" for a top-level field of a configuration.
    field: such as "value", "minAvailable" or "evictionHard".
    """

    text: str
    target: OverrideTarget
    name: str
    field: str
    value: str

    @property
    def plain_value(self) -> object:
        """Return the value as YAML reads it, such as a number or a boolean.

        Raises OverrideError where it exceeds a bound.
        """
        try:
            return yaml_value(self.value, "--set")
        except yaml.YAMLError:
            return self.value
        except TraceError as error:
            raise OverrideError(f"--set {self.text[:_TEXT_SHOWN]}: {error.problem}") from error


def parse_assignment(text: str) -> Assignment:
    """Return the assignment of `text`. Raises OverrideError for an unknown key."""
    key, equals, value = text.partition("=")
    if not equals or not key or not value:
        raise OverrideError(f"--set {text}: write KEY=VALUE, such as priorityClass.batch.value=50")
    target, name, field = _target(text, key)
    return Assignment(text=text, target=target, name=name, field=field, value=value)


def _target(text: str, key: str) -> tuple[OverrideTarget, str, str]:
    head, dot, rest = key.partition(".")
    if key in KUBELET_FIELDS:
        return OverrideTarget.KUBELET, "", key
    if key in SCHEDULER_FIELDS:
        return OverrideTarget.SCHEDULER, "", key
    if head in KUBELET_MAPPINGS and rest:
        return OverrideTarget.KUBELET, rest, head
    name, last, field = rest.rpartition(".")
    if dot and last and name and field:
        match head:
            case "priorityClass":
                return OverrideTarget.PRIORITY_CLASS, name, field
            case "pdb":
                return OverrideTarget.BUDGET, name, field
            case "plugin":
                return OverrideTarget.SCHEDULER, name, f"plugin.{field}"
            case _ if target := next((each for each in WORKLOADS if each.value == head), None):
                return target, name, field
    raise OverrideError(f"--set {text}: {key!r} is not one of {', '.join(_FORMS)}")


def unknown_field_error(assignment: Assignment, fields: tuple[str, ...]) -> OverrideError:
    """Return the error for a field that cannot be set; `fields` can be set."""
    names = shown_names(fields, "no fields")
    return OverrideError(
        f"--set {assignment.text}: {assignment.field!r} cannot be set; "
        f"fields of {assignment.target.value}: {names}"
    )


def refuse_duplicates(assignments: tuple[Assignment, ...]) -> None:
    """Raise OverrideError where one field is set twice."""
    seen: dict[tuple[OverrideTarget, str, str], str] = {}
    for each in assignments:
        key = (each.target, each.name, each.field)
        if key in seen:
            raise OverrideError(f"--set {seen[key]} and --set {each.text} set the same field")
        seen[key] = each.text


class OverrideError(ValueError):
    """An override that is invalid or has no effect; the text is for people."""


class NoEffectError(OverrideError):
    """A valid override that changes nothing of this trace."""


def shown_names(names: Iterable[str], default: str) -> str:
    """Return up to eight sorted names for a message; `default` without names."""
    ordered = sorted(names)
    if not ordered:
        return default
    more = len(ordered) - _SHOWN
    return ", ".join(ordered[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def closest(name: str, names: Iterable[str]) -> str:
    """Return "; did you mean X?" with the name that is most like another, "" where none is."""
    close = difflib.get_close_matches(name, sorted(names), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def unknown_name(kind: str, name: str, names: Iterable[str]) -> str:
    """Return the sentence that a trace has no object of this kind and name, and which it has."""
    names = list(names)
    if not names:
        return f"the trace has no {kind}"
    plural = f"{kind}es" if kind.endswith("s") else f"{kind}s"
    return (
        f"the trace has no {kind} {name}{closest(name, names)}; its {plural} are "
        f"{shown_names(names, '')}"
    )


def keys_named(name: str, keys: Iterable[str]) -> list[str]:
    """Return those of the keys "namespace/name" that a name, with or without namespace, means."""
    return [key for key in keys if name == key or ("/" not in name and key.endswith(f"/{name}"))]


def kubelet_text(text: str, assignments: Sequence[Assignment]) -> str:
    """Return a KubeletConfiguration with the fields set; "" is a kubelet's defaults.

    A kubelet uses its default hard thresholds only where the file has none; setting one of them
    therefore adds the others. Raises OverrideError.
    """
    if not assignments:
        return text
    document = _document(text, KUBELET_API_VERSION, KUBELET_KIND, assignments)
    if any(each.field == _EVICTION_HARD for each in assignments):
        document[_EVICTION_HARD] = _hard_thresholds(document, assignments)
    for each in assignments:
        if each.field in KUBELET_MAPPINGS:
            mapping = document.setdefault(each.field, {})
            if not isinstance(mapping, dict):
                raise OverrideError(f"--set {each.text}: the file's {each.field} is not a mapping")
            quoted = each.field != "featureGates"
            mapping[each.name] = each.value if quoted else each.plain_value
        else:
            document[each.field] = each.plain_value
    return written(document)


def scheduler_text(text: str, assignments: Sequence[Assignment], *, samples: bool) -> str:
    """Return a KubeSchedulerConfiguration with the fields set; "" is the scheduler's defaults.

    percentageOfNodesToScore needs `samples`. Raises OverrideError.
    """
    if not assignments:
        return text
    document = _document(text, _SCHEDULER_API_VERSION, _SCHEDULER_KIND, assignments)
    for each in assignments:
        if each.field == "percentageOfNodesToScore" and not samples:
            raise OverrideError(
                f"--set {each.text} has no effect: all nodes are scored without --sample-nodes"
            )
        if not each.field.startswith("plugin."):
            document[each.field] = each.plain_value
        elif each.field == _WEIGHT:
            _set_weight(document, each)
        else:
            field = each.field.removeprefix("plugin.")
            raise OverrideError(
                f"--set {each.text}: {field!r} cannot be set; fields of a plugin: weight"
            )
    return written(document)


def _document(
    text: str, api_version: str, kind: str, assignments: Sequence[Assignment]
) -> dict[str, object]:
    try:
        default: object = {"apiVersion": api_version, "kind": kind}
        document = yaml_value(text, "the file") if text else default
    except TraceError as error:
        problem = f"the file: {error.problem}"
        raise OverrideError(f"--set {assignments[0].text}: {problem}") from error
    except yaml.YAMLError as error:
        problem = f"the file is not YAML: {error}"
        raise OverrideError(f"--set {assignments[0].text}: {problem}") from error
    if not isinstance(document, dict):
        raise OverrideError(f"--set {assignments[0].text}: the file is not a {kind}")
    return document


def _hard_thresholds(
    document: dict[str, object], assignments: Iterable[Assignment]
) -> dict[str, str]:
    try:
        read = read_kubelet_configuration(written(document))
    except DataError as error:
        first = next(each for each in assignments if each.field == _EVICTION_HARD)
        raise OverrideError(f"--set {first.text}: {error.field}: {error}") from error
    return dict(read.eviction.hard)


def _set_weight(document: dict[str, object], assignment: Assignment) -> None:
    """Set the weight of a score plugin in each profile, at the extension point score."""
    weight, name = assignment.plain_value, assignment.name
    if isinstance(weight, bool) or not isinstance(weight, int) or weight < 1:
        raise OverrideError(f"--set {assignment.text}: write a whole number >= 1")
    profiles = document.get("profiles") or [{}]
    if not isinstance(profiles, list) or not all(isinstance(each, dict) for each in profiles):
        problem = "the file's profiles are not a list of mappings"
        raise OverrideError(f"--set {assignment.text}: {problem}")
    document["profiles"] = profiles
    for profile in profiles:
        plugins = _submapping(profile, "plugins", assignment)
        enabled = _submapping(plugins, "score", assignment).setdefault("enabled", [])
        if not isinstance(enabled, list):
            raise OverrideError(f"--set {assignment.text}: plugins.score.enabled is not a list")
        others = [e for e in enabled if not (isinstance(e, dict) and e.get("name") == name)]
        enabled[:] = [*others, {"name": name, "weight": weight}]


def _submapping(mapping: dict[str, object], name: str, assignment: Assignment) -> dict[str, object]:
    value = mapping.setdefault(name, {})
    if not isinstance(value, dict):
        raise OverrideError(f"--set {assignment.text}: {name} of a profile is not a mapping")
    return value


def parse_selector(text: str) -> LabelSelector:
    """Return the selector of a text such as `zone=a,tier!=gold,gpu in (a100, h100),!spot`.

    "*" matches everything. Raises OverrideError for any other text.
    Source: kubernetes v1.34 apimachinery pkg/labels/selector.go, Parse.
    """
    if text == "*":
        return LabelSelector()
    requirements, end = [], 0
    while end < len(text):
        match = _REQUIREMENT.match(text, end)
        if match is None or match.end() == end:
            raise OverrideError(
                f"{text!r} is not a label selector: write zone=a, zone!=a, zone in (a, b), zone or "
                "!zone, separated by commas, or * for all"
            )
        requirements.append(_requirement(match, text))
        end = match.end()
    if not requirements:
        raise OverrideError("an empty label selector would match everything: write * for that")
    return LabelSelector(requirements=tuple(requirements))


def _requirement(match: re.Match[str], text: str) -> Requirement:
    key = match["key"] or match["absent"]
    if problem := qualified_name_problem(key):
        raise OverrideError(f"{text!r}: {key!r}: {problem}")
    if match["absent"]:
        return Requirement(key=key, operator=Operator.DOES_NOT_EXIST)
    if match["sign"]:
        return Requirement(key=key, operator=_SIGNS[match["sign"]], values=(match["value"],))
    if match["word"]:
        values = tuple(each.strip() for each in match["values"].split(","))
        return Requirement(key=key, operator=_WORDS[match["word"]], values=values)
    return Requirement(key=key, operator=Operator.EXISTS)


def existing_labels(selector: LabelSelector, labels: Iterable[Mapping[str, str]]) -> str:
    """Return the existing values of a selector's labels, or else the keys of all labels."""
    found = list(labels)
    keys = {each.key for each in selector.requirements}
    values = {f"{key}={each[key]}" for each in found for key in keys & set(each)}
    if values:
        return shown_names(values, "")
    return f"the labels {shown_names({key for each in found for key in each}, '(none)')}"
