"""KubeletConfiguration (kubelet.config.k8s.io/v1beta1), read as it is.

What eviction does not read is named in a warning where it is known, and refused where it is not,
as a kubelet's strict decoding does.

Source: kubernetes v1.34 staging/src/k8s.io/kubelet/config/v1beta1/types.go (the fields),
pkg/kubelet/apis/config/v1beta1/defaults.go and cmd/kubelet/app/server.go, loadConfigFile (the
defaults), pkg/kubelet/apis/config/validation/validation.go (enforceNodeAllocatable).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

import yaml

from services.config.kubelet_fields import NOT_SERVED
from services.eviction.core.config import (
    DEFAULT_PRESSURE_TRANSITION_NS,
    EvictionConfig,
    Mode,
    default_hard,
)
from services.eviction.core.duration import DurationError, parse_duration_ns

API_VERSION = "kubelet.config.k8s.io/v1beta1"
KIND = "KubeletConfiguration"
ENFORCEMENTS = (
    "pods",
    "system-reserved",
    "system-reserved-compressible",
    "kube-reserved",
    "kube-reserved-compressible",
    "none",
)
OVERWRITE_GRACE_GATE = "AllowOverwriteTerminationGracePeriodSeconds"
SPLIT_DISK_GATE = "KubeletSeparateDiskGC"
_INT32_MAX = 2**31 - 1
_READ = frozenset(
    {
        "apiVersion",
        "kind",
        "evictionHard",
        "evictionSoft",
        "evictionSoftGracePeriod",
        "evictionMinimumReclaim",
        "evictionPressureTransitionPeriod",
        "evictionMaxPodGracePeriod",
        "mergeDefaultEvictionSettings",
        "enforceNodeAllocatable",
        "localStorageCapacityIsolation",
        "kernelMemcgNotification",
        "featureGates",
    }
)

_Document = Mapping[str, object]


class KubeletConfigError(ValueError):
    """A file that a kubelet refuses; `field` is the path in it, empty for the whole."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletConfiguration:
    """What eviction reads of the file, and a sentence for each thing that is not served."""

    eviction: EvictionConfig
    warnings: tuple[str, ...]


def read_kubelet_configuration(
    text: str,
    *,
    mode: Mode = Mode.V1_32,
    dedicated_imagefs: bool = False,
    split_containerfs: bool = False,
) -> KubeletConfiguration:
    """Read the file's text, YAML or JSON, with the defaults of the kubelet that `mode` names.

    The two file systems are the node's own and in no such file. Thresholds are checked where they
    are parsed, by the eviction manager. Raises KubeletConfigError.
    """
    document = _document(text)
    gates = _gates(document)
    eviction = EvictionConfig(
        mode=mode,
        hard=_hard(document, mode),
        soft=_texts(document, "evictionSoft") or {},
        soft_grace=_texts(document, "evictionSoftGracePeriod") or {},
        min_reclaim=_texts(document, "evictionMinimumReclaim") or {},
        enforce_node_allocatable=_enforced(document),
        pressure_transition_ns=_transition_ns(document),
        max_pod_grace_s=_max_pod_grace_s(document),
        dedicated_imagefs=dedicated_imagefs,
        split_containerfs=split_containerfs and gates.get(SPLIT_DISK_GATE, True),
        local_storage_isolation=_flag(document, "localStorageCapacityIsolation", default=True),
        allow_overwrite_tgps=gates.get(OVERWRITE_GRACE_GATE, False),
        kernel_memcg_notification=_flag(document, "kernelMemcgNotification", default=False),
    )
    return KubeletConfiguration(eviction=eviction, warnings=_warnings(document, gates))


def _refuse_keys_that_come_twice(node: yaml.Node, path: str, seen: set[int]) -> None:
    """Refuse what YAML's own loader passes over by taking the last; each node is looked at once."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, each in enumerate(node.value):
            _refuse_keys_that_come_twice(each, f"{path}[{index}]", seen)
    if not isinstance(node, yaml.MappingNode):
        return
    keys = set()
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        field = f"{path}[{key.value}]" if path else key.value
        if key.value in keys:
            line = key.start_mark.line + 1
            raise KubeletConfigError(field, f'line {line}: "{key.value}" comes twice')
        keys.add(key.value)
        _refuse_keys_that_come_twice(value, field, seen)


def _document(text: str) -> _Document:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is not None:
            _refuse_keys_that_come_twice(node, "", set())
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, KubeletConfigError):
            raise
        raise KubeletConfigError("", f"is neither YAML nor JSON: {error}") from None
    if not _is_document(document):
        raise KubeletConfigError("", f"is no {KIND}: write a mapping of its fields")
    for field, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(field) != expected:
            raise KubeletConfigError(field, f'must be "{expected}"')
    for field in document:
        if field not in _READ and field not in NOT_SERVED:
            raise KubeletConfigError(field, f"is no field of a {KIND} ({API_VERSION})")
    return document


def _is_document(value: object) -> TypeGuard[_Document]:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value)


def _hard(document: _Document, mode: Mode) -> Mapping[str, str]:
    hard = _texts(document, "evictionHard")
    merges = _flag(document, "mergeDefaultEvictionSettings", default=False)
    if hard is None:
        return default_hard(mode)
    if merges:
        return {**default_hard(mode), **hard}
    return hard


def _texts(document: _Document, field: str) -> Mapping[str, str] | None:
    texts: dict[str, str] = {}
    given = document.get(field)
    if given is None:
        return None
    if not _is_document(given):
        raise KubeletConfigError(field, 'write a mapping such as {"memory.available": "100Mi"}')
    for name, value in given.items():
        if not isinstance(value, str):
            raise KubeletConfigError(f"{field}[{name}]", f'write a text: "{value}", with quotes')
        texts[name] = value
    return texts


def _gates(document: _Document) -> Mapping[str, bool]:
    given = document.get("featureGates")
    if given is None:
        return {}
    if not _is_document(given):
        raise KubeletConfigError("featureGates", "write a mapping of names to true or false")
    gates: dict[str, bool] = {}
    for name, value in given.items():
        if not isinstance(value, bool):
            raise KubeletConfigError(f"featureGates[{name}]", "write true or false")
        gates[name] = value
    return gates


def _flag(document: _Document, field: str, *, default: bool) -> bool:
    value = document.get(field)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise KubeletConfigError(field, "write true or false")
    return value


def _enforced(document: _Document) -> tuple[str, ...]:
    field = "enforceNodeAllocatable"
    given = document.get(field)
    if given is None:
        return ("pods",)
    if not isinstance(given, list):
        raise KubeletConfigError(field, 'write a list such as ["pods"]')
    for index, each in enumerate(given):
        path = f"{field}[{index}]"
        if each not in ENFORCEMENTS:
            known = ", ".join(f'"{name}"' for name in ENFORCEMENTS)
            raise KubeletConfigError(path, f'unknown value "{each}": use one of {known}')
        if each in given[:index]:
            raise KubeletConfigError(path, f'"{each}" comes twice')
    if "none" in given and len(given) > 1:
        raise KubeletConfigError(field, '"none" stands alone')
    return tuple(given)


def _transition_ns(document: _Document) -> int:
    field = "evictionPressureTransitionPeriod"
    text = document.get(field)
    if text is None:
        return DEFAULT_PRESSURE_TRANSITION_NS
    if not isinstance(text, str):
        raise KubeletConfigError(field, 'write a duration such as "5m0s", with quotes')
    try:
        period_ns = parse_duration_ns(text)
    except DurationError as error:
        raise KubeletConfigError(field, str(error)) from None
    if period_ns < 0:
        raise KubeletConfigError(field, "must not be negative")
    # A kubelet takes 0 for absent.
    return period_ns or DEFAULT_PRESSURE_TRANSITION_NS


def _max_pod_grace_s(document: _Document) -> int:
    field = "evictionMaxPodGracePeriod"
    seconds = document.get(field)
    if seconds is None:
        return 0
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        raise KubeletConfigError(field, "write a whole number of seconds")
    if not 0 <= seconds <= _INT32_MAX:
        raise KubeletConfigError(field, f"must lie between 0 and {_INT32_MAX}")
    return seconds


def _warnings(document: _Document, gates: Mapping[str, bool]) -> tuple[str, ...]:
    fields = [f"{field} is known but not served." for field in document if field in NOT_SERVED]
    others = [
        f"featureGates[{name}] is known to no rule of eviction and has no effect."
        for name in gates
        if name not in {OVERWRITE_GRACE_GATE, SPLIT_DISK_GATE}
    ]
    return (*fields, *others)
