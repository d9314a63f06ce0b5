"""Extended resources that devices serve: the claim that the scheduler makes for a pod's requests.

Source: kubernetes v1.36 plugins/dynamicresources/extendeddynamicresources.go,
filterExtendedResources, createRequestsAndMappings, createResourceRequestAndMappings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from services.framework.snapshot.devices import Devices
from services.kube.devices import (
    EXTENDED_RESOURCE_ANNOTATION,
    IMPLICIT_EXTENDED_RESOURCE_PREFIX,
    DeviceRequest,
    RequestDetail,
    ResourceClaim,
)
from services.kube.node import Node
from services.kube.pod import Container, OwnerReference, Pod, PodSpec
from services.kube.requests import is_extended, pod_requests

Mapping_ = tuple[str, str, str]
"""A container, its resource, and the request of the claim that serves it."""


def may_be_served(name: str) -> bool:
    """Return whether devices may serve a resource.

    Source: kubernetes v1.36 pkg/scheduler/util/utils.go, IsDRAExtendedResourceName.
    """
    return is_extended(name) or name.startswith(IMPLICIT_EXTENDED_RESOURCE_PREFIX)


def requested(spec: PodSpec) -> Mapping[str, int]:
    """Return the pod's extended resources that are not zero."""
    return {
        name: amount
        for name, amount in pod_requests(spec).items()
        if amount and may_be_served(name)
    }


def served(spec: PodSpec, devices: Devices) -> bool:
    """Return whether a class serves one of the pod's resources."""
    return any(devices.class_of(name) is not None for name in requested(spec))


def left_over(pod: Pod, devices: Devices) -> ResourceClaim | None:
    """Return the claim that an earlier attempt made for the pod, None without one."""
    for claim in devices.made_for(pod.uid):
        if claim.annotations.get(EXTENDED_RESOURCE_ANNOTATION) == "true":
            return claim
    return None


def new_claim(pod: Pod, name: str) -> ResourceClaim:
    """Return the claim for a pod's extended resources, without requests."""
    owner = OwnerReference(
        api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True
    )
    return ResourceClaim(
        namespace=pod.namespace,
        name=name,
        generate_name=f"{pod.name}-extended-resources-",
        owners=(owner,),
        annotations={EXTENDED_RESOURCE_ANNOTATION: "true"},
    )


@dataclass(frozen=True, slots=True)
class NodeRequests:
    """The requests that devices must serve on a node; `is_short`: nothing serves one of them."""

    amounts: Mapping[str, int]
    is_short: bool = False


def on_node(spec: PodSpec, node: Node, devices: Devices) -> NodeRequests:
    """Return the resources that the node itself lacks and a class serves."""
    amounts: dict[str, int] = {}
    for name, amount in requested(spec).items():
        if devices.class_of(name) is not None and not node.allocatable.get(name, 0):
            amounts[name] = amount
        elif devices.class_of(name) is None and name not in node.allocatable:
            return NodeRequests({}, is_short=True)
    return NodeRequests(amounts)


def requests_of(
    spec: PodSpec, resources: Mapping[str, int], devices: Devices
) -> tuple[tuple[DeviceRequest, ...], tuple[Mapping_, ...]]:
    """Return the claim's requests by name, and which serves which container.

    Containers that run together have requests of their own. Init containers that end before them
    reuse those of later ones, and share one request for what they need beyond.
    """
    containers = (*spec.init_containers, *spec.containers)
    inits = len(spec.init_containers)
    short = [
        index
        for index, container in enumerate(containers)
        if index < inits and container.restart_policy != "Always"
    ]
    requests: list[DeviceRequest] = []
    mappings: list[Mapping_] = []
    for resource in sorted(resources):
        cls = devices.class_of(resource)
        if cls is None:
            continue
        lasting: list[DeviceRequest | None] = [None] * len(containers)
        for index, container in enumerate(containers):
            if index not in short:
                lasting[index], added = _request(index, container, resource, cls.name, ())
                mappings += added
        largest: DeviceRequest | None = None
        names: set[str] = set()
        passing: list[Mapping_] = []
        for index in short:
            request, added = _request(index, containers[index], resource, cls.name, lasting[index:])
            passing += added
            if request is None:
                continue
            names.add(request.name)
            if largest is None or _count(largest) < _count(request):
                largest = request
        if largest is not None:
            requests.append(largest)
            passing = [
                (container, name, largest.name if request in names else request)
                for container, name, request in passing
            ]
        requests += [request for request in lasting if request is not None]
        mappings += passing
    return tuple(sorted(requests, key=lambda request: request.name)), tuple(mappings)


def _request(
    index: int,
    container: Container,
    resource: str,
    class_name: str,
    reusable: Sequence[DeviceRequest | None],
) -> tuple[DeviceRequest | None, list[Mapping_]]:
    wanted = container.requests.get(resource, 0)
    if not wanted:
        return None, []
    mappings: list[Mapping_] = []
    total = 0
    for request in reusable:
        if request is not None:
            total += _count(request)
            mappings.append((container.name, resource, request.name))
            if total >= wanted:
                return None, mappings
    place = sorted(container.requests).index(resource)
    name = f"container-{index}-request-{place}"
    detail = RequestDetail(name=name, class_name=class_name, count=wanted - total)
    mappings.append((container.name, resource, name))
    return DeviceRequest(name=name, exactly=detail), mappings


def _count(request: DeviceRequest) -> int:
    assert request.exactly is not None, request.name
    return request.exactly.count


def with_requests(claim: ResourceClaim, requests: tuple[DeviceRequest, ...]) -> ResourceClaim:
    """Return the claim with the requests for a node."""
    return replace(claim, spec=replace(claim.spec, requests=requests))
