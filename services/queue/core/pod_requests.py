"""What a pod asks of a node, in total, as far as queueing hints compare it.

Containers add up; an init container counts alone beside the sidecars started before it, and a
sidecar goes on beside everything after it. Pod-level requests replace the containers' sum.

Source: kubernetes v1.34 component-helpers/resource/helpers.go, PodRequests.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.kube.pod import PodSpec

_SIDECAR = "Always"


def pod_requests(spec: PodSpec) -> Mapping[str, int]:
    """Return the totals of `spec` by resource, overhead included, in Kubernetes' units."""
    total: dict[str, int] = {}
    for container in spec.containers:
        _add(total, container.requests)
    _raise_to_init(total, spec)
    if spec.resources is not None:
        total.update(spec.resources)
    _add(total, spec.overhead)
    return total


def _raise_to_init(total: dict[str, int], spec: PodSpec) -> None:
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.init_containers:
        if container.restart_policy == _SIDECAR:
            _add(sidecars, container.requests)
            _add(total, container.requests)
            _raise(peak, sidecars)
        else:
            beside = dict(sidecars)
            _add(beside, container.requests)
            _raise(peak, beside)
    _raise(total, peak)


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = max(total.get(name, amount), amount)
