"""The order in which pods are evicted.

Pods are compared by these criteria, in this order; pods that are equal under all criteria keep the
order in which the node lists them:

- memory and disk: pods without statistics; pods that use more than they request; lower priority;
  more use above the request;
- pids: lower priority; pods without statistics; more processes.

For inodes, the request that is subtracted is the request of ephemeral storage, in bytes. This is a
bug of upstream; it is reproduced because it decides which pod is evicted.

Source: kubernetes v1.32 pkg/kubelet/eviction/helpers.go, rankMemoryPressure, rankPIDPressure,
rankDiskPressureFunc and the comparisons they name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.eviction.core.observations import (
    FileSystemLayout,
    FsMeasure,
    PodUsage,
    disk_bytes,
    disk_inodes,
)
from services.eviction.core.pod import EvictionPod, request
from services.eviction.core.signals import Signal, StarvedResource
from services.kube.quantity import NANO, Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPod:
    """A pod in the ranking, with its criteria.

    `usage` (None without statistics) and `request` are amounts of the starved resource: bytes,
    inodes or process IDs.
    """

    uid: str
    namespace: str
    name: str
    priority: int
    usage: int | None
    request: int
    exceeds_request: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    usage: int | None
    request_nano: int
    subtracted_nano: int

    @property
    def missing(self) -> bool:
        return self.usage is None

    @property
    def exceeds(self) -> bool:
        return self.usage is not None and self.usage * NANO > self.request_nano

    @property
    def above_nano(self) -> int:
        return 0 if self.usage is None else self.usage * NANO - self.subtracted_nano


def rank(
    pods: Sequence[EvictionPod],
    usage: Mapping[str, PodUsage],
    signal: Signal,
    layout: FileSystemLayout,
) -> tuple[tuple[EvictionPod, RankedPod], ...]:
    """Return the pods in the order of eviction; `usage` is by UID."""
    rule = layout.disk_rule(signal)
    measure = FsMeasure.NOTHING if rule is None else rule.measure
    resource = signal.resource
    measured = [(pod, _measure(pod, usage.get(pod.uid), resource, measure)) for pod in pods]
    key = _by_pids if resource is StarvedResource.PIDS else _by_excess
    measured.sort(key=lambda ranked: key(*ranked))
    return tuple((pod, _explained(pod, amounts)) for pod, amounts in measured)


def _by_excess(pod: EvictionPod, measured: _Measured) -> tuple[bool, bool, int, int]:
    return (not measured.missing, not measured.exceeds, pod.priority, -measured.above_nano)


def _by_pids(pod: EvictionPod, measured: _Measured) -> tuple[int, bool, int]:
    return (pod.priority, not measured.missing, -measured.above_nano)


def _measure(
    pod: EvictionPod, usage: PodUsage | None, resource: StarvedResource, measure: FsMeasure
) -> _Measured:
    if resource is StarvedResource.PIDS:
        # Pods cannot request process IDs.
        processes = None if usage is None else usage.processes or 0
        return _Measured(usage=processes, request_nano=0, subtracted_nano=0)
    requested = request(pod, resource.value).nano
    subtracted = requested
    if resource is StarvedResource.INODES:
        subtracted = request(pod, StarvedResource.EPHEMERAL_STORAGE.value).nano
    used = None if usage is None else _used(pod, usage, resource, measure)
    return _Measured(usage=used, request_nano=requested, subtracted_nano=subtracted)


def _used(pod: EvictionPod, usage: PodUsage, resource: StarvedResource, measure: FsMeasure) -> int:
    match resource:
        case StarvedResource.MEMORY:
            return usage.memory_working_set_bytes or 0
        case StarvedResource.INODES:
            return disk_inodes(pod, usage, measure)
        case _:
            return disk_bytes(pod, usage, measure)


def _explained(pod: EvictionPod, measured: _Measured) -> RankedPod:
    return RankedPod(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        priority=pod.priority,
        usage=measured.usage,
        request=Quantity(measured.request_nano).value(),
        exceeds_request=measured.exceeds,
    )
