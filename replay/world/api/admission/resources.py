"""Sums up the requests or limits of a pod's containers, as exact quantities.

The rule of the sum is that of services/kube/requests.py, whose own sums are bounded integers;
admission compares and prints quantities.

Source: kubernetes v1.34 component-helpers/resource/helpers.go, PodRequests, PodLimits,
AggregateContainerRequests, AggregateContainerLimits, SupportedPodLevelResources; apimachinery
pkg/api/resource/quantity.go, Add (a sum has the format of its first part that is not 0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from reprieve.kube.v1beta1 import pod_pb2
from services.kube.quantity import Quantity, parse
from services.kube.requests import total_of_containers
from services.rpc.errors import FieldError

Amounts = dict[str, Quantity]
Side = Literal["requests", "limits"]
ZERO = Quantity(0)


def amounts(texts: Mapping[str, str]) -> Amounts:
    """Return the quantities of a map by resource name."""
    return {name: parse(text) for name, text in texts.items()}


def plus(one: Quantity, other: Quantity) -> Quantity:
    """Return the sum."""
    return Quantity(one.nano + other.nano, one.format if one.nano else other.format)


def is_pod_level(name: str) -> bool:
    """Return whether a resource can be requested for a pod as a whole."""
    return name in {"cpu", "memory"} or name.startswith("hugepages-")


def aggregated(spec: pod_pb2.PodSpec, side: Side) -> Amounts:
    """Return the sum over containers; init containers count beside the sidecars before them."""
    return total_of_containers(
        (_side(container.resources, side) for container in spec.containers),
        (
            (container.restart_policy == "Always", _side(container.resources, side))
            for container in spec.init_containers
        ),
        plus=plus,
        highest=_highest,
    )


def of_pod(spec: pod_pb2.PodSpec, side: Side, *, overhead: bool) -> Amounts:
    """Return a pod's requests or limits: those of the whole pod first, else its containers'."""
    total = aggregated(spec, side)
    total.update(
        (name, amount) for name, amount in _side(spec.resources, side).items() if is_pod_level(name)
    )
    if overhead:
        for name, amount in amounts(spec.overhead).items():
            if side == "requests" or (name in total and total[name].nano):
                total[name] = plus(total[name], amount) if name in total else amount
    return total


def refuse_above_limits(spec: pod_pb2.PodSpec, path: str) -> None:
    """Refuse a spec in which a request is above its limit. Raises FieldError with the field.

    `path` is where the spec is in its object.
    Source: kubernetes v1.34 pkg/apis/core/validation/validation.go, validateResourceRequirements.
    """
    for name, containers in (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
    ):
        for index, container in enumerate(containers):
            if container.resources.limits:
                _refuse_above_limits(container.resources, f"{path}.{name}[{index}].resources")
    if spec.resources.limits:
        _refuse_above_limits(spec.resources, f"{path}.resources")


def _refuse_above_limits(resources: pod_pb2.ResourceRequirements, path: str) -> None:
    for name in sorted(resources.requests):
        request, limit = resources.requests[name], resources.limits.get(name)
        if limit is not None and request != limit and parse(request).nano > parse(limit).nano:
            problem = (
                f'Invalid value: "{parse(request)}": must be less than or equal to {name} limit'
            )
            raise FieldError(f"{path}.requests", f"{problem} of {parse(limit)}")


def _side(resources: pod_pb2.ResourceRequirements, side: Side) -> Amounts:
    return amounts(resources.requests if side == "requests" else resources.limits)


def _highest(one: Quantity, other: Quantity) -> Quantity:
    return other if other.nano > one.nano else one
