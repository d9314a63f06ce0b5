"""The loops over pods and topology domains, compiled.

Each has a plain twin in the property tests, which compare the two. Columns are int64[nodes] unless
stated otherwise. A `domain` column has the number of each row's topology domain, negative where the
row has none; sums are indexed by that number.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from services.framework.columns.columns import Bools, Int64s
from services.framework.columns.kernels import NODE_SCORE_MAX, compiled

Floats = NDArray[np.float64]

FAR = 1 << 40
"""A count that is above any other: the emptiest domain's where there is none."""


@compiled
def follow(changes: Int64s, weights: Int64s, counts: Int64s) -> int:
    """Change `counts` as `changes` say, and return 1 if one of them may have mattered.

    changes: int64[n, 3], row, class and sign. weights: by class.
    """
    mattered = 0
    for i in range(len(changes)):
        weight = weights[changes[i, 1]]
        if weight != 0:
            counts[changes[i, 0]] += changes[i, 2] * weight
            mattered = 1
    return mattered


@compiled
def recount(rows: Int64s, numbers: Int64s, weights: Int64s, counts: Int64s) -> None:
    """Add the weight of each pod's class to the count of its row; class -1 is no pod."""
    for i in range(len(rows)):
        if numbers[i] >= 0:
            counts[rows[i]] += weights[numbers[i]]


@compiled
def domain_sums(used: int, domain: Int64s, counts: Int64s, sums: Int64s) -> int:
    """Add the counts of the first `used` rows up by domain; return the total."""
    total = 0
    for row in range(used):
        if domain[row] >= 0 and counts[row] != 0:
            sums[domain[row]] += counts[row]
            total += counts[row]
    return total


@compiled
def present(used: int, domain: Int64s, counts: Int64s) -> bool:
    """Return whether some row with a domain has a count other than 0."""
    row = 0
    while row < used and (counts[row] == 0 or domain[row] < 0):
        row += 1
    return row < used


@compiled
def want(used: int, domain: Int64s, sums: Int64s, lone: bool, code: int, codes: Int64s) -> None:
    """Refuse with `code` the rows without a domain, and those whose domain's sum is not above 0.

    With `lone` the sum does not matter.
    """
    for row in range(used):
        if domain[row] < 0 or (not lone and sums[domain[row]] <= 0):
            codes[row] = code


@compiled
def avoid(used: int, domain: Int64s, sums: Int64s, code: int, codes: Int64s) -> None:
    """Refuse with `code` the rows whose domain's sum is above 0 and that were not refused yet."""
    for row in range(used):
        if codes[row] == 0 and domain[row] >= 0 and sums[domain[row]] > 0:
            codes[row] = code


@compiled
def add_sums(used: int, domain: Int64s, sums: Int64s, scores: Int64s) -> None:
    """Add each row's domain's sum to its score."""
    for row in range(used):
        if domain[row] >= 0:
            scores[row] += sums[domain[row]]


@compiled
def stretch(rows: Int64s, raw: Int64s, scores: Int64s) -> None:
    """Write the scores of `rows` on the scale 0 to 100: the lowest is 0, the highest 100.

    All 0 where they are equal. raw, scores: int64[rows].
    """
    if len(rows) == 0:
        return
    least = raw.min()
    span = raw.max() - least
    for i in range(len(rows)):
        scores[i] = 0
        if span > 0:
            scores[i] = int(float(NODE_SCORE_MAX) * (float(raw[i] - least) / float(span)))


@compiled
def spread_sums(
    used: int, domain: Int64s, counted: Bools, counts: Int64s, sums: Int64s, occurs: Bools
) -> tuple[int, int, int, int]:
    """Add up the counts of the `counted` rows by domain, and mark the domains that occur.

    Return how many they are, the emptiest one's sum (FAR without any), its number, and the lowest
    sum of the others.
    """
    for row in range(used):
        if counted[row]:
            sums[domain[row]] += counts[row]
            occurs[domain[row]] = True
    number = 0
    least, second = FAR, FAR
    emptiest = -1
    for i in range(len(sums)):
        if not occurs[i]:
            continue
        number += 1
        if sums[i] < least:
            second = least
            least = sums[i]
            emptiest = i
        elif sums[i] < second:
            second = sums[i]
    return number, least, emptiest, second


@compiled
def spread(
    used: int,
    domain: Int64s,
    sums: Int64s,
    allowed: int,
    missing_code: int,
    skew_code: int,
    codes: Int64s,
) -> None:
    """Refuse the rows without a domain, and those whose domain's sum is above `allowed`.

    Rows that were refused already keep their code.
    """
    for row in range(used):
        if codes[row] != 0:
            continue
        if domain[row] < 0:
            codes[row] = missing_code
        elif sums[domain[row]] > allowed:
            codes[row] = skew_code


@compiled
def add_spread(  # noqa: PLR0917 - compiled code takes its arguments by position
    rows: Int64s,
    ignored: Bools,
    used: int,
    domain: Int64s,
    size: int,
    unlabelled: int,
    counted: Bools,
    counts: Int64s,
    logarithms: Floats,
    more: float,
    scores: Floats,
) -> None:
    """Add one constraint's part to the scores of `rows`, the nodes that fit.

    Domains count that hold a row that is not `ignored` (bool[rows]); a row without a label counts
    in the domain `unlabelled`. `size` is above every number of a domain. logarithms: by the number
    of domains. counted: bool[nodes]. scores: float64[rows].
    """
    sums = np.zeros(size, dtype=np.int64)
    number = 0
    for i in range(len(rows)):
        if not ignored[i]:
            place = domain[rows[i]]
            place = unlabelled if place < 0 else place
            if sums[place] == 0:
                sums[place] = 1
                number += 1
    weight = logarithms[number]
    for row in range(used):
        if counted[row]:
            place = domain[row]
            place = unlabelled if place < 0 else place
            if sums[place] > 0:
                sums[place] += counts[row]
    for i in range(len(rows)):
        place = domain[rows[i]]
        if not ignored[i] and place >= 0:
            scores[i] += float(sums[place] - 1) * weight + more


@compiled
def add_counts(
    rows: Int64s,
    ignored: Bools,
    domain: Int64s,
    counts: Int64s,
    weight: float,
    more: float,
    scores: Floats,
) -> None:
    """Add the part of a constraint whose domains are the nodes themselves."""
    for i in range(len(rows)):
        if not ignored[i] and domain[rows[i]] >= 0:
            scores[i] += float(counts[rows[i]]) * weight + more


@compiled
def rounded(values: Floats, scores: Int64s) -> None:
    """Write the values rounded, halves away from 0; none is negative."""
    for i in range(len(values)):
        whole = int(np.floor(values[i]))
        scores[i] = whole + 1 if values[i] - float(whole) >= 0.5 else whole


@compiled
def turn(ignored: Bools, raw: Int64s, scores: Int64s) -> None:
    """Write raw scores, of which less is better, on the scale 0 to 100; 0 where `ignored`.

    ignored: bool[rows]; raw, scores: int64[rows].
    """
    least, highest = 1 << 62, 0
    for i in range(len(raw)):
        if not ignored[i]:
            least = min(least, raw[i])
            highest = max(highest, raw[i])
    for i in range(len(raw)):
        if ignored[i]:
            scores[i] = 0
        elif highest == 0:
            scores[i] = NODE_SCORE_MAX
        else:
            scores[i] = NODE_SCORE_MAX * (highest + least - raw[i]) // highest
