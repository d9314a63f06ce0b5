"""Checks the constraints across a claim's devices while they are picked one after the other.

Source: kubernetes v1.36 dynamic-resource-allocation/structured/internal/incubating,
allocator_incubating.go, matchAttributeConstraint and lookupAttribute; constraint.go.
"""

from __future__ import annotations

from typing import Protocol

from services.kube.devices import AttributeValue, Device, DeviceConstraint


class Constraint(Protocol):
    """A constraint of one claim; `request` and `alternative` say what the device is picked for."""

    def add(self, request: str, alternative: str, device: Device, driver: str) -> bool:
        """Count a device, unless it violates the constraint: False then."""

    def remove(self, request: str, alternative: str) -> None:
        """Undo the latest successful `add`."""


def make_constraint(constraint: DeviceConstraint) -> Constraint | None:
    """Return the constraint with nothing counted, None for a kind that is not known."""
    if constraint.match_attribute is not None:
        return _MatchAttribute(frozenset(constraint.requests), constraint.match_attribute)
    if constraint.distinct_attribute is not None:
        return _DistinctAttribute(frozenset(constraint.requests), constraint.distinct_attribute)
    return None


def attribute_of(device: Device, driver: str, name: str) -> AttributeValue:
    """Return a device's attribute by its qualified name, None for one that it lacks.

    A name of the driver's own domain may stand without it.
    """
    if name in device.attributes:
        return device.attributes[name]
    domain, slash, rest = name.partition("/")
    return device.attributes.get(rest) if slash and domain == driver else None


def _concerns(requests: frozenset[str], request: str, alternative: str) -> bool:
    return (
        not requests
        or request in requests
        or (bool(alternative) and f"{request}/{alternative}" in requests)
    )


def _equal(one: AttributeValue, other: AttributeValue) -> bool:
    return type(one) is type(other) and one == other


class _MatchAttribute:
    """All devices have the attribute with one value."""

    def __init__(self, requests: frozenset[str], name: str) -> None:
        self._requests = requests
        self._name = name
        self._value: AttributeValue = None
        self._count = 0

    def add(self, request: str, alternative: str, device: Device, driver: str) -> bool:
        if not _concerns(self._requests, request, alternative):
            return True
        value = attribute_of(device, driver, self._name)
        if value is None or (self._count and not _equal(value, self._value)):
            return False
        self._value = value if self._count == 0 else self._value
        self._count += 1
        return True

    def remove(self, request: str, alternative: str) -> None:
        if _concerns(self._requests, request, alternative):
            self._count -= 1


class _DistinctAttribute:
    """All devices have the attribute, each with a value of its own.

    Of a request with several devices only the latest value is kept, as upstream keeps it; the first
    device of all is not compared.
    """

    def __init__(self, requests: frozenset[str], name: str) -> None:
        self._requests = requests
        self._name = name
        self._values: dict[str, AttributeValue] = {}
        self._count = 0

    def add(self, request: str, alternative: str, device: Device, driver: str) -> bool:
        if not _concerns(self._requests, request, alternative):
            return True
        value = attribute_of(device, driver, self._name)
        if value is None:
            return False
        if self._count and any(_equal(value, held) for held in self._values.values()):
            return False
        self._values[request] = value
        self._count += 1
        return True

    def remove(self, request: str, alternative: str) -> None:
        if _concerns(self._requests, request, alternative):
            self._values.pop(request, None)
            self._count -= 1
