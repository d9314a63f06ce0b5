"""Pods as a kubelet ranks and limits them: requests, limits, quality of service.

Resources are exact quantities in the format in which they were written, because messages print
them. Upstream, the request by which a kubelet ranks pods is computed by a separate, older function
than the one in services/kube/requests.py: a sidecar counts like any init container, and pod-level
requests do not count. (Kubelets after v1.32 call PodRequests instead.)

Source: kubernetes v1.32 pkg/kubelet/types/pod_update.go (IsCriticalPod and what it calls),
pkg/volume/util/util.go (IsLocalEphemeralVolume), pkg/kubelet/eviction/helpers.go
(localVolumeNames), pkg/api/v1/resource/helpers.go (GetResourceRequestQuantity),
staging/src/k8s.io/component-helpers/resource/helpers.go (PodLimits),
pkg/apis/core/v1/helper/qos/qos.go (ComputePodQOS).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from services.kube.pod import SYSTEM_CRITICAL_PRIORITY
from services.kube.quantity import Format, Quantity
from services.kube.taints import Toleration

SOURCE_ANNOTATION = "kubernetes.io/config.source"
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
_API_SOURCE = "api"
_EMPTY_DIR = "emptyDir"
_LOCAL_KINDS = frozenset({"hostPath", "gitRepo", "configMap"})
_COMPUTE_RESOURCES = frozenset({"cpu", "memory"})

Resources = Mapping[str, Quantity]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionContainer:
    """A container's requests and limits by resource name.

    `restart_policy` "Always" on an init container makes it a sidecar.
    """

    name: str
    requests: Resources = field(default_factory=dict)
    limits: Resources = field(default_factory=dict)
    restart_policy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionVolume:
    """A volume; `kind` is the field name of its source in a pod's spec ("emptyDir", "hostPath").

    `medium` ("" for disk) and `size_limit` (None without a limit) are set for an emptyDir.
    """

    name: str
    kind: str
    medium: str = ""
    size_limit: Quantity | None = None

    @property
    def is_empty_dir(self) -> bool:
        """Whether the volume is an emptyDir, on disk or in memory."""
        return self.kind == _EMPTY_DIR

    @property
    def is_local(self) -> bool:
        """Whether the volume is on the node's own disk."""
        return self.kind in _LOCAL_KINDS or (self.is_empty_dir and self.medium == "")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionPod:
    """The fields of a pod that eviction reads; `priority` is spec.priority, 0 if absent.

    `termination_grace_s` is spec.terminationGracePeriodSeconds, None if absent; `qos_class` is
    status.qosClass, "" if absent.
    """

    uid: str
    namespace: str
    name: str
    priority: int = 0
    containers: tuple[EvictionContainer, ...] = ()
    init_containers: tuple[EvictionContainer, ...] = ()
    overhead: Resources = field(default_factory=dict)
    volumes: tuple[EvictionVolume, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    termination_grace_s: int | None = None
    qos_class: str = ""
    tolerations: tuple[Toleration, ...] = ()

    @property
    def is_static(self) -> bool:
        """Whether the pod is from a file or a URL, not from the API server."""
        return self.annotations.get(SOURCE_ANNOTATION, _API_SOURCE) != _API_SOURCE

    @property
    def is_mirror(self) -> bool:
        """Whether the pod is the API server's mirror of a static pod."""
        return MIRROR_ANNOTATION in self.annotations

    @property
    def is_critical(self) -> bool:
        """Whether the pod is never evicted and always admitted."""
        return self.is_static or self.is_mirror or self.priority >= SYSTEM_CRITICAL_PRIORITY


class QosClass(Enum):
    """A pod's quality of service."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


def request(pod: EvictionPod, resource: str) -> Quantity:
    """Return the larger of the containers' sum and each init container, plus the overhead.

    The overhead is added only if the rest is not 0.
    """
    total = Quantity(0, Format.BINARY_SI)
    for container in pod.containers:
        total = _plus(total, container.requests.get(resource))
    for container in pod.init_containers:
        total = _larger(total, container.requests.get(resource))
    return _plus(total, pod.overhead.get(resource)) if total.nano else total


def limit(pod: EvictionPod, resource: str, *, sidecars: bool) -> Quantity | None:
    """Return the pod's limit; None if no container has one.

    With `sidecars` (from v1.28 on), a sidecar's limit is added to the limits of the containers and
    of the init containers after it; without, a sidecar counts like any init container.
    """
    total = _sum(container.limits.get(resource) for container in pod.containers)
    started_sidecars: Quantity | None = None
    largest_init: Quantity | None = None
    for container in pod.init_containers:
        requested_limit = container.limits.get(resource)
        if sidecars and container.restart_policy == "Always":
            total = _sum((total, requested_limit))
            started_sidecars = _sum((started_sidecars, requested_limit))
            peak = started_sidecars
        else:
            peak = _sum((requested_limit, started_sidecars))
        largest_init = _maximum(largest_init, peak)
    total = _maximum(total, largest_init)
    if total is None or not total.nano:
        return total
    return _plus(total, pod.overhead.get(resource))


def is_best_effort(pod: EvictionPod) -> bool:
    """Return whether the pod is BestEffort, by its status, or else by its requests and limits.

    Source: kubernetes v1.32 pkg/apis/core/v1/helper/qos/qos.go, GetPodQOS.
    """
    return (pod.qos_class or qos_class(pod).value) == QosClass.BEST_EFFORT.value


def qos_class(pod: EvictionPod) -> QosClass:
    """Return the class that follows from the pod's requests and limits of CPU and memory."""
    every = (*pod.containers, *pod.init_containers)
    requests = _positive_totals(container.requests for container in every)
    limits = _positive_totals(container.limits for container in every)
    if not requests and not limits:
        return QosClass.BEST_EFFORT
    if all(_limits_all(container) for container in every) and requests == limits:
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
    # A zero takes the format of the other summand, as in upstream's Quantity.Add.
    return Quantity(total.nano + more.nano, total.format if total.nano else more.format)


def _larger(one: Quantity, other: Quantity | None) -> Quantity:
    return one if other is None or one.nano >= other.nano else other


def _sum(quantities: Iterable[Quantity | None]) -> Quantity | None:
    total: Quantity | None = None
    for quantity in quantities:
        total = quantity if total is None else _plus(total, quantity)
    return total


def _maximum(one: Quantity | None, other: Quantity | None) -> Quantity | None:
    return other if one is None else _larger(one, other)
