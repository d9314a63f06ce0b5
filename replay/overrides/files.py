"""A configuration file's text with some fields set, as if it had been edited.

The service that reads the text checks it; here only what it holds already is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import yaml

from replay.overrides.assignment import KUBELET_MAPPINGS, Assignment
from replay.overrides.errors import OverrideError
from services.config.kubelet import (
    API_VERSION as KUBELET_API_VERSION,
)
from services.config.kubelet import KIND as KUBELET_KIND
from services.config.kubelet import read_kubelet_configuration
from services.typed import DataError

_SCHEDULER_API_VERSION = "kubescheduler.config.k8s.io/v1"
_SCHEDULER_KIND = "KubeSchedulerConfiguration"
_DEFAULTED = "evictionHard"
_WEIGHT = "plugin.weight"


def kubelet_text(text: str, assignments: Sequence[Assignment]) -> str:
    """Return a KubeletConfiguration with the fields set; "" stands for a kubelet's defaults.

    A kubelet takes its default hard thresholds only where the file names none, so that setting one
    of them keeps the others as they are in force. Raises OverrideError.
    """
    if not assignments:
        return text
    document = _document(text, KUBELET_API_VERSION, KUBELET_KIND, assignments)
    if any(each.field == _DEFAULTED for each in assignments):
        document[_DEFAULTED] = _hard_in_force(document, assignments)
    for each in assignments:
        if each.field in KUBELET_MAPPINGS:
            mapping = document.setdefault(each.field, {})
            if not isinstance(mapping, dict):
                raise OverrideError(f"--set {each.text}: {each.field} of the file is no mapping")
            quoted = each.field != "featureGates"
            mapping[each.name] = each.value if quoted else each.plain_value
        else:
            document[each.field] = each.plain_value
    return yaml.safe_dump(document, sort_keys=False)


def scheduler_text(text: str, assignments: Sequence[Assignment], *, samples: bool) -> str:
    """Return a KubeSchedulerConfiguration with the fields set; "" stands for the defaults.

    `samples` tells whether percentageOfNodesToScore is looked at. Raises OverrideError.
    """
    if not assignments:
        return text
    document = _document(text, _SCHEDULER_API_VERSION, _SCHEDULER_KIND, assignments)
    for each in assignments:
        if each.field == "percentageOfNodesToScore" and not samples:
            raise OverrideError(
                f"--set {each.text} touches nothing: all nodes are scored without --sample-nodes"
            )
        if not each.field.startswith("plugin."):
            document[each.field] = each.plain_value
        elif each.field == _WEIGHT:
            _weigh(document, each)
        else:
            field = each.field.removeprefix("plugin.")
            raise OverrideError(f"--set {each.text}: {field!r} cannot be set; of a plugin: weight")
    return yaml.safe_dump(document, sort_keys=False)


def _document(
    text: str, api_version: str, kind: str, assignments: Sequence[Assignment]
) -> dict[str, object]:
    try:
        document = yaml.safe_load(text) if text else {"apiVersion": api_version, "kind": kind}
    except yaml.YAMLError as error:
        raise OverrideError(f"--set {assignments[0].text}: the file is no YAML: {error}") from error
    if not isinstance(document, dict):
        raise OverrideError(f"--set {assignments[0].text}: the file is no {kind}")
    return document


def _hard_in_force(
    document: dict[str, object], assignments: Iterable[Assignment]
) -> dict[str, str]:
    try:
        read = read_kubelet_configuration(yaml.safe_dump(document))
    except DataError as error:
        first = next(each for each in assignments if each.field == _DEFAULTED)
        raise OverrideError(f"--set {first.text}: {error.field}: {error}") from error
    return dict(read.eviction.hard)


def _weigh(document: dict[str, object], given: Assignment) -> None:
    """Set a score plugin's weight in each profile, at its own extension point."""
    weight = given.plain_value
    if isinstance(weight, bool) or not isinstance(weight, int) or weight < 1:
        raise OverrideError(f"--set {given.text}: write a whole number from 1 on")
    profiles = document.get("profiles") or [{}]
    if not isinstance(profiles, list) or not all(isinstance(each, dict) for each in profiles):
        raise OverrideError(f"--set {given.text}: profiles of the file is no list of mappings")
    document["profiles"] = profiles
    for profile in profiles:
        enabled = _below(_below(profile, "plugins", given), "score", given).setdefault(
            "enabled", []
        )
        if not isinstance(enabled, list):
            raise OverrideError(f"--set {given.text}: plugins.score.enabled is no list")
        others = [e for e in enabled if not (isinstance(e, dict) and e.get("name") == given.name)]
        enabled[:] = [*others, {"name": given.name, "weight": weight}]


def _below(mapping: dict[str, object], name: str, given: Assignment) -> dict[str, object]:
    value = mapping.setdefault(name, {})
    if not isinstance(value, dict):
        raise OverrideError(f"--set {given.text}: {name} of a profile is no mapping")
    return value
