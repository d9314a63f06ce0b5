"""Memory limits of containers, pods and nodes, and which container the kernel kills.

A container that uses more than its limit is killed. A pod's cgroup has a limit where the pod has
one of its own, or where each of its containers has one (their sum, as for requests). The cgroup of
all pods of a node, kubepods, is limited to the node's capacity without its reservations; the hard
eviction threshold is not subtracted. Allocatable is what is left when the threshold is subtracted,
too, so that the limit is allocatable plus the threshold. In these three cases, and where the node
has no memory left, the kernel picks its victim by use and oom_score_adj.

Source: kubernetes v1.34 pkg/kubelet/qos/policy.go, GetContainerOOMScoreAdjust;
pkg/kubelet/cm/helpers_linux.go, ResourceConfigForPod; pkg/kubelet/cm/
node_container_manager_linux.go, getNodeAllocatableInternalAbsolute and
GetNodeAllocatableReservation; pkg/apis/core/v1/helper/qos/qos.go, ComputePodQOS.
Linux v6.1 mm/oom_kill.c, oom_badness and select_bad_process.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from services.kube import quantity
from services.kube.requests import total_of_containers

MEMORY = "memory"
_COMPUTE = ("cpu", MEMORY)
_PAGE_BYTES = 4096
_LEAST_SCORE, _MOST_SCORE = -997, 1000
_NODE_CRITICAL = "system-node-critical"


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletMemory:
    """The memory settings of a kubelet.

    `hard_threshold` is that of memory.available, "" if none; `limits_pods`: kubepods has a limit
    (enforceNodeAllocatable has "pods"); `kills_process`: the kernel kills one process of a
    container (singleProcessOOMKill).
    """

    hard_threshold: str = "100Mi"
    limits_pods: bool = True
    kills_process: bool = False


DEFAULT_KUBELET = KubeletMemory()


def is_sidecar(container: pod_pb2.Container) -> bool:
    """Return whether an init container runs beside the containers that start after it."""
    return container.restart_policy == "Always"


def long_running(spec: pod_pb2.PodSpec) -> Iterator[pod_pb2.Container]:
    """Yield the containers that run while the pod does: its own ones, then its sidecars."""
    yield from spec.containers
    yield from (container for container in spec.init_containers if is_sidecar(container))


def container_limit(container: pod_pb2.Container) -> int | None:
    """Return a container's memory limit, bytes, None if none; 0 is none, too."""
    return _amount(container.resources.limits) or None


def pod_limit(spec: pod_pb2.PodSpec) -> int | None:
    """Return the memory limit of a pod's cgroup, bytes, None if none."""
    of_pod = _amount(spec.resources.limits)
    if of_pod:
        return of_pod + _amount(spec.overhead)
    if not all(
        _amount(container.resources.limits)
        for container in (*spec.containers, *spec.init_containers)
    ):
        return None
    return _total(spec, limits=True) + _amount(spec.overhead)


def memory_capacity(node: node_pb2.Node) -> int:
    """Return a node's memory, bytes; 0 if it is not known."""
    return _amount(node.status.capacity or node.status.allocatable)


def kubepods_limit(node: node_pb2.Node, kubelet: KubeletMemory) -> int | None:
    """Return the limit of the cgroup of all pods of a node, bytes; None if it is not known."""
    status = node.status
    if not kubelet.limits_pods or MEMORY not in status.capacity or MEMORY not in status.allocatable:
        return None
    most = _amount(status.capacity)
    return min(most, _amount(status.allocatable) + _threshold(kubelet, most))


def _threshold(kubelet: KubeletMemory, capacity_bytes: int) -> int:
    text = kubelet.hard_threshold
    if text.endswith("%"):
        return int(float(text[:-1]) / 100 * capacity_bytes)
    return quantity.value(text) if text else 0


def oom_score_adj(pod: pod_pb2.Pod, container: pod_pb2.Container, capacity_bytes: int) -> int:
    """Return a container's oom_score_adj on a node with so much memory."""
    spec = pod.spec
    qos = pod.status.qos_class or qos_class(spec)
    if spec.priority_class_name == _NODE_CRITICAL or qos == "Guaranteed":
        return _LEAST_SCORE
    if qos == "BestEffort" or not capacity_bytes:
        return _MOST_SCORE
    shared = 0
    if of_pod := _amount(spec.resources.requests):
        containers = len(spec.containers) + len(spec.init_containers)
        shared = (of_pod - _total(spec, limits=False)) // containers
    request = _amount(container.resources.requests) + shared
    if is_sidecar(container):
        # A sidecar is killed no sooner than any container that needs it.
        least = min(_amount(container.resources.requests) for container in spec.containers) + shared
        request = max(request, least)
    score = _MOST_SCORE - _MOST_SCORE * request // capacity_bytes
    return min(max(score, _MOST_SCORE + _LEAST_SCORE), _MOST_SCORE - 1)


def qos_class(spec: pod_pb2.PodSpec) -> str:
    """Return the quality of service that a pod's requests and limits of cpu and memory make."""
    if spec.HasField("resources") and (spec.resources.requests or spec.resources.limits):
        every = [spec.resources]
    else:
        every = [container.resources for container in (*spec.containers, *spec.init_containers)]
    has_any = any(_is_positive(amounts, name) for amounts in _lists(every) for name in _COMPUTE)
    if not has_any:
        return "BestEffort"
    is_guaranteed = all(
        _is_positive(resources.limits, name)
        and (
            name not in resources.requests
            or _parsed(resources.requests, name) == _parsed(resources.limits, name)
        )
        for resources in every
        for name in _COMPUTE
    )
    return "Guaranteed" if is_guaranteed else "Burstable"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUser:
    """A container that uses memory: `key` identifies it to the caller."""

    key: tuple[str, str]
    usage_bytes: int
    oom_score_adj: int


def victim(users: Iterable[MemoryUser], limit_bytes: int) -> MemoryUser | None:
    """Return the container that the kernel kills where `limit_bytes` are used up.

    The one with the most points: its pages, and a thousandth of the limit's pages for each point of
    its oom_score_adj. Of equals the last one. None if no container uses memory.
    """
    per_point = limit_bytes // _PAGE_BYTES // 1000
    worst: tuple[int, MemoryUser] | None = None
    for user in users:
        if user.usage_bytes <= 0:
            continue
        points = user.usage_bytes // _PAGE_BYTES + user.oom_score_adj * per_point
        if worst is None or points >= worst[0]:
            worst = points, user
    return None if worst is None else worst[1]


def _total(spec: pod_pb2.PodSpec, *, limits: bool) -> int:
    """Return what the containers have together."""

    def amount(container: pod_pb2.Container) -> dict[str, int]:
        resources = container.resources
        return {MEMORY: _amount(resources.limits if limits else resources.requests)}

    totals = total_of_containers(
        map(amount, spec.containers),
        ((is_sidecar(container), amount(container)) for container in spec.init_containers),
        plus=operator.add,
        highest=max,
    )
    return totals.get(MEMORY, 0)


def _amount(amounts: Mapping[str, str]) -> int:
    return quantity.value(amounts[MEMORY]) if MEMORY in amounts else 0


def _lists(every: Iterable[pod_pb2.ResourceRequirements]) -> Iterator[Mapping[str, str]]:
    for resources in every:
        yield resources.requests
        yield resources.limits


def _parsed(amounts: Mapping[str, str], name: str) -> int:
    return quantity.parse(amounts[name]).nano if name in amounts else 0


def _is_positive(amounts: Mapping[str, str], name: str) -> bool:
    return _parsed(amounts, name) > 0
