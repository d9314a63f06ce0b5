"""Computes the device capacity that requests consume where several claims may share a device.

Source: kubernetes v1.36 dynamic-resource-allocation/structured/internal/incubating,
consumable_capacity.go.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.kube.devices import DeviceCapacity, RequestPolicy
from services.kube.quantity import NANO, Format, Quantity, parse

Requested = Mapping[str, str]


def nano(text: str) -> int:
    """Return the amount of a quantity's text, in 1e-9 units."""
    return parse(text).nano


def fits(
    requested: Requested,
    capacity: Mapping[str, DeviceCapacity],
    consumed: Mapping[str, int],
    allocating: Mapping[str, int],
) -> bool:
    """Return whether a device has enough left for a request.

    consumed: by claims that are allocated; allocating: by those that are being allocated.
    Source: CmpRequestOverCapacity.
    """
    if any(name not in capacity for name in requested):
        return False
    for name, held in capacity.items():
        amount = amount_of(requested.get(name), held)
        if _violates(amount, held.policy):
            return False
        total = consumed.get(name, 0) + nano(amount) + allocating.get(name, 0)
        if total > nano(held.value):
            return False
    return True


def consumed_by(requested: Requested, capacity: Mapping[str, DeviceCapacity]) -> dict[str, str]:
    """Return what a request consumes of each capacity. Source: GetConsumedCapacityFromRequest."""
    return {name: amount_of(requested.get(name), held) for name, held in capacity.items()}


def amount_of(requested: str | None, capacity: DeviceCapacity) -> str:
    """Return the amount that counts for a request, rounded as the policy says.

    Source: calculateConsumedCapacity, fillEmptyRequest, roundUpRange, roundUpValidValues.
    """
    policy = capacity.policy
    if requested is None:
        default = None if policy is None else policy.default
        return capacity.value if default is None else default
    if policy is None:
        return requested
    if policy.has_range and policy.low is not None:
        return _rounded(requested, policy.low, policy.step)
    for valid in policy.values:
        if nano(requested) <= nano(valid):
            return valid
    return requested


def _rounded(requested: str, low: str, step: str | None) -> str:
    if nano(requested) < nano(low):
        return low
    if step is None:
        return requested
    least, width = parse(low).value(), parse(step).value()
    steps = -(-(parse(requested).value() - least) // width)
    return str(Quantity((least + width * steps) * NANO, Format.BINARY_SI))


def _violates(amount: str, policy: RequestPolicy | None) -> bool:
    """Return whether the policy forbids to consume an amount. Source: violatesPolicy.

    Upstream compares with the default by how it is written, not by its value.
    """
    if policy is None or amount == policy.default:
        return False
    if policy.has_range:
        if policy.high is not None and nano(amount) > nano(policy.high):
            return True
        if policy.step is None:
            return False
        low = 0 if policy.low is None else parse(policy.low).value()
        return bool((parse(amount).value() - low) % parse(policy.step).value())
    return bool(policy.values) and all(nano(amount) != nano(valid) for valid in policy.values)
