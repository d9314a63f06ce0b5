"""NodeResourcesFit and the balance from v1.36 on, for extended resources that devices serve.

Where a node has none of such a resource itself, the filter leaves it to DynamicResources, and the
scores count the node's devices of the class: those that there are, and those in use.

Source: kubernetes v1.36 plugins/noderesources/fit.go, shouldDelegateResourceToDRA;
resource_allocation.go, calculateDRAExtendedResourceAllocatableRequest.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from services.framework.columns.columns import Int64s
from services.framework.plugin import PreFiltered
from services.framework.plugins.node_resources.arguments import (
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
)
from services.framework.plugins.node_resources.plugin import (
    NodeResourcesBalanceChange,
    NodeResourcesFit,
    ScoredShares,
    WantedResources,
    fit_code,
)
from services.framework.snapshot.devices import Devices
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.kube.devices import MatchDevice, SelectorError
from services.kube.node import Node
from services.kube.pod import Pod

_FIT = NodeResourcesFitArgs()
_BALANCE = NodeResourcesBalancedAllocationArgs()


@dataclass(frozen=True, slots=True)
class ServedResources(WantedResources):
    """The requests of a pod; `served` are the indexes of those that devices may serve."""

    served: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ServedShares(ScoredShares):
    """The scored resources; `served` are the columns and names of those that devices may serve."""

    served: tuple[tuple[int, str], ...] = ()


class HeldAmounts(NamedTuple):
    """The allocatable and the requested amounts of some nodes: int64[n, resources] each."""

    allocatable: Int64s
    requested: Int64s
    non_zero_requested: Int64s


def _served(names: Iterable[str], devices: Devices, matches: MatchDevice | None) -> tuple[str, ...]:
    if matches is None or not devices.classes:
        return ()
    return tuple(name for name in names if devices.class_of(name) is not None)


class NodeResourcesFitWithDevices(NodeResourcesFit):
    """NodeResourcesFit of v1.36; `matches` evaluates classes' selectors, None serves no class."""

    def __init__(
        self, args: NodeResourcesFitArgs = _FIT, *, matches: MatchDevice | None = None
    ) -> None:
        super().__init__(args)
        self._names = tuple(resource.name for resource in args.resources)
        self._matches = matches

    def filter_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        """Return the requests, and those of them that devices serve."""
        load = snapshot.load(pod.spec)
        served = _served(load.requests.amounts, snapshot.catalog.devices, self._matches)
        return (load.taken, served) if served else load.taken

    def pre_filter(self, pod: Pod, snapshot: Snapshot) -> PreFiltered[WantedResources]:
        requests = super().pre_filter(pod, snapshot).data
        served = _served(requests.names, snapshot.catalog.devices, self._matches)
        places = frozenset(requests.names.index(name) for name in served)
        return PreFiltered(
            data=ServedResources(
                requests.names, requests.pairs, requests.columns, requests.amounts, served=places
            )
        )

    def filter_node(self, data: WantedResources, view: NodeView) -> int:
        code = super().filter_node(data, view)
        if not code or not _served_of(data):
            return code
        return fit_code(
            _left(data, view.allocatable.__getitem__),
            view.allocatable,
            view.requested,
            view.pod_count,
            view.pods_max,
        )

    def filter(
        self, data: WantedResources, snapshot: Snapshot, rows: Int64s, codes: Int64s
    ) -> None:
        super().filter(data, snapshot, rows, codes)
        if not _served_of(data):
            return
        held = snapshot.columns
        for row in rows[codes[rows] != 0].tolist():
            allocatable = held.allocatable[row].tolist()
            codes[row] = fit_code(
                _left(data, allocatable.__getitem__),
                allocatable,
                held.requested[row].tolist(),
                int(held.pod_count[row]),
                int(held.pods_max[row]),
            )

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        key = super().score_key(pod, snapshot)
        devices = snapshot.catalog.devices
        served = _served(self._names, devices, self._matches)
        return (key, devices.class_version) if served else key

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> ScoredShares:
        return _with_served(super().pre_score(pod, snapshot), snapshot, self._matches)

    def score(self, data: ScoredShares, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:
        super().score(data, snapshot, rows, scores)
        _score_devices(data, snapshot, rows, scores, self._matches, self._of_amounts)

    def _of_amounts(self, data: ScoredShares, held: HeldAmounts, scores: Int64s) -> None:
        self._score(np.arange(len(scores)), data, held, scores)


class NodeResourcesBalanceWithDevices(NodeResourcesBalanceChange):
    """NodeResourcesBalancedAllocation of v1.36; `matches` is as that of the filter."""

    def __init__(
        self,
        args: NodeResourcesBalancedAllocationArgs = _BALANCE,
        *,
        matches: MatchDevice | None = None,
    ) -> None:
        super().__init__(args)
        self._names = tuple(resource.name for resource in args.resources)
        self._matches = matches

    def score_key(self, pod: Pod, snapshot: Snapshot) -> Hashable | None:
        key = super().score_key(pod, snapshot)
        devices = snapshot.catalog.devices
        served = key is not None and _served(self._names, devices, self._matches)
        return (key, devices.class_version) if served else key

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> ScoredShares:
        return _with_served(super().pre_score(pod, snapshot), snapshot, self._matches)

    def score(self, data: ScoredShares, snapshot: Snapshot, rows: Int64s, scores: Int64s) -> None:
        super().score(data, snapshot, rows, scores)
        _score_devices(data, snapshot, rows, scores, self._matches, self._of_amounts)

    def _of_amounts(self, data: ScoredShares, held: HeldAmounts, scores: Int64s) -> None:
        self.score_amounts(np.arange(len(scores)), data, held, scores)


def _served_of(data: WantedResources) -> frozenset[int]:
    return data.served if isinstance(data, ServedResources) else frozenset()


def _left(data: WantedResources, allocatable: Callable[[int], int]) -> list[tuple[int, int]]:
    """Return the requests, with 0 for those that the node's devices serve."""
    served = _served_of(data)
    return [
        (column, _NOTHING if place in served and allocatable(column) <= 0 else amount)
        for place, (column, amount) in enumerate(data.pairs)
    ]


_NOTHING = -(2**62)
"""An amount that always fits, also where more is used than there is."""


def _with_served(
    shares: ScoredShares, snapshot: Snapshot, matches: MatchDevice | None
) -> ScoredShares:
    names = {column: name for name, column in snapshot.columns.resources.items()}
    counted = {names[column]: column for column in shares.columns.tolist()}
    served = _served(counted, snapshot.catalog.devices, matches)
    if not served:
        return shares
    columns = tuple((counted[name], name) for name in served)
    return ServedShares(shares.columns, shares.amounts, shares.weights, served=columns)


def _score_devices(
    data: ScoredShares,
    snapshot: Snapshot,
    rows: Int64s,
    scores: Int64s,
    matches: MatchDevice | None,
    score: Callable[[ScoredShares, HeldAmounts, Int64s], None],
) -> None:
    """Write again the scores of rows that have devices instead of an amount."""
    if matches is None or not isinstance(data, ServedShares):
        return
    columns = snapshot.columns
    live = rows[columns.alive[rows]]
    held = HeldAmounts(
        columns.allocatable[live], columns.requested[live], columns.non_zero_requested[live]
    )
    for place, row in enumerate(live.tolist()):
        for column, resource in data.served:
            if held.allocatable[place, column] == 0:
                there, used = _totals(snapshot.node(row), resource, snapshot, matches)
                if there:
                    held.allocatable[place, column] = there
                    held.requested[place, column] = used
    written = np.zeros(len(live), dtype=np.int64)
    score(data, held, written)
    scores[live] = written


def _totals(node: Node, resource: str, snapshot: Snapshot, matches: MatchDevice) -> tuple[int, int]:
    """Return how many devices of the resource's class the node reaches, and how many are in use."""
    devices = snapshot.catalog.devices
    cls = devices.class_of(resource)
    there = used = 0
    if cls is None:
        return 0, 0
    try:
        for device, id_, driver in devices.slices.devices_of(node):
            if all(
                matches(expression, device, driver)
                for expression in cls.selectors
                if expression is not None
            ):
                there += 1
                used += devices.in_use.has(id_)
    except SelectorError:
        return 0, 0
    return there, used
