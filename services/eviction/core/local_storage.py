"""Limits on local storage: every pod that exceeds one is evicted at once.

A pod is checked against the size limits of its emptyDirs, then the pod's limit on ephemeral
storage, then each container's limit. The first exceeded limit is the cause. A critical pod is never
evicted.

Source: kubernetes v1.32 pkg/kubelet/eviction/eviction_manager.go, localStorageEviction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.eviction.core.observations import PodUsage, used_bytes
from services.eviction.core.pod import EvictionPod, limit
from services.eviction.core.results import Eviction
from services.kube.quantity import NANO
from services.kube.requests import EPHEMERAL_STORAGE

_Breach = tuple[str, str]
"""The cause of an eviction and its message."""


def local_storage_evictions(
    pods: Sequence[EvictionPod],
    usage: Mapping[str, PodUsage],
    *,
    imagefs_is_dedicated: bool,
    sidecars: bool,
    grace_period_s: int,
) -> tuple[Eviction, ...]:
    """Return the evictions of all pods above a limit, in the order of `pods`; `usage` by UID."""
    evictions = []
    for pod in pods:
        stats = usage.get(pod.uid)
        if stats is None or not may_be_evicted(pod):
            continue
        breach = (
            _empty_dir_breach(pod, stats)
            or _pod_breach(pod, stats, sidecars=sidecars)
            or _container_breach(pod, stats, logs_only=imagefs_is_dedicated)
        )
        if breach is not None:
            cause, message = breach
            evictions.append(
                Eviction(
                    uid=pod.uid,
                    namespace=pod.namespace,
                    name=pod.name,
                    cause=cause,
                    grace_period_s=grace_period_s,
                    message=message,
                )
            )
    return tuple(evictions)


def may_be_evicted(pod: EvictionPod) -> bool:
    """Return whether the spec of `pod` has a limit on local storage that can lead to eviction."""
    limited = any(volume.size_limit is not None for volume in pod.volumes) or any(
        EPHEMERAL_STORAGE in container.limits
        for container in (*pod.containers, *pod.init_containers)
    )
    return limited and not pod.is_critical


def _empty_dir_breach(pod: EvictionPod, stats: PodUsage) -> _Breach | None:
    used = {volume.name: volume.usage.used_bytes for volume in stats.volumes}
    for volume in pod.volumes:
        bytes_used, size = used.get(volume.name), volume.size_limit
        if not volume.is_empty_dir or bytes_used is None or size is None:
            continue
        if 0 < size.nano < bytes_used * NANO:
            name = _quoted(volume.name)
            return (
                "emptydirfs.limit",
                f"Usage of EmptyDir volume {name} exceeds the limit {_quoted(str(size))}. ",
            )
    return None


def _pod_breach(pod: EvictionPod, stats: PodUsage, *, sidecars: bool) -> _Breach | None:
    allowed = limit(pod, EPHEMERAL_STORAGE, sidecars=sidecars)
    if allowed is None or (stats.ephemeral_storage_bytes or 0) * NANO <= allowed.nano:
        return None
    return (
        "ephemeralpodfs.limit",
        f"Pod ephemeral local storage usage exceeds the total limit of containers {allowed}. ",
    )


def _container_breach(pod: EvictionPod, stats: PodUsage, *, logs_only: bool) -> _Breach | None:
    limits = {
        container.name: container.limits[EPHEMERAL_STORAGE]
        for container in pod.containers
        if EPHEMERAL_STORAGE in container.limits and container.limits[EPHEMERAL_STORAGE].nano
    }
    for container in stats.containers:
        allowed = limits.get(container.name)
        used = used_bytes(container.logs) + (0 if logs_only else used_bytes(container.rootfs))
        if allowed is not None and used * NANO > allowed.nano:
            return (
                "ephemeralcontainerfs.limit",
                (
                    f"Container {container.name} exceeded its local ephemeral storage limit "
                    f"{_quoted(str(allowed))}. "
                ),
            )
    return None


def _quoted(text: str) -> str:
    return f'"{text}"'
