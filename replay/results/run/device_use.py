"""Counts the devices of each class of a run's cluster: all, those in use, and blocked ones.

A class has the devices that its selectors select, whichever claims they are given to, so that a
device may be one of several classes. A device is in use while a claim has it or a share of it. A
free device is blocked if what it consumes of its pool's counters is more than the devices in use
leave there: parts of one card exclude each other. Only the newest generation of a pool counts.
Devices that a claim has for administration are not in use.

Selectors are evaluated once for each device and expression; a change of a claim touches its own
devices and the counters of their pools only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from replay.results.run.cluster import ChangeType, ObjectChange
from reprieve.kube.v1beta1 import device_pb2
from services.kube.devices import (
    Device,
    DeviceClass,
    DeviceId,
    RequestDetail,
    ResourceClaim,
    ResourceSlice,
    SelectorError,
)
from services.kube.quantity import parse
from services.rpc.kube import devices as decode

if TYPE_CHECKING:
    from services.cel.selectors import DeviceSelectors

_Pool = tuple[str, str]
_Amounts = dict[tuple[str, str], int]
"""Amounts in 1e-9 units, by counter set and counter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassUse:
    """The devices of a class: all, those in use, and free ones that parts in use exclude.

    wanted: the devices that unallocated claims request of the class.
    """

    devices: int = 0
    in_use: int = 0
    blocked: int = 0
    wanted: int = 0


@dataclass(slots=True)
class _PoolUse:
    """A pool's devices that are offered, with their classes; `counters` is what the pool has."""

    devices: dict[DeviceId, tuple[Device, tuple[str, ...]]] = field(default_factory=dict)
    counters: _Amounts = field(default_factory=dict)


class DeviceTally:
    """Follows slices, classes and claims; `uses` are the figures after the last change."""

    def __init__(self) -> None:
        self._slices: dict[str, ResourceSlice] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._claims: dict[str, ResourceClaim] = {}
        self._holders: Counter[DeviceId] = Counter()
        self._wanted: Counter[str] = Counter()
        self._pools: dict[_Pool, _PoolUse] | None = None
        self._by_pool: dict[_Pool, Mapping[str, Sequence[int]]] = {}
        self._touched: dict[_Pool, None] = {}
        self._totals: dict[str, list[int]] = {}
        self._uses: dict[str, ClassUse] | None = {}
        self._matches: DeviceSelectors | None = None

    def take(self, change: ObjectChange) -> None:
        """Note a change; those of other kinds are ignored."""
        is_there = change.type is not ChangeType.DELETED
        match change.message:
            case device_pb2.ResourceSlice() as message:
                self._pools = self._uses = None
                self._slices.pop(message.metadata.name, None)
                if is_there:
                    slice_ = decode.resource_slice_from_message(message)
                    self._slices[slice_.name] = slice_
            case device_pb2.DeviceClass() as message:
                self._pools = self._uses = None
                self._classes.pop(message.metadata.name, None)
                if is_there:
                    class_ = decode.device_class_from_message(message)
                    self._classes[class_.name] = class_
            case device_pb2.DeviceClaims.ResourceClaim() as message:
                self._take_claim(message, is_there=is_there)

    def _take_claim(
        self, message: device_pb2.DeviceClaims.ResourceClaim, *, is_there: bool
    ) -> None:
        claim = decode.resource_claim_from_message(message)
        former = self._claims.pop(claim.key, None)
        if former is not None:
            self._count(former, -1)
        if is_there:
            self._claims[claim.key] = claim
            self._count(claim, 1)
        self._uses = None

    def _count(self, claim: ResourceClaim, sign: int) -> None:
        if claim.allocation is None:
            for detail in _details(claim):
                self._wanted[detail.class_name] += sign * max(1, detail.count)
            return
        for device in claim.allocation.devices:
            if not device.admin_access:
                self._holders[device.id] += sign
                self._touched[device.id.driver, device.id.pool] = None

    @property
    def uses(self) -> Mapping[str, ClassUse]:
        """Return the figures of each class that exists, by name; the same value if unchanged."""
        if self._uses is None:
            self._uses = self._figures()
        return self._uses

    def _figures(self) -> dict[str, ClassUse]:
        if self._pools is None:
            self._pools = self._read_pools()
            self._by_pool, self._totals = {}, {name: [0, 0, 0] for name in self._classes}
            self._touched = dict.fromkeys(self._pools)
        for pool in self._touched:
            for name, figures in self._by_pool.pop(pool, {}).items():
                _add(self._totals[name], figures, -1)
            if pool in self._pools:
                self._by_pool[pool] = self._figures_of(self._pools[pool])
                for name, figures in self._by_pool[pool].items():
                    _add(self._totals[name], figures, 1)
        self._touched = {}
        return {
            name: ClassUse(
                devices=devices, in_use=in_use, blocked=blocked, wanted=self._wanted[name]
            )
            for name, (devices, in_use, blocked) in sorted(self._totals.items())
        }

    def _read_pools(self) -> dict[_Pool, _PoolUse]:
        pools: dict[_Pool, _PoolUse] = {}
        newest: dict[_Pool, int] = {}
        for slice_ in self._slices.values():
            pool = slice_.driver, slice_.pool
            newest[pool] = max(newest.get(pool, 0), slice_.generation)
        for slice_ in self._slices.values():
            pool = slice_.driver, slice_.pool
            if slice_.generation < newest[pool]:
                continue
            use = pools.setdefault(pool, _PoolUse())
            for device in slice_.devices:
                id_ = DeviceId(slice_.driver, slice_.pool, device.name)
                use.devices[id_] = device, self._classes_of(device, slice_.driver)
            for set_name, counters in slice_.shared_counters:
                for name, amount in counters.items():
                    use.counters[set_name, name] = parse(amount).nano
        return pools

    def _classes_of(self, device: Device, driver: str) -> tuple[str, ...]:
        return tuple(
            class_.name
            for class_ in self._classes.values()
            if all(
                self._selects(expression or "", device, driver) for expression in class_.selectors
            )
        )

    def _selects(self, expression: str, device: Device, driver: str) -> bool:
        if self._matches is None:
            # CEL is loaded for runs with devices only.
            from services.cel.selectors import DeviceSelectors  # noqa: PLC0415

            self._matches = DeviceSelectors(multiple=True)
        try:
            return self._matches(expression, device, driver)
        except SelectorError:
            return False

    def _figures_of(self, pool: _PoolUse) -> dict[str, list[int]]:
        free_counters = dict(pool.counters)
        for id_, (device, _) in pool.devices.items():
            if self._holders[id_]:
                for counter, amount in _consumed(device):
                    free_counters[counter] = free_counters.get(counter, 0) - amount
        figures: dict[str, list[int]] = {}
        for id_, (device, names) in pool.devices.items():
            in_use = bool(self._holders[id_])
            is_blocked = not in_use and any(
                amount > free_counters.get(counter, 0) for counter, amount in _consumed(device)
            )
            for name in names:
                _add(figures.setdefault(name, [0, 0, 0]), (1, in_use, is_blocked), 1)
        return figures


def _add(total: list[int], figures: Sequence[int], sign: int) -> None:
    for place, figure in enumerate(figures):
        total[place] += sign * figure


def _consumed(device: Device) -> list[tuple[tuple[str, str], int]]:
    return [
        ((set_name, counter), parse(amount).nano)
        for set_name, amounts in device.consumes
        for counter, amount in amounts.items()
    ]


def _details(claim: ResourceClaim) -> list[RequestDetail]:
    """Return what each request asks for; of alternatives, the preferred one."""
    return [
        detail
        for request in claim.spec.requests
        for detail in [request.exactly or next(iter(request.first_available), None)]
        if detail is not None
    ]
