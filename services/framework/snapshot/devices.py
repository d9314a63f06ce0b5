"""Slices, classes and claims of devices as the scheduler sees them, and which devices are in use.

A claim is as it was received, with what pods have reserved since and the world has not confirmed
yet: an update that was made before a reservation, and comes after it, does not undo it. What is in
use follows from the claims, and changes with them. `Devices.changed` is called with the
pools whose devices came into use or went out of it, so that what follows from a node's pools is
computed again for the nodes that reach them only; None stands for a change after which anything may
be different.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from services.kube.devices import (
    IMPLICIT_EXTENDED_RESOURCE_PREFIX,
    Allocation,
    Device,
    DeviceClass,
    DeviceId,
    ResourceClaim,
    ResourceSlice,
    SelectorError,
)
from services.kube.node import Node
from services.kube.quantity import parse

DeviceObject = ResourceSlice | DeviceClass | ResourceClaim
DEVICE_KINDS = frozenset({"ResourceSlice", "DeviceClass", "ResourceClaim"})
PoolName = tuple[str, str]
"""A pool's driver and name."""
Amounts = dict[str, int]
"""Amounts in 1e-9 units, by capacity."""


@dataclass(slots=True)
class InUse:
    """The devices and capacities in use by allocated claims.

    devices: those that one claim each has, with the number of claims. shared: those that claims
    share, with the number of shares, and `consumed`, the taken amounts of their capacities.
    """

    devices: dict[DeviceId, int] = field(default_factory=dict)
    shared: dict[DeviceId, int] = field(default_factory=dict)
    consumed: dict[DeviceId, Amounts] = field(default_factory=dict)

    def change(self, allocation: Allocation, sign: int) -> Iterable[PoolName]:
        """Count a claim's devices (sign 1) or take them out (-1); return their pools.

        Devices that were given for administration are not in use.
        Source: kubernetes v1.36 plugins/dynamicresources/allocateddevices.go,
        foreachAllocatedDevice.
        """
        pools: dict[PoolName, None] = {}
        for device in allocation.devices:
            if device.admin_access:
                continue
            pools[device.id.driver, device.id.pool] = None
            if device.share_id is None:
                _count(self.devices, device.id, sign)
                continue
            _count(self.shared, device.id, sign)
            amounts = self.consumed.setdefault(device.id, {})
            for name, text in device.consumed:
                amounts[name] = amounts.get(name, 0) + sign * parse(text).nano
            if device.id not in self.shared or not amounts:
                del self.consumed[device.id]
        return pools

    def has(self, device: DeviceId) -> bool:
        """Return whether any claim has the device or a share of it."""
        return device in self.devices or device in self.shared


def _count(counts: dict[DeviceId, int], device: DeviceId, sign: int) -> None:
    number = counts.get(device, 0) + sign
    if number:
        counts[device] = number
    else:
        counts.pop(device, None)


class Slices:
    """All slices, by the node that alone reaches them, and by pool."""

    def __init__(self, slices: Iterable[ResourceSlice] = ()) -> None:
        self.of_node: dict[str, list[ResourceSlice]] = {}
        self.shared: list[ResourceSlice] = []
        self._of_pool: dict[PoolName, list[ResourceSlice]] = {}
        for slice_ in slices:
            if slice_.nodes.node_name and not slice_.shared_counters:
                self.of_node.setdefault(slice_.nodes.node_name, []).append(slice_)
            else:
                self.shared.append(slice_)
            self._of_pool.setdefault((slice_.driver, slice_.pool), []).append(slice_)

    def of_pool(self, driver: str, name: str) -> Sequence[ResourceSlice]:
        """Return the slices of a pool, of all generations."""
        return self._of_pool.get((driver, name), ())

    def devices_of(self, node: Node) -> Iterator[tuple[Device, DeviceId, str]]:
        """Yield the devices that a node reaches, of all generations, with the driver of each."""
        for slice_ in (*self.of_node.get(node.name, ()), *self.shared):
            if not slice_.per_device and not slice_.nodes.reaches(node.name, node.labels):
                continue
            for device in slice_.devices:
                if not slice_.per_device or device.nodes.reaches(node.name, node.labels):
                    id_ = DeviceId(slice_.driver, slice_.pool, device.name)
                    yield device, id_, slice_.driver

    def node_of_pool(self, pool: PoolName) -> str | None:
        """Return the only node that reaches a pool, None where there may be others."""
        names = {slice_.nodes.node_name for slice_ in self._of_pool.get(pool, ())}
        return names.pop() if len(names) == 1 else None


class Devices:
    """The device objects by name, claims by "namespace/name", and indexes of them.

    `version` grows with each change, `class_version` with those of classes. `_received` are the
    claims that have reservations which are not confirmed, as they were received (None for one that
    was not), and `_reserved` these reservations: the claim after each, by the pod's UID.
    """

    def __init__(self) -> None:
        self.classes: dict[str, DeviceClass] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self.in_use = InUse()
        self.changed: Callable[[PoolName | None], None] = _ignore
        self.version = 0
        self.class_version = 0
        self._slices: dict[str, ResourceSlice] = {}
        self._index: Slices | None = None
        self._extended: dict[str, DeviceClass] = {}
        self._made_for: dict[str, dict[str, None]] = {}
        self._received: dict[str, ResourceClaim | None] = {}
        self._reserved: dict[str, dict[str, ResourceClaim]] = {}

    @property
    def slices(self) -> Slices:
        """Return the slices, in the order in which they came."""
        if self._index is None:
            self._index = Slices(self._slices.values())
        return self._index

    def held(self, kind: str, key: str) -> DeviceObject | None:
        """Return an object as it was received, None for an unknown one."""
        if kind == "ResourceClaim":
            return self._received[key] if key in self._received else self.claims.get(key)
        return self.classes.get(key) if kind == "DeviceClass" else self._slices.get(key)

    def class_resources(self) -> Sequence[str]:
        """Return the extended resources that classes serve, by name."""
        return sorted(self._extended)

    def class_of(self, resource: str) -> DeviceClass | None:
        """Return the class that serves an extended resource, None without any.

        Of several that name one resource, the newest serves it, then the first by name. A class
        that comes when a better one is there serves nothing, not even its implicit name.
        Source: kubernetes v1.36 dynamic-resource-allocation/deviceclass/extendedresourcecache,
        updateResourceName2class.
        """
        return self._extended.get(resource)

    def made_for(self, pod_uid: str) -> Sequence[ResourceClaim]:
        """Return the claims of which a pod is the controller, in the order in which they came."""
        return [self.claims[key] for key in self._made_for.get(pod_uid, ())]

    def put(self, value: DeviceObject) -> None:
        """Add an object, or replace the one of its name; an equal claim changes nothing."""
        match value:
            case ResourceSlice():
                self._slices[value.name] = value
                self._index = None
                self._changed_anything()
            case DeviceClass():
                if self.classes.get(value.name) != value:
                    self._put_class(value)
            case ResourceClaim():
                self._receive(value)

    def reserve(self, pod_uid: str, claim: ResourceClaim) -> None:
        """Take a claim as allocated and reserved for a pod until the world confirms that."""
        self._received.setdefault(claim.key, self.claims.get(claim.key))
        self._reserved.setdefault(claim.key, {})[pod_uid] = claim
        self._put_claim(claim)

    def unreserve(self, pod_uid: str, key: str) -> None:
        """Undo a reservation; one that was confirmed stays."""
        if pod_uid in self._reserved.get(key, {}):
            del self._reserved[key][pod_uid]
            self._receive(self._received[key], key)

    def reservations(self) -> Iterator[tuple[str, ResourceClaim]]:
        """Yield the reservations that were not confirmed: the pod's UID, and the claim after it."""
        for reserved in self._reserved.values():
            yield from reserved.items()

    def _receive(self, claim: ResourceClaim | None, key: str = "") -> None:
        """Put a claim as it was received, with the reservations that it does not confirm."""
        key = key if claim is None else claim.key
        if key in self._received:
            self._received[key] = claim
            reserved = self._reserved[key]
            for uid in [
                uid for uid in reserved if claim is not None and claim.is_reserved_for(uid)
            ]:
                del reserved[uid]
            for after in reserved.values():
                claim = after if claim is None else _with_reservation(claim, after)
            if not reserved:
                del self._received[key], self._reserved[key]
        if claim is None:
            self._take_out(self.claims.pop(key))
            self.version += 1
        elif self.claims.get(key) != claim:
            self._put_claim(claim)

    def remove(self, kind: str, key: str) -> None:
        """Remove an object; an unknown one is ignored."""
        if self.held(kind, key) is None:
            return
        match kind:
            case "ResourceSlice":
                del self._slices[key]
                self._index = None
                self._changed_anything()
            case "DeviceClass":
                self._remove_class(key)
            case "ResourceClaim":
                self._received.pop(key, None)
                self._reserved.pop(key, None)
                self._take_out(self.claims.pop(key))
                self.version += 1

    def _put_claim(self, claim: ResourceClaim) -> None:
        before = self.claims.get(claim.key)
        self.claims[claim.key] = claim
        self.version += 1
        is_as_before = before is not None and before.owners == claim.owners
        if is_as_before and before is not None and before.allocation == claim.allocation:
            return
        if before is not None:
            self._take_out(before)
        for owner in claim.owners:
            if owner.controller:
                self._made_for.setdefault(owner.uid, {})[claim.key] = None
        if claim.allocation is not None:
            self._count(claim.allocation, 1)

    def _take_out(self, claim: ResourceClaim) -> None:
        for owner in claim.owners:
            keys = self._made_for.get(owner.uid)
            if keys is not None:
                keys.pop(claim.key, None)
                if not keys:
                    del self._made_for[owner.uid]
        if claim.allocation is not None:
            self._count(claim.allocation, -1)

    def _count(self, allocation: Allocation, sign: int) -> None:
        for pool in self.in_use.change(allocation, sign):
            self.changed(pool)

    def _put_class(self, cls: DeviceClass) -> None:
        old = self.classes.get(cls.name)
        self.classes[cls.name] = cls
        named = cls.extended_resource_name
        rival = None if named is None else self._extended.get(named)
        if rival is None or _is_better(cls, rival):
            if old is not None:
                self._forget_resources(old)
            for resource in _resources_of(cls):
                self._extended[resource] = cls
        self._changed_classes()

    def _remove_class(self, name: str) -> None:
        self._forget_resources(self.classes.pop(name))
        self._changed_classes()

    def _forget_resources(self, cls: DeviceClass) -> None:
        for resource in _resources_of(cls):
            self._extended.pop(resource, None)

    def _changed_classes(self) -> None:
        self.class_version += 1
        self._changed_anything()

    def _changed_anything(self) -> None:
        self.version += 1
        self.changed(None)


def _with_reservation(claim: ResourceClaim, after: ResourceClaim) -> ResourceClaim:
    """Return a claim with the allocation and the reservations that it had `after` a reservation."""
    more = [consumer for consumer in after.reserved_for if not claim.is_reserved_for(consumer.uid)]
    return replace(
        claim,
        allocation=claim.allocation or after.allocation,
        finalizers=tuple(dict.fromkeys((*claim.finalizers, *after.finalizers))),
        reserved_for=(*claim.reserved_for, *more),
    )


def _ignore(pool: PoolName | None) -> None:
    """Ignore a change: the default where no follower is set."""


def _is_better(cls: DeviceClass, other: DeviceClass) -> bool:
    return (-cls.creation_ns, cls.name) < (-other.creation_ns, other.name)


def _resources_of(cls: DeviceClass) -> tuple[str, ...]:
    implicit = IMPLICIT_EXTENDED_RESOURCE_PREFIX + cls.name
    named = cls.extended_resource_name
    return (implicit,) if named is None else (named, implicit)


def no_selectors(expression: str, device: Device, driver: str) -> bool:  # noqa: ARG001 - serves nothing
    """Refuse every expression, where nothing evaluates them."""
    raise SelectorError("CEL expressions are not served here")
