"""Determines what a recording covers, and what a replay lacks without the rest.

A user with rights in only some namespaces records these namespaces, and those cluster-scoped kinds
that the user may list. Each missing kind affects a replay; a note names the effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from replay.kube import device_versions
from replay.kube.kinds import CLUSTER_SCOPED, RESOURCES, Resource
from replay.record.watcher import UNANSWERED, WatcherStatus

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_UNSPREAD = "default topology spread constraints select no pods by them"
_NOT_REPLACED = "a replay does not replace their pods that are preempted or evicted"
_TWICE = "pods are there twice where a {} is recorded: as recorded, and as it creates them"

EFFECTS: Mapping[str, str] = MappingProxyType(
    {
        "Node": "a replay schedules nothing without nodes: add --nodes-from nodes.yaml to "
        "reprieve replay, or --made-nodes 10",
        "Pod": "a replay has only the pods that its controllers create",
        "Namespace": "a namespaceSelector of pod affinity selects no namespace",
        "PriorityClass": "the classes that recorded pods name are inferred from them; a pod of "
        "another class that a controller creates is refused",
        "PodDisruptionBudget": "preemption does not spare the pods that they protect",
        "Deployment": "ReplicaSets are scaled when they are recorded to be",
        "ReplicaSet": f"{_NOT_REPLACED}; {_TWICE.format('Deployment')}",
        "StatefulSet": _NOT_REPLACED,
        "DaemonSet": _NOT_REPLACED,
        "ReplicationController": _NOT_REPLACED,
        "Job": f"{_NOT_REPLACED}; {_TWICE.format('CronJob')}",
        "CronJob": "Jobs begin when they are recorded",
        "Service": _UNSPREAD,
        "PersistentVolume": "VolumeBinding and VolumeZone find no volume: pods with bound claims "
        "are not scheduled again",
        "PersistentVolumeClaim": "VolumeBinding refuses each pod with a claim",
        "StorageClass": "VolumeBinding refuses each pod with an unbound claim",
        "CSINode": "NodeVolumeLimits does not limit the volumes of a node",
        "CSIDriver": "VolumeBinding does not check storage capacity",
        "CSIStorageCapacity": "VolumeBinding finds no space for new volumes of CSI drivers that "
        "publish their capacity",
        "VolumeAttachment": "NodeVolumeLimits counts only the volumes of recorded pods",
        "ResourceQuota": "a pod that a controller creates is not refused by a quota",
        "LimitRange": "a pod that a controller creates has no defaults of a namespace, and is not "
        "refused by its bounds",
        "RuntimeClass": "a pod that a controller creates has no overhead",
        "ResourceSlice": "no device is there: pods with unallocated claims are not scheduled",
        "DeviceClass": "pods whose claims name a class are not scheduled",
        "ResourceClaim": "devices in use look free, and pods whose claims were made by users wait",
        "ResourceClaimTemplate": "pods whose claims come from a template are not scheduled",
    }
)
"""The effect on a replay if the objects of a kind are missing."""


def is_namespace_name(text: str) -> bool:
    """Return whether a text is a namespace's name: an RFC 1123 label."""
    return _DNS_LABEL.fullmatch(text) is not None


def resources_of(device_version: str) -> Sequence[Resource]:
    """Return all resources, with devices in a version of their group; without them for ""."""
    return [
        replace(resource, api_version=f"{device_versions.GROUP}/{device_version}")
        if resource.kind in device_versions.KINDS
        else resource
        for resource in RESOURCES
        if device_version or resource.kind not in device_versions.KINDS
    ]


def resources_in(namespaces: Sequence[str], resources: Iterable[Resource]) -> list[Resource]:
    """Return the resources, with each namespaced one repeated for each of `namespaces`.

    Without namespaces, each resource covers the whole cluster.
    """
    if not namespaces:
        return list(resources)
    return [
        replace(resource, namespace=namespace)
        for resource in resources
        for namespace in ([""] if resource.kind in CLUSTER_SCOPED else namespaces)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A resource and the state of its watcher; `unreadable` objects were left out."""

    resource: Resource
    status: WatcherStatus
    unreadable: int = 0

    @property
    def title(self) -> str:
        """Return the resource's name, with its namespace."""
        return _title(self.resource.name, [self.resource.namespace])


def is_over(watched: Sequence[Watched]) -> bool:
    """Return whether the server now refuses all relevant resources.

    In a recording of namespaces, the namespaced resources are relevant, otherwise all are.
    """
    return all(watch.status.refused for watch in _needed(watched))


def is_refused(watched: Sequence[Watched]) -> bool:
    """Return whether the server refused all relevant resources before any was recorded."""
    return all(watch.status.refused and not watch.status.has_received for watch in _needed(watched))


def _needed(watched: Sequence[Watched]) -> Sequence[Watched]:
    return [watch for watch in watched if watch.resource.namespace] or watched


def is_forbidden_at_cluster_scope(watched: Iterable[Watched]) -> bool:
    """Return whether a namespaced kind is forbidden in the whole cluster."""
    return any(
        watch.status.is_forbidden
        and not watch.resource.namespace
        and watch.resource.kind not in CLUSTER_SCOPED
        for watch in watched
    )


def missing(watched: Sequence[Watched], shown: Callable[[str], str]) -> list[tuple[str, str]]:
    """Return (missing resources with the effect, reason); `shown` formats a namespace's name."""
    whole = _refused_namespaces(watched)
    result = [
        (f"namespace {shown(name)} is not recorded: every kind is refused", why)
        for name, why in whole.items()
    ]
    rest = [watch for watch in watched if watch.resource.namespace not in whole]
    result += _refused(rest, shown)
    for watch in rest:
        status, title = watch.status, _title(watch.resource.name, [watch.resource.namespace], shown)
        if not status.is_listed and not status.refused:
            why = status.problem or "the recording ended before"
            result.append((f"{title} were not listed completely", why))
        if watch.unreadable:
            what = f"{watch.unreadable:,} objects of {title} are not recorded, or not in all states"
            result.append((what, "they are malformed, or nested deeper than 254 levels"))
    return result


def without_end(
    watched: Iterable[Watched], shown: Callable[[str], str]
) -> list[tuple[str, int, str]]:
    """Return (title, complete until, reason) of each resource that is not complete to the end.

    The time is in ns since 1970; 0 for a resource whose first list was not completed.
    """
    return [
        (
            _title(watch.resource.name, [watch.resource.namespace], shown),
            watch.status.complete_until_ns,
            watch.status.problem or UNANSWERED,
        )
        for watch in watched
        if not watch.status.is_complete and not watch.status.refused
    ]


def _refused(rest: Iterable[Watched], shown: Callable[[str], str]) -> list[tuple[str, str]]:
    """Return a note for each kind that was never recorded, naming all namespaces concerned.

    For other kinds, the recording's files have the time until which they are complete.
    """
    groups: dict[str, list[Watched]] = {}
    for watch in rest:
        if watch.status.refused and not watch.status.is_listed:
            groups.setdefault(watch.resource.kind, []).append(watch)
    result = []
    for kind, group in groups.items():
        first = group[0]
        title = _title(first.resource.name, [watch.resource.namespace for watch in group], shown)
        result.append((f"{title} are not recorded; {EFFECTS[kind]}", first.status.refused))
    return result


def _refused_namespaces(watched: Iterable[Watched]) -> dict[str, str]:
    """Return the reason for each namespace in which no kind was ever listed."""
    by_namespace: dict[str, list[WatcherStatus]] = {}
    for watch in watched:
        if watch.resource.namespace:
            by_namespace.setdefault(watch.resource.namespace, []).append(watch.status)
    return {
        namespace: statuses[0].refused
        for namespace, statuses in by_namespace.items()
        if all(status.refused and not status.has_received for status in statuses)
    }


def _title(name: str, namespaces: Sequence[str], shown: Callable[[str], str] = str) -> str:
    named = ", ".join(shown(namespace) for namespace in namespaces if namespace)
    return f"{name} of {named}" if named else name
