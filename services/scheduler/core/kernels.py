"""The loops over rows that every scheduling cycle runs, compiled.

Each has a plain twin in services.scheduler.core.twins that says the same in Python; a property
test holds them equal. `rows` names the rows to compute, and results stand at the row's index.
Columns are int64 unless said otherwise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from services.scheduler.core.columns import Int64s
from services.scheduler.core.compiled import compiled, inlined

Int8s = NDArray[np.int8]
UInt64s = NDArray[np.uint64]

TOO_MANY_PODS = 1
UNRESOLVABLE = 1 << 62
"""Bits of a fit code; bit i + 1 is a shortage of the i-th requested resource."""

NODE_SCORE_MAX = 100


@inlined
def _highest(refuser: Int8s, raw: Int64s, weights: Int64s, reverse: Int64s) -> tuple[Int64s, int]:
    highest = np.zeros(raw.shape[0], dtype=np.int64)
    constant = 0
    for i in range(raw.shape[0]):
        for row in range(len(refuser)):
            if refuser[row] == 0 and raw[i, row] > highest[i]:
                highest[i] = raw[i, row]
        if highest[i] == 0 and reverse[i] == 1:
            constant += NODE_SCORE_MAX * weights[i]
    return highest, constant


@inlined
def _rank(bits: np.uint64) -> np.uint64:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@inlined
def _quotient(dividend: int, divisor: int) -> int:
    """Divide what is not negative, exactly; a float division and a check beat an integer one."""
    found = int(float(dividend) / float(divisor))
    if found * divisor > dividend:
        return found - 1
    if (found + 1) * divisor <= dividend:
        return found + 1
    return found


@compiled
def fit(  # noqa: PLR0917 - compiled code takes its arguments by position
    rows: Int64s,
    resources: Int64s,
    amounts: Int64s,
    allocatable: Int64s,
    requested: Int64s,
    pod_count: Int64s,
    pods_max: Int64s,
    codes: Int64s,
) -> None:
    """Write each row's fit code for a pod that asks `amounts` of the columns `resources`."""
    for row in rows:
        code = 0
        if pod_count[row] + 1 > pods_max[row]:
            code |= TOO_MANY_PODS
        for i in range(len(resources)):
            column = resources[i]
            if amounts[i] > allocatable[row, column] - requested[row, column]:
                code |= 2 << i
                if amounts[i] > allocatable[row, column]:
                    code |= UNRESOLVABLE
        codes[row] = code


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
            if capacity == 0:
                continue
            used = non_zero_requested[row, column] if column < 2 else requested[row, column]
            used += amounts[i]
            weight += weights[i]
            if used <= capacity:
                total += _quotient((capacity - used) * NODE_SCORE_MAX, capacity) * weights[i]
        scores[row] = _quotient(total, weight) if weight else 0


@compiled
def balanced_allocation(  # noqa: PLR0917 - compiled code takes its arguments by position
    rows: Int64s,
    resources: Int64s,
    amounts: Int64s,
    allocatable: Int64s,
    requested: Int64s,
    scores: Int64s,
) -> None:
    """Write each row's BalancedAllocation score, in upstream's order of float64 operations."""
    fractions = np.zeros(len(resources), dtype=np.float64)
    for row in rows:
        count = 0
        total = 0.0
        for i in range(len(resources)):
            capacity = allocatable[row, resources[i]]
            if capacity == 0:
                continue
            fraction = float(requested[row, resources[i]] + amounts[i]) / float(capacity)
            fraction = min(fraction, 1.0)
            total += fraction
            fractions[count] = fraction
            count += 1
        deviation = 0.0
        if count == 2:
            deviation = abs((fractions[0] - fractions[1]) / 2.0)
        elif count > 2:
            mean = total / float(count)
            squares = 0.0
            for i in range(count):
                squares += (fractions[i] - mean) * (fractions[i] - mean)
            deviation = np.sqrt(squares / float(count))
        scores[row] = int((1.0 - deviation) * 100.0)


@compiled
def refuse(rows: Int64s, codes: Int64s, number: int, refuser: Int8s) -> None:
    """Put plugin `number` down as a row's refuser where its code is not 0 and none is before it.

    refuser: int8[nodes], 0 where nobody refuses, negative where the filters are not asked.
    """
    for row in rows:
        if codes[row] != 0 and (refuser[row] == 0 or refuser[row] > number):
            refuser[row] = number


@compiled
def weigh(rows: Int64s, scores: Int64s, weight: int, totals: Int64s) -> None:
    """Add a plugin's weighted scores to the totals of the rows, each named once."""
    for row in rows:
        totals[row] += scores[row] * weight


@compiled
def restore(
    rows: Int64s, node_totals: Int64s, totals: Int64s, node_refuser: Int8s, refuser: Int8s
) -> None:
    """Set the rows back to what the nodes alone say, before the pods on them count."""
    for row in rows:
        totals[row] = node_totals[row]
        refuser[row] = node_refuser[row]


@compiled
def distinct(rows: Int64s, seen: Int8s) -> Int64s:
    """Return the rows without repetition; `seen` is int8[nodes], zeros before and after."""
    found = np.empty_like(rows)
    count = 0
    for row in rows:
        if seen[row] == 0:
            seen[row] = 1
            found[count] = row
            count += 1
    for row in rows:
        seen[row] = 0
    return found[:count]


@compiled
def select(  # noqa: PLR0917 - compiled code takes its arguments by position
    refuser: Int8s,
    totals: Int64s,
    raw: Int64s,
    weights: Int64s,
    reverse: Int64s,
    name_hash: UInt64s,
    attempt: np.uint64,
) -> tuple[int, int, int]:
    """Return the best row (-1 for none), the number of feasible rows, and the best total.

    totals: sums of the scores that need no normalising. raw: int64[plugins, nodes], scores that
    are normalised over the feasible rows; `reverse` is 1 where less is better.
    """
    highest, constant = _highest(refuser, raw, weights, reverse)
    feasible = 0
    best = -1
    best_total = 0
    best_rank = np.uint64(0)
    for row in range(len(refuser)):
        if refuser[row] != 0:
            continue
        feasible += 1
        total = totals[row] + constant
        for i in range(len(highest)):
            if highest[i] != 0:
                score = NODE_SCORE_MAX * raw[i, row] // highest[i]
                total += weights[i] * (NODE_SCORE_MAX - score if reverse[i] == 1 else score)
        if best >= 0 and total < best_total:
            continue
        rank = _rank(name_hash[row] + attempt)
        if best < 0 or total > best_total or rank < best_rank:
            best = row
            best_total = total
            best_rank = rank
    return best, feasible, best_total
