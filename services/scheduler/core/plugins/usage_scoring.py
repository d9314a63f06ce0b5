"""How NodeResourcesFit scores what is used of a node, by the strategy of its arguments.

Source: kubernetes v1.34 plugins/noderesources/least_allocated.go, most_allocated.go,
requested_to_capacity_ratio.go, resource_allocation.go.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from services.scheduler.core import kernels, usage_kernels
from services.scheduler.core.columns import Columns, Int64s
from services.scheduler.core.plugin_args import NodeResourcesFitArgs, ScoringType, ShapePoint
from services.scheduler.core.plugins.scored_resources import ScoredShares

_SCORE_SCALE = 10
"""A shape's scores end at 10, a node's at 100."""

UsageScore = Callable[[Int64s, ScoredShares, Columns, Int64s], None]


def usage_score(args: NodeResourcesFitArgs) -> UsageScore:
    """Return what writes the scores of rows, for a pod's shares."""
    match args.scoring:
        case ScoringType.LEAST_ALLOCATED:
            return _least_allocated
        case ScoringType.MOST_ALLOCATED:
            return _most_allocated
        case ScoringType.REQUESTED_TO_CAPACITY_RATIO:
            return _requested_to_capacity(args.shape)


def _least_allocated(rows: Int64s, data: ScoredShares, held: Columns, scores: Int64s) -> None:
    kernels.least_allocated(
        rows,
        data.columns,
        data.amounts,
        data.weights,
        held.allocatable,
        held.requested,
        held.non_zero_requested,
        scores,
    )


def _most_allocated(rows: Int64s, data: ScoredShares, held: Columns, scores: Int64s) -> None:
    usage_kernels.most_allocated(
        rows,
        data.columns,
        data.amounts,
        data.weights,
        held.allocatable,
        held.requested,
        held.non_zero_requested,
        scores,
    )


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
