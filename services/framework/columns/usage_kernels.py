"""The scores of NodeResourcesFit by what is used of each resource, compiled.

What is used includes the pod. It may exceed the capacity, since the scores count a default of CPU
and memory for a container without requests, which are the first two columns. Columns are as in
services.framework.columns.kernels.
"""

from __future__ import annotations

from services.framework.columns.columns import Int64s
from services.framework.columns.kernels import NODE_SCORE_MAX, compiled, inlined

_UTILIZATION_MAX = 100
_EXACT = 1 << 53


@inlined
def _quotient(dividend: int, divisor: int) -> int:
    """Divide what is not negative, exactly; a float division and a check beat an integer one.

    Up to 2^53 both numbers are exact as floats, and their quotient is further from the next integer
    than it can be rounded.
    """
    quotient = int(float(dividend) / float(divisor))
    if dividend + divisor < _EXACT:
        return quotient
    if quotient * divisor > dividend:
        return quotient - 1
    if (quotient + 1) * divisor <= dividend:
        return quotient + 1
    return quotient


@compiled
def least_allocated(  # noqa: PLR0917 - compiled code takes its arguments by position
    rows: Int64s,
    resources: Int64s,
    amounts: Int64s,
    weights: Int64s,
    allocatable: Int64s,
    requested: Int64s,
    non_zero_requested: Int64s,
    scores: Int64s,
) -> None:
    """Write each row's LeastAllocated score, truncated per resource and again in the mean."""
    for row in rows:
        total = 0
        weight = 0
        for i in range(len(resources)):
            column = resources[i]
            capacity = allocatable[row, column]
            used = non_zero_requested[row, column] if column < 2 else requested[row, column]
            used += amounts[i]
            if capacity != 0:
                weight += weights[i]
                if used <= capacity:
                    total += _quotient((capacity - used) * NODE_SCORE_MAX, capacity) * weights[i]
        scores[row] = _quotient(total, weight) if weight else 0


@compiled
def most_allocated(  # noqa: PLR0917 - compiled code takes its arguments by position
    rows: Int64s,
    resources: Int64s,
    amounts: Int64s,
    weights: Int64s,
    allocatable: Int64s,
    requested: Int64s,
    non_zero_requested: Int64s,
    scores: Int64s,
) -> None:
    """Write each row's MostAllocated score, truncated per resource and again in the mean."""
    for row in rows:
        total = 0
        weight = 0
        for i in range(len(resources)):
            column = resources[i]
            capacity = allocatable[row, column]
            if capacity == 0:
                continue
            used = non_zero_requested[row, column] if column < 2 else requested[row, column]
            used = min(used + amounts[i], capacity)
            weight += weights[i]
            total += used * NODE_SCORE_MAX // capacity * weights[i]
        scores[row] = total // weight if weight else 0


@inlined
def _on_line(utilization: int, bends: Int64s, heights: Int64s) -> int:
    place = 0
    while place < len(bends) and utilization > bends[place]:
        place += 1
    if place == 0:
        return int(heights[0])
    if place == len(bends):
        return int(heights[-1])
    rise = (heights[place] - heights[place - 1]) * (utilization - bends[place - 1])
    run = bends[place] - bends[place - 1]
    step = rise // run if rise >= 0 else -(-rise // run)
    return int(heights[place - 1] + step)


@compiled
def requested_to_capacity(  # noqa: PLR0917 - compiled code takes its arguments by position
    rows: Int64s,
    resources: Int64s,
    amounts: Int64s,
    weights: Int64s,
    bends: Int64s,
    heights: Int64s,
    allocatable: Int64s,
    requested: Int64s,
    non_zero_requested: Int64s,
    scores: Int64s,
) -> None:
    """Write each row's RequestedToCapacityRatio score: the rounded mean of those above 0.

    bends, heights: int64[points], utilization in % and its score of 100, by rising utilization.
    """
    for row in rows:
        total = 0
        weight = 0
        for i in range(len(resources)):
            column = resources[i]
            capacity = allocatable[row, column]
            if capacity == 0:
                continue
            used = non_zero_requested[row, column] if column < 2 else requested[row, column]
            used += amounts[i]
            utilization = _UTILIZATION_MAX
            if used <= capacity:
                utilization = used * _UTILIZATION_MAX // capacity
            score = _on_line(utilization, bends, heights)
            if score > 0:
                total += score * weights[i]
                weight += weights[i]
        scores[row] = (2 * total + weight) // (2 * weight) if weight else 0
