"""The pools of devices that a node reaches, in the order in which they are tried.

A pool is complete where all slices of its generation are there. Versions differ in which slices
count: v1.34 counts those that the node reaches, v1.36 those of other nodes, too. v1.34 takes pools,
and slices in a pool, in an order that is random upstream; here it is v1.36's in both: pools by
driver and name, those with a device that has binding conditions last, slices by name.

Source: kubernetes v1.36 dynamic-resource-allocation/structured/internal/incubating,
pools_incubating.go, GatherPools; v1.34 .../experimental, pools_experimental.go, GatherPools.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from services.framework.snapshot.devices import Slices
from services.kube.devices import CounterSets, ResourceSlice
from services.kube.node import Node

_NO_COUNTERS: CounterSets = {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """A pool as one node reaches it.

    slices: those with devices that the node reaches. elsewhere: the pool's other slices, whose
    devices consume the same counters. invalid: why nothing can be allocated from it, "" otherwise.
    """

    driver: str
    name: str
    slices: tuple[ResourceSlice, ...] = ()
    elsewhere: tuple[ResourceSlice, ...] = ()
    counters: CounterSets = field(default_factory=lambda: _NO_COUNTERS)
    is_incomplete: bool = False
    invalid: str = ""

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"


def pools_by_nodes_slices(slices: Slices, node: Node) -> tuple[Pool, ...]:
    """Return the pools of v1.34: complete where the node reaches all slices, without counters."""
    pools = []
    for (driver, name), held in _gathered(slices, node, partitionable=False).items():
        complete = len(held) == held[0].slice_count
        pools.append(
            Pool(
                driver=driver,
                name=name,
                slices=tuple(sorted(held, key=lambda slice_: slice_.name)),
                is_incomplete=not complete,
                invalid=_repeated_device(held),
            )
        )
    return _ordered(pools)


def pools_by_all_slices(slices: Slices, node: Node, *, partitionable: bool) -> tuple[Pool, ...]:
    """Return the pools of v1.36: complete if all their slices exist, on whichever node."""
    pools = []
    for (driver, name), held in _gathered(slices, node, partitionable=partitionable).items():
        everywhere: Sequence[ResourceSlice] = held
        generation, slice_count = held[0].generation, held[0].slice_count
        if len(held) != slice_count:
            of_pool = slices.of_pool(driver, name)
            if any(slice_.generation > generation for slice_ in of_pool):
                continue
            everywhere = [slice_ for slice_ in of_pool if slice_.generation == generation]
        if len(everywhere) != slice_count:
            pools.append(Pool(driver=driver, name=name, is_incomplete=True))
            continue
        pools.append(_checked(driver, name, held, everywhere, partitionable=partitionable))
    return _ordered(pools)


def _gathered(
    slices: Slices, node: Node, *, partitionable: bool
) -> Mapping[tuple[str, str], list[ResourceSlice]]:
    """Return the slices of the newest generation that matter to the node, by pool."""
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for slice_ in (*slices.of_node.get(node.name, ()), *slices.shared):
        if not _matters(slice_, node, partitionable=partitionable):
            continue
        held = pools.setdefault((slice_.driver, slice_.pool), [])
        if held and slice_.generation > held[0].generation:
            held.clear()
        if not held or slice_.generation == held[0].generation:
            held.append(slice_)
    return pools


def _matters(slice_: ResourceSlice, node: Node, *, partitionable: bool) -> bool:
    if slice_.shared_counters or slice_.per_device is not None:
        if not partitionable:
            return False
        if slice_.shared_counters:
            return True
    if slice_.nodes.is_given:
        return slice_.nodes.reaches(node.name, node.labels)
    return bool(slice_.per_device) and any(
        device.nodes.reaches(node.name, node.labels) for device in slice_.devices
    )


def _checked(
    driver: str,
    name: str,
    held: Sequence[ResourceSlice],
    everywhere: Sequence[ResourceSlice],
    *,
    partitionable: bool,
) -> Pool:
    """Return a complete pool, or an invalid one where its slices contradict each other."""
    ordered = sorted(held, key=lambda slice_: slice_.name)
    with_devices = tuple(
        slice_ for slice_ in ordered if not (partitionable and slice_.shared_counters)
    )
    invalid = _repeated_device(with_devices)
    if not partitionable or invalid:
        return Pool(driver=driver, name=name, slices=with_devices, invalid=invalid)
    counters: dict[str, Mapping[str, str]] = {}
    for slice_ in ordered:
        for set_name, amounts in slice_.shared_counters:
            if set_name in counters:
                invalid = invalid or f"duplicate counter set name {set_name}"
            counters[set_name] = amounts
    names = {slice_.name for slice_ in held}
    elsewhere = tuple(slice_ for slice_ in everywhere if slice_.name not in names)
    invalid = (
        invalid or _unknown_counter(counters, ordered) or _unknown_counter(counters, elsewhere)
    )
    return Pool(
        driver=driver,
        name=name,
        slices=with_devices,
        elsewhere=elsewhere,
        counters=counters,
        invalid=invalid,
    )


def _repeated_device(slices: Iterable[ResourceSlice]) -> str:
    names: set[str] = set()
    for slice_ in slices:
        for device in slice_.devices:
            if device.name in names:
                return f"duplicate device name {device.name}"
            names.add(device.name)
    return ""


def _unknown_counter(counters: CounterSets, slices: Iterable[ResourceSlice]) -> str:
    for slice_ in slices:
        for device in slice_.devices:
            for set_name, amounts in device.consumes:
                if set_name not in counters:
                    return f"counter set {set_name} not found"
                for name in amounts:
                    if name not in counters[set_name]:
                        return f"counter {name} not found in counter set {set_name}"
    return ""


def _ordered(pools: Iterable[Pool]) -> tuple[Pool, ...]:
    def has_conditions(pool: Pool) -> bool:
        return any(device.binding_conditions for slice_ in pool.slices for device in slice_.devices)

    return tuple(sorted(pools, key=lambda pool: (has_conditions(pool), pool.driver, pool.name)))
