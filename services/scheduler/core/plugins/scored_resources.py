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
from services.scheduler.core.requests import CPU, MEMORY, is_scalar
from services.scheduler.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class ScoredShares:
    """Columns, the pod's amounts of them, and their weights: int64[resources]."""

    columns: Int64s
    amounts: Int64s
    weights: Int64s


@dataclass(frozen=True, slots=True)
class ScoredResources:
    """Resource names with weights, in the order of the configuration."""

    weights: tuple[tuple[str, int], ...] = ((CPU, 1), (MEMORY, 1))

    def key(self, amounts: Mapping[str, int]) -> tuple[int, ...]:
        """Return a pod's amounts of these resources, which its scores follow from."""
        return tuple(amounts.get(name, 0) for name, _ in self.weights)

    def shares(self, snapshot: Snapshot, amounts: Mapping[str, int]) -> ScoredShares:
        """Return a pod's shares of the resources that count for it."""
        counted = [
            (snapshot.columns.resource(name), amounts.get(name, 0), weight)
            for name, weight in self.weights
            if amounts.get(name, 0) != 0 or not is_scalar(name)
        ]
        table = np.array(counted, dtype=np.int64).reshape(-1, 3)
        columns, wanted, weights = (np.ascontiguousarray(table[:, i]) for i in range(3))
        return ScoredShares(columns, wanted, weights)
