"""Computes the requests of a pod: amounts of resources, and host ports.

The requests of containers are summed. An init container runs alone, beside only the sidecars
started before it, and a sidecar runs beside everything after it; the pod requests the highest of
these sums. Pod-level requests replace the sums, and the overhead is added.

During a resize in place, a container counts with the highest of three amounts: the request in its
spec, the amount allocated by the node, and the amount in force. If the resize is infeasible on the
node, the request in the spec does not count. Since v1.36, the same holds for pod-level requests.
(A kubelet's eviction ranks pods by another rule, services/eviction/core/pod.py.)

A host port is an address, a protocol and a number. Only "" and "0.0.0.0" stand for every address;
"::" is an address like any other. Upstream keeps a set of ports, so a deleted pod frees its port
even if another pod holds the same port. Here, the holders of a port are counted; this differs only
if pods were placed without the filter.

Source: kubernetes v1.34 component-helpers/resource/helpers.go, PodRequests,
AggregateContainerRequests, determineContainerReqs, IsPodResizeInfeasible and
IsSupportedPodLevelResource; kube-scheduler/framework/types.go, HostPortInfo;
pkg/scheduler/util/utils.go, GetHostPorts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from services.kube.pod import NO_RESOURCES, Container, ContainerResources, Pod, PodSpec
from services.kube.quantity import AMOUNT_MAX

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"
_NAMED = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})
_NATIVE = "kubernetes.io/"

_A = TypeVar("_A")
_RESIZE_PENDING = "PodResizePending"
_INFEASIBLE = "Infeasible"


def pod_requests(
    spec: PodSpec, defaults: Mapping[str, int] = NO_RESOURCES, *, pod_level: bool = True
) -> dict[str, int]:
    """Return the totals by resource, "cpu" in thousandths of a core, else whole units.

    No total exceeds AMOUNT_MAX. `defaults` has the amounts for resources that a container does not
    request; a request of 0 counts as 0. Without `pod_level`, pod-level requests are ignored.
    """
    total = _container_requests(spec, defaults)
    if pod_level and spec.resources:
        total.update(pod_level_requests(spec))
    _combine(total, spec.overhead, _bounded_sum)
    return total


def pod_level_requests(spec: PodSpec) -> dict[str, int]:
    """Return the pod-level requests of the resources that support them."""
    return {
        name: amount
        for name, amount in (spec.resources or NO_RESOURCES).items()
        if name in {CPU, MEMORY} or name.startswith("hugepages-")
    }


def scaled_down(before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    """Return whether a pod requests less of any resource than before.

    Source: kubernetes v1.34 pkg/scheduler/framework/events.go, extractPodScaleDown.
    """
    return any(name not in after or amount > after[name] for name, amount in before.items())


def _container_requests(spec: PodSpec, defaults: Mapping[str, int]) -> dict[str, int]:
    return total_of_containers(
        (_with(defaults, container.requests) for container in spec.containers),
        (
            (is_sidecar(container), _with(defaults, container.requests))
            for container in spec.init_containers
        ),
        plus=_bounded_sum,
        highest=max,
    )


def total_of_containers(
    containers: Iterable[Mapping[str, _A]],
    init_containers: Iterable[tuple[bool, Mapping[str, _A]]],
    *,
    plus: Callable[[_A, _A], _A],
    highest: Callable[[_A, _A], _A],
) -> dict[str, _A]:
    """Return the sum of the requests, or of the limits, of a pod's containers, by resource.

    `init_containers` has (whether it is a sidecar, its amounts) for each init container. `plus` and
    `highest` return the sum and the maximum of two amounts.
    """
    total: dict[str, _A] = {}
    for amounts in containers:
        _combine(total, amounts, plus)
    sidecars: dict[str, _A] = {}
    peak: dict[str, _A] = {}
    for runs_on, amounts in init_containers:
        if runs_on:
            _combine(total, amounts, plus)
            _combine(sidecars, amounts, plus)
            _combine(peak, sidecars, highest)
        else:
            beside = dict(sidecars)
            _combine(beside, amounts, plus)
            _combine(peak, beside, highest)
    if peak:
        _combine(total, peak, highest)
    return total


def _combine(
    total: dict[str, _A], amounts: Mapping[str, _A], operation: Callable[[_A, _A], _A]
) -> None:
    for name, amount in amounts.items():
        total[name] = operation(total[name], amount) if name in total else amount


def _bounded_sum(one: int, other: int) -> int:
    return min(one + other, AMOUNT_MAX)


def _with(defaults: Mapping[str, int], requests: Mapping[str, int]) -> Mapping[str, int]:
    return {**defaults, **requests} if defaults else requests


def requested_names(spec: PodSpec) -> Iterator[str]:
    """Yield the names of resources that a pod with this spec may request, some repeatedly."""
    for container in (*spec.containers, *spec.init_containers):
        yield from container.requests
    yield from spec.overhead
    yield from spec.resources or ()


def names_in_force(resources: Iterable[ContainerResources]) -> Iterator[str]:
    """Yield the names of the resources in containers' statuses, some repeatedly."""
    for container in resources:
        for name, _ in (*container.actual, *container.allocated):
            yield name


def is_counted(name: str) -> bool:
    """Return whether the scheduler accounts for the resource."""
    return name in _NAMED or is_scalar(name)


def is_scalar(name: str) -> bool:
    """Return whether the resource is extended, or counts huge pages or attachable volumes.

    Source: kubernetes v1.34 pkg/scheduler/util/utils.go, IsScalarResourceName.
    """
    if name.startswith(("hugepages-", "attachable-volumes-")) or _NATIVE in name:
        return True
    return "/" in name and not name.startswith("requests.")


def is_extended(name: str) -> bool:
    """Return whether the resource is not defined by Kubernetes, such as a vendor's devices.

    Source: kubernetes v1.34 pkg/apis/core/v1/helper/helpers.go, IsExtendedResourceName.
    """
    return "/" in name and _NATIVE not in name and not name.startswith("requests.")


def is_sidecar(container: Container) -> bool:
    """Return whether an init container runs beside the containers that start after it."""
    return container.restart_policy == "Always"


def is_resize_infeasible(pod: Pod) -> bool:
    """Return whether the kubelet has reported the pod's resize as infeasible on its node."""
    pending = pod.condition(_RESIZE_PENDING) if pod.conditions else None
    return pending is not None and pending.reason == _INFEASIBLE


def is_resize_reported(old: Pod, new: Pod) -> bool:
    """Return whether the resources in force have changed by a pod's status alone."""
    if not (old.reports_resources or new.reports_resources):
        return False
    return (
        old.container_resources != new.container_resources
        or old.pod_resources != new.pod_resources
        or is_resize_infeasible(old) != is_resize_infeasible(new)
    )


def requests_in_force(pod: Pod) -> dict[str, int]:
    """Return what a pod counts with, by its spec and, in a resize, by its status."""
    return pod_requests(spec_in_force(pod, pod_level=True) if pod.reports_resources else pod.spec)


def spec_in_force(pod: Pod, *, pod_level: bool = False) -> PodSpec:
    """Return the pod's spec with the requests of containers and sidecars that count now.

    With `pod_level`, also with the pod-level requests that count, of the resources in its spec.
    Source: kubernetes v1.36 component-helpers/resource/helpers.go, PodRequests,
    determineEffectiveRequests.
    """
    by_name = {status.name: status for status in pod.container_resources}
    infeasible = is_resize_infeasible(pod)
    return replace(
        pod.spec,
        containers=tuple(
            _in_force(container, by_name, infeasible) for container in pod.spec.containers
        ),
        init_containers=tuple(
            _in_force(container, by_name, infeasible) if is_sidecar(container) else container
            for container in pod.spec.init_containers
        ),
        resources=_pod_level_in_force(pod) if pod_level else pod.spec.resources,
    )


def _pod_level_in_force(pod: Pod) -> Mapping[str, int] | None:
    """Return the pod-level requests; after a refusal, a resource missing in the status is 0."""
    requested, status = pod.spec.resources, pod.pod_resources
    if requested is None or status is None:
        return requested
    in_force = _highest_of(requested, status, infeasible=is_resize_infeasible(pod))
    return {name: in_force.get(name, 0) for name in requested}


def _in_force(
    container: Container, by_name: Mapping[str, ContainerResources], infeasible: bool
) -> Container:
    status = by_name.get(container.name)
    if status is None:
        return container
    in_force = _highest_of(container.requests, status, infeasible=infeasible)
    return replace(container, requests=in_force)


def _highest_of(
    requested: Mapping[str, int], status: ContainerResources, *, infeasible: bool
) -> dict[str, int]:
    requests = () if infeasible else tuple(requested.items())
    highest: dict[str, int] = {}
    for name, amount in (*requests, *status.actual, *status.allocated):
        highest[name] = max(amount, highest.get(name, amount))
    return highest


HostPort = tuple[str, str, int]
"""Address ("0.0.0.0" for all), protocol and port."""

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - an address to compare with, nothing listens here


def host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """Return the host ports of the containers and of the sidecars."""
    sidecars = (container for container in spec.init_containers if is_sidecar(container))
    return tuple(
        (port.host_ip or EVERY_ADDRESS, port.protocol or "TCP", port.host_port)
        for container in (*spec.containers, *sidecars)
        for port in container.ports
        if port.host_port > 0
    )


def conflicts(ports: Iterable[HostPort], held: Mapping[HostPort, int]) -> bool:
    """Return whether one of the `ports` is already held."""
    return any(_is_held(port, held) for port in ports)


def _is_held(port: HostPort, held: Mapping[HostPort, int]) -> bool:
    address, protocol, number = port
    if address == EVERY_ADDRESS:
        return any(other[1] == protocol and other[2] == number for other in held)
    return port in held or (EVERY_ADDRESS, protocol, number) in held


def hold(held: dict[HostPort, int], ports: Iterable[HostPort]) -> None:
    """Increment the number of holders of each port."""
    for port in ports:
        held[port] = held.get(port, 0) + 1


def release(held: dict[HostPort, int], ports: Iterable[HostPort]) -> None:
    """Decrement the number of holders of each port."""
    for port in ports:
        if held[port] == 1:
            del held[port]
        else:
            held[port] -= 1
