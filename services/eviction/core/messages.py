"""Why a pod was evicted, in the kubelet's words. Every sentence ends with a space.

Source: kubernetes v1.32 pkg/kubelet/eviction/helpers.go, evictionMessage.
"""

from __future__ import annotations

from services.eviction.core.observations import (
    ContainerUsage,
    FsUsage,
    Observation,
    PodUsage,
    available_quantity,
)
from services.eviction.core.pod import EvictionContainer, EvictionPod
from services.eviction.core.signals import StarvedResource
from services.eviction.core.thresholds import Threshold
from services.kube.quantity import NANO, Format, Quantity

_ZERO = Quantity(0)


def eviction_message(
    pod: EvictionPod,
    usage: PodUsage | None,
    threshold: Threshold,
    observed: Observation,
    *,
    name_init_containers: bool,
) -> tuple[str, dict[str, str]]:
    """Return the message and the event's annotations, which a pod without statistics lacks."""
    resource = threshold.signal.resource
    quantity = threshold.value.amount(observed.capacity)
    available = available_quantity(threshold.signal, observed)
    message = (
        f"The node was low on resource: {resource.value}. "
        f"Threshold quantity: {quantity}, available: {available}. "
    )
    if usage is None:
        return message, {}
    nameable = (*pod.containers, *pod.init_containers) if name_init_containers else pod.containers
    offending = _offending(nameable, usage, resource)
    for container, used in offending:
        requested = container.requests.get(resource.value, _ZERO)
        message += (
            f"Container {container.name} was using {used}, request is {requested}, "
            f"has larger consumption of {resource.value}. "
        )
    return message, {
        "offending_containers": ",".join(container.name for container, _ in offending),
        "offending_containers_usage": ",".join(str(used) for _, used in offending),
        "starved_resource": resource.value,
    }


def _offending(
    containers: tuple[EvictionContainer, ...], usage: PodUsage, resource: StarvedResource
) -> list[tuple[EvictionContainer, Quantity]]:
    by_name: dict[str, EvictionContainer] = {}
    for container in containers:
        by_name.setdefault(container.name, container)
    offending = []
    for stats in usage.containers:
        spec, used = by_name.get(stats.name), _container_used(stats, resource)
        if spec is None or used is None:
            continue
        if used * NANO > spec.requests.get(resource.value, _ZERO).nano:
            offending.append((spec, Quantity.from_value(used, Format.BINARY_SI)))
    return offending


def _container_used(stats: ContainerUsage, resource: StarvedResource) -> int | None:
    match resource:
        case StarvedResource.MEMORY:
            return stats.memory_working_set_bytes
        case StarvedResource.EPHEMERAL_STORAGE:
            return _used_bytes(stats.rootfs, stats.logs)
        case _:
            return None


def _used_bytes(rootfs: FsUsage | None, logs: FsUsage | None) -> int | None:
    if rootfs is None or rootfs.used_bytes is None or logs is None or logs.used_bytes is None:
        return None
    return rootfs.used_bytes + logs.used_bytes
