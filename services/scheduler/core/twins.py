"""What the kernels compute, in plain Python, one row at a time.

The framework uses them for one hypothetical node, where calling a kernel would cost more than
it does; the property tests hold kernel and twin equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from services.scheduler.core.hashing import mixed

TOO_MANY_PODS = 1
UNRESOLVABLE = 1 << 62
NODE_SCORE_MAX = 100


def fit(
    wanted: Sequence[tuple[int, int]],
    allocatable: Sequence[int],
    requested: Sequence[int],
    pod_count: int,
    pods_max: int,
) -> int:
    """Return the fit code of a node for a pod that asks `wanted` (column, amount).

    Source: kubernetes v1.34 plugins/noderesources/fit.go, fitsRequest.
    """
    code = TOO_MANY_PODS if pod_count + 1 > pods_max else 0
    bit = 2
    for column, amount in wanted:
        capacity = allocatable[column]
        if amount > capacity - requested[column]:
            code |= bit
            if amount > capacity:
                code |= UNRESOLVABLE
        bit <<= 1
    return code


def least_allocated(shares: Sequence[tuple[int, int, int]]) -> int:
    """Return the score of (capacity, used with the pod, weight) of each resource.

    Source: kubernetes v1.34 plugins/noderesources/least_allocated.go.
    """
    present = [share for share in shares if share[0] != 0]
    weight = sum(share[2] for share in present)
    if weight == 0:
        return 0
    total = sum(
        (capacity - used) * NODE_SCORE_MAX // capacity * each
        for capacity, used, each in present
        if used <= capacity
    )
    return total // weight


def balanced_allocation(shares: Sequence[tuple[int, int]]) -> int:
    """Return the score of (capacity, used with the pod) of each resource.

    Source: kubernetes v1.34 plugins/noderesources/balanced_allocation.go.
    """
    fractions = [min(float(used) / float(capacity), 1.0) for capacity, used in shares if capacity]
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2.0)
    elif len(fractions) > 2:
        total = 0.0
        for fraction in fractions:
            total += fraction
        mean = total / float(len(fractions))
        squares = 0.0
        for fraction in fractions:
            squares += (fraction - mean) * (fraction - mean)
        deviation = sqrt(squares / float(len(fractions)))
    return int((1.0 - deviation) * 100.0)


def normalized(raw: Sequence[int], *, reverse: bool) -> list[int]:
    """Return raw scores on the scale 0 to 100, the highest one being 100 (or 0 in reverse).

    Source: kubernetes v1.34 plugins/helper/normalize_score.go, DefaultNormalizeScore.
    """
    highest = max(raw, default=0)
    scaled = [NODE_SCORE_MAX * score // highest if highest > 0 else 0 for score in raw]
    return [NODE_SCORE_MAX - score for score in scaled] if reverse else scaled


def best_row(totals: Sequence[tuple[int, int]], name_hashes: Sequence[int], attempt: int) -> int:
    """Return the row of the highest of (row, total), the smallest keyed hash among equals."""
    highest = max(total for _, total in totals)
    ties = [row for row, total in totals if total == highest]
    return min(ties, key=lambda row: mixed(name_hashes[row], attempt))


def first_row(totals: Sequence[tuple[int, int]], places: Sequence[int]) -> int:
    """Return the row of the highest of (row, total), that with the smallest place among equals."""
    highest = max(total for _, total in totals)
    return min((row for row, total in totals if total == highest), key=lambda row: places[row])
