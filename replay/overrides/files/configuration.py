"""Sets fields in configuration files: `--set`.

The service that reads a file validates it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import yaml

from replay.bounds import yaml_value
from replay.errors import TraceError
from replay.overrides.assignment import KUBELET_MAPPINGS, Assignment
from services.config.kubelet import API_VERSION as KUBELET_API_VERSION
from services.config.kubelet import KIND as KUBELET_KIND
from services.config.kubelet import read_kubelet_configuration
from services.kube.yaml_scalars import written
from services.typed import DataError

_SCHEDULER_API_VERSION = "kubescheduler.config.k8s.io/v1"
_SCHEDULER_KIND = "KubeSchedulerConfiguration"
_EVICTION_HARD = "evictionHard"
_WEIGHT = "plugin.weight"


def kubelet_text(text: str, assignments: Sequence[Assignment]) -> str:
    """Return a KubeletConfiguration with the fields set; the text "" means a kubelet's defaults.

    A kubelet uses its default hard thresholds only if the file has no hard threshold; setting one
    threshold therefore adds the default ones. Raises OverrideError.
    """
    if not assignments:
        return text
    document = _document(text, KUBELET_API_VERSION, KUBELET_KIND, assignments)
    if any(assignment.field == _EVICTION_HARD for assignment in assignments):
        document[_EVICTION_HARD] = _hard_thresholds(document, assignments)
    for assignment in assignments:
        if assignment.field in KUBELET_MAPPINGS:
            mapping = document.setdefault(assignment.field, {})
            if not isinstance(mapping, dict):
                raise assignment.refused(f"the file's {assignment.field} is not a mapping")
            quoted = assignment.field != "featureGates"
            mapping[assignment.name] = assignment.value if quoted else assignment.plain_value
        else:
            document[assignment.field] = assignment.plain_value
    return written(document)


def scheduler_text(text: str, assignments: Sequence[Assignment], *, samples: bool) -> str:
    """Return a KubeSchedulerConfiguration with the fields set; the text "" means the defaults.

    samples: whether the run samples nodes, which percentageOfNodesToScore needs. Raises
    OverrideError.
    """
    if not assignments:
        return text
    document = _document(text, _SCHEDULER_API_VERSION, _SCHEDULER_KIND, assignments)
    for assignment in assignments:
        if assignment.field == "percentageOfNodesToScore" and not samples:
            raise assignment.without_effect("all nodes are scored without --sample-nodes")
        if not assignment.field.startswith("plugin."):
            document[assignment.field] = assignment.plain_value
        elif assignment.field == _WEIGHT:
            _set_weight(document, assignment)
        else:
            field = assignment.field.removeprefix("plugin.")
            raise assignment.refused(f"{field!r} cannot be set; fields of a plugin: weight")
    return written(document)


def _document(
    text: str, api_version: str, kind: str, assignments: Sequence[Assignment]
) -> dict[str, object]:
    try:
        default: object = {"apiVersion": api_version, "kind": kind}
        document = yaml_value(text, "the file") if text else default
    except TraceError as error:
        raise assignments[0].refused(f"the file: {error.problem}") from error
    except yaml.YAMLError as error:
        raise assignments[0].refused(f"the file is not YAML: {error}") from error
    if not isinstance(document, dict):
        raise assignments[0].refused(f"the file is not a {kind}")
    return document


def _hard_thresholds(
    document: dict[str, object], assignments: Iterable[Assignment]
) -> dict[str, str]:
    try:
        read = read_kubelet_configuration(written(document))
    except DataError as error:
        first = next(assignment for assignment in assignments if assignment.field == _EVICTION_HARD)
        raise first.refused(f"{error.field}: {error}") from error
    return dict(read.eviction.hard)


def _set_weight(document: dict[str, object], assignment: Assignment) -> None:
    """Set the weight of a plugin at the extension point score, in every profile."""
    weight, name = assignment.whole_number, assignment.name
    if weight is None or weight < 1:
        raise assignment.refused("write a whole number >= 1")
    profiles = document.get("profiles") or [{}]
    if not isinstance(profiles, list) or not all(isinstance(profile, dict) for profile in profiles):
        raise assignment.refused("the file's profiles are not a list of mappings")
    document["profiles"] = profiles
    for profile in profiles:
        plugins = _submapping(profile, "plugins", assignment)
        enabled = _submapping(plugins, "score", assignment).setdefault("enabled", [])
        if not isinstance(enabled, list):
            raise assignment.refused("plugins.score.enabled is not a list")
        others = [e for e in enabled if not (isinstance(e, dict) and e.get("name") == name)]
        enabled[:] = [*others, {"name": name, "weight": weight}]


def _submapping(mapping: dict[str, object], name: str, assignment: Assignment) -> dict[str, object]:
    value = mapping.setdefault(name, {})
    if not isinstance(value, dict):
        raise assignment.refused(f"{name} of a profile is not a mapping")
    return value
