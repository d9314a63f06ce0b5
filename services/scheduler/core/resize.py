"""What an assigned pod holds while its containers are resized in place.

A container counts with the most of what its spec asks for, what the node has admitted and what is
in force. Where the resize is infeasible on its node, what the spec asks for does not count.

Source: kubernetes v1.34 component-helpers/resource/helpers.go, AggregateContainerRequests,
determineContainerReqs and IsPodResizeInfeasible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from services.kube.pod import Container, ContainerResources, Pod, PodSpec

_PENDING = "PodResizePending"
_INFEASIBLE = "Infeasible"


def is_resize_infeasible(pod: Pod) -> bool:
    """Tell whether the kubelet has found the pod's resize impossible on its node."""
    pending = pod.condition(_PENDING) if pod.conditions else None
    return pending is not None and pending.reason == _INFEASIBLE


def spec_in_force(pod: Pod) -> PodSpec:
    """Return the pod's spec with the requests that its containers and sidecars count with."""
    given = {each.name: each for each in pod.given}
    infeasible = is_resize_infeasible(pod)
    return replace(
        pod.spec,
        containers=tuple(_in_force(each, given, infeasible) for each in pod.spec.containers),
        init_containers=tuple(
            _in_force(each, given, infeasible) if each.restart_policy == "Always" else each
            for each in pod.spec.init_containers
        ),
    )


def _in_force(
    container: Container, given: Mapping[str, ContainerResources], infeasible: bool
) -> Container:
    found = given.get(container.name)
    if found is None:
        return container
    asked = () if infeasible else tuple(container.requests.items())
    return replace(container, requests=_highest((*asked, *found.actual, *found.allocated)))


def _highest(amounts: Iterable[tuple[str, int]]) -> dict[str, int]:
    highest: dict[str, int] = {}
    for name, amount in amounts:
        highest[name] = max(amount, highest.get(name, amount))
    return highest
