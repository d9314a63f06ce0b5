"""Fields of a manifest that stand where Kubernetes ignores them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_Raw = Mapping[str, Any]

# PodSpec's own fields that neither a container nor a workload's spec has.
_POD_FIELDS_TEXT = (
    "priorityClassName priority preemptionPolicy schedulerName nodeName nodeSelector affinity "
    "tolerations topologySpreadConstraints schedulingGates terminationGracePeriodSeconds overhead "
    "hostNetwork runtimeClassName"
)
_POD_FIELDS = frozenset(_POD_FIELDS_TEXT.split())
_TEMPLATE_PATHS = {
    "ReplicationController": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}


def misplaced_fields(raw: _Raw) -> Iterator[str]:
    """Yield the path of each field of a pod's spec that stands where it has no effect."""
    if raw.get("kind") == "Pod":
        yield from _around(raw, "")
    elif path := _TEMPLATE_PATHS.get(str(raw.get("kind"))):
        at, where = raw, ""
        for name in path:
            at, where = _mapping(at, name), f"{where}.{name}" if where else name
            yield from _own(at, where)
        yield from _around(at, f"{where}.")


def _around(pod: _Raw, prefix: str) -> Iterator[str]:
    if not prefix:
        yield from _own(pod, "")
    yield from _own(_mapping(pod, "metadata"), f"{prefix}metadata")
    spec = _mapping(pod, "spec")
    for name in ("containers", "initContainers"):
        containers = spec.get(name)
        for index, each in enumerate(containers if isinstance(containers, list) else ()):
            if isinstance(each, dict) and not _POD_FIELDS.isdisjoint(each):
                yield from _own(each, f"{prefix}spec.{name}[{index}]")


def _own(mapping: _Raw, where: str) -> Iterator[str]:
    for name in mapping:
        if name in _POD_FIELDS:
            yield f"{where}.{name}" if where else name


def _mapping(raw: _Raw, name: str) -> _Raw:
    value = raw.get(name)
    return value if isinstance(value, dict) else {}
