"""Which resources the resource scores look at, and a pod's share of each.

An extended resource that the pod does not ask for is left out.

Source: kubernetes v1.34 plugins/noderesources/resource_allocation.go,
calculateResourceAllocatableRequest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from services.scheduler.core.columns import Int64s
from services.scheduler.core.plugin_args import ResourceWeight
from services.scheduler.core.requests import is_scalar
from services.scheduler.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class ScoredShares:
    """Columns, the pod's amounts of them, and their weights: int64[resources]."""

    columns: Int64s
    amounts: Int64s
    weights: Int64s


@dataclass(frozen=True, slots=True)
class ScoredResources:
    """Resources with weights, in the order of the configuration."""

    resources: tuple[ResourceWeight, ...]

    def key(self, amounts: Mapping[str, int]) -> tuple[int, ...]:
        """Return a pod's amounts of these resources, which its scores follow from."""
        return tuple(amounts.get(each.name, 0) for each in self.resources)

    def shares(self, snapshot: Snapshot, amounts: Mapping[str, int]) -> ScoredShares:
        """Return a pod's shares of the resources that count for it."""
        counted = [
            (snapshot.columns.resource(each.name), amounts.get(each.name, 0), each.weight)
            for each in self.resources
            if amounts.get(each.name, 0) != 0 or not is_scalar(each.name)
        ]
        table = np.array(counted, dtype=np.int64).reshape(-1, 3)
        columns, wanted, weights = (np.ascontiguousarray(table[:, i]) for i in range(3))
        return ScoredShares(columns, wanted, weights)
