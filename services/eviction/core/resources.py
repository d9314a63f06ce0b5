"""What a pod asks for and may use, summed over its containers, and its quality of service.

The request by which a kubelet ranks pods is a function of its own upstream, older than the one in
services/kube/requests.py: in it a sidecar counts as any init container does, and requests of the
pod as a whole do not count. (Kubelets after v1.32 call PodRequests there.)

Source: kubernetes v1.32 pkg/api/v1/resource/helpers.go (GetResourceRequestQuantity),
staging/src/k8s.io/component-helpers/resource/helpers.go (PodLimits),
pkg/apis/core/v1/helper/qos/qos.go (ComputePodQOS).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

from services.eviction.core.pod import EvictionContainer, EvictionPod, Resources
from services.kube.quantity import Format, Quantity

_COMPUTE_RESOURCES = frozenset({"cpu", "memory"})


class QosClass(Enum):
    """A pod's quality of service."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


def request(pod: EvictionPod, resource: str) -> Quantity:
    """Return the larger of the containers' sum and each init container, plus the overhead.

    The overhead counts only where the rest is not 0.
    """
    total = Quantity(0, Format.BINARY_SI)
    for container in pod.containers:
        total = _plus(total, container.requests.get(resource))
    for container in pod.init_containers:
        total = _larger(total, container.requests.get(resource))
    return _plus(total, pod.overhead.get(resource)) if total.nano else total


def limit(pod: EvictionPod, resource: str, *, sidecars: bool) -> Quantity | None:
    """Return the pod's limit, None where no container has one.

    With `sidecars` (from v1.28 on) a sidecar's limit adds to that of the containers and of the
    init containers after it; without, it is an init container like any other.
    """
    total = _sum(each.limits.get(resource) for each in pod.containers)
    started_sidecars: Quantity | None = None
    largest_init: Quantity | None = None
    for container in pod.init_containers:
        own = container.limits.get(resource)
        if sidecars and container.restart_policy == "Always":
            total = _sum((total, own))
            started_sidecars = _sum((started_sidecars, own))
            peak = started_sidecars
        else:
            peak = _sum((own, started_sidecars))
        largest_init = _maximum(largest_init, peak)
    total = _maximum(total, largest_init)
    if total is None or not total.nano:
        return total
    return _plus(total, pod.overhead.get(resource))


def is_best_effort(pod: EvictionPod) -> bool:
    """Tell whether the pod is of the lowest class: as its status says, else as it asks.

    Source: kubernetes v1.32 pkg/apis/core/v1/helper/qos/qos.go, GetPodQOS.
    """
    known = pod.qos_class or qos_class(pod).value
    return known == QosClass.BEST_EFFORT.value


def qos_class(pod: EvictionPod) -> QosClass:
    """Return the quality of service that cpu and memory give the pod."""
    every = (*pod.containers, *pod.init_containers)
    requests = _positive_totals(each.requests for each in every)
    limits = _positive_totals(each.limits for each in every)
    if not requests and not limits:
        return QosClass.BEST_EFFORT
    if all(_limits_all(each) for each in every) and requests == limits:
        return QosClass.GUARANTEED
    return QosClass.BURSTABLE


def _limits_all(container: EvictionContainer) -> bool:
    return all(
        name in container.limits and container.limits[name].nano > 0 for name in _COMPUTE_RESOURCES
    )


def _positive_totals(lists: Iterable[Resources]) -> Mapping[str, int]:
    totals: dict[str, int] = {}
    for name, quantity in _compute_entries(lists):
        totals[name] = totals.get(name, 0) + quantity.nano
    return totals


def _compute_entries(lists: Iterable[Resources]) -> Iterator[tuple[str, Quantity]]:
    for resources in lists:
        for name, quantity in resources.items():
            if name in _COMPUTE_RESOURCES and quantity.nano > 0:
                yield name, quantity


def _plus(total: Quantity, more: Quantity | None) -> Quantity:
    if more is None:
        return total
    # A zero takes the format of what is added to it, as upstream's Quantity.Add does.
    return Quantity(total.nano + more.nano, total.format if total.nano else more.format)


def _larger(left: Quantity, right: Quantity | None) -> Quantity:
    return left if right is None or left.nano >= right.nano else right


def _sum(quantities: Iterable[Quantity | None]) -> Quantity | None:
    total: Quantity | None = None
    for each in quantities:
        total = each if total is None else _plus(total, each)
    return total


def _maximum(left: Quantity | None, right: Quantity | None) -> Quantity | None:
    return right if left is None else _larger(left, right)
