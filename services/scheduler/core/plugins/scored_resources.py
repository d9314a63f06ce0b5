"""Which resources the resource scores look at, a pod's share of each, and scores by what is used.

An extended resource that the pod does not ask for is left out.

Source: kubernetes v1.34 plugins/noderesources/resource_allocation.go,
calculateResourceAllocatableRequest; least_allocated.go, most_allocated.go,
requested_to_capacity_ratio.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from services.scheduler.core import kernels, usage_kernels
from services.scheduler.core.columns import Columns, Int64s
from services.scheduler.core.plugin_args import (
    NodeResourcesFitArgs,
    ResourceWeight,
    ScoringType,
    ShapePoint,
)
from services.scheduler.core.pod_load import is_scalar
from services.scheduler.core.snapshot import Snapshot

_SCORE_SCALE = 10
"""A shape's scores end at 10, a node's at 100."""


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


UsageScore = Callable[[Int64s, ScoredShares, Columns, Int64s], None]


def usage_score(args: NodeResourcesFitArgs) -> UsageScore:
    """Return what writes the scores of rows, for a pod's shares."""
    match args.scoring:
        case ScoringType.LEAST_ALLOCATED:
            return _weighed_by(kernels.least_allocated)
        case ScoringType.MOST_ALLOCATED:
            return _weighed_by(usage_kernels.most_allocated)
        case ScoringType.REQUESTED_TO_CAPACITY_RATIO:
            return _requested_to_capacity(args.shape)


def _weighed_by(kernel: Callable[..., None]) -> UsageScore:
    def score(rows: Int64s, data: ScoredShares, held: Columns, scores: Int64s) -> None:
        kernel(
            rows,
            data.columns,
            data.amounts,
            data.weights,
            held.allocatable,
            held.requested,
            held.non_zero_requested,
            scores,
        )

    return score


def _requested_to_capacity(shape: tuple[ShapePoint, ...]) -> UsageScore:
    bends = np.array([point.utilization for point in shape], dtype=np.int64)
    heights = np.array([point.score * _SCORE_SCALE for point in shape], dtype=np.int64)

    def score(rows: Int64s, data: ScoredShares, held: Columns, scores: Int64s) -> None:
        usage_kernels.requested_to_capacity(
            rows,
            data.columns,
            data.amounts,
            data.weights,
            bends,
            heights,
            held.allocatable,
            held.requested,
            held.non_zero_requested,
            scores,
        )

    return score
