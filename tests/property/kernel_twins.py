"""Plain Python twins of the kernels, one row at a time; property tests compare both.

A domain is a number, negative where a row has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, sqrt

from services.framework.columns.domain_kernels import FAR
from services.framework.columns.kernels import NODE_SCORE_MAX

_MASK = (1 << 64) - 1


def least_allocated(shares: Sequence[tuple[int, int, int]]) -> int:
    """Return the score of (capacity, used with the pod, weight) of each resource.

    Source: kubernetes v1.34 plugins/noderesources/least_allocated.go.
    """
    present = [share for share in shares if share[0] != 0]
    weight = sum(share[2] for share in present)
    if weight == 0:
        return 0
    total = sum(
        (capacity - used) * NODE_SCORE_MAX // capacity * weight
        for capacity, used, weight in present
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


def balance_change(shares: Sequence[tuple[int, int, int]]) -> int:
    """Return the score of (capacity, used without the pod, amount of the pod) of each resource.

    Source: kubernetes v1.36 plugins/noderesources/balanced_allocation.go, balancedResourceScorer.
    """
    before = balanced_allocation([(capacity, used) for capacity, used, _ in shares])
    after = balanced_allocation([(capacity, used + amount) for capacity, used, amount in shares])
    return 50 + (50 + after - before) // 2


def most_allocated(shares: Sequence[tuple[int, int, int]]) -> int:
    """Return the score of (capacity, used with the pod, weight) of each resource.

    Source: kubernetes v1.34 plugins/noderesources/most_allocated.go.
    """
    present = [share for share in shares if share[0] != 0]
    weight = sum(share[2] for share in present)
    total = sum(
        min(used, capacity) * 100 // capacity * weight for capacity, used, weight in present
    )
    return total // weight if weight else 0


def requested_to_capacity(
    shares: Sequence[tuple[int, int, int]], line: Sequence[tuple[int, int]]
) -> int:
    """Return the score of (capacity, used with the pod, weight) of each resource.

    `line` holds (utilization in %, its score of 100), by rising utilization.
    Source: kubernetes v1.34 plugins/noderesources/requested_to_capacity_ratio.go and
    plugins/helper/shape_score.go, BuildBrokenLinearFunction.
    """
    total = weight = 0
    for capacity, used, share in shares:
        if capacity == 0:
            continue
        score = on_line(100 if used > capacity else used * 100 // capacity, line)
        if score > 0:
            total += score * share
            weight += share
    return (2 * total + weight) // (2 * weight) if weight else 0


def on_line(utilization: int, line: Sequence[tuple[int, int]]) -> int:
    """Return the height of a broken line; between two points the division truncates to 0."""
    before: tuple[int, int] | None = None
    for bend, height in line:
        if utilization <= bend:
            if before is None:
                return height
            rise = (height - before[1]) * (utilization - before[0])
            step = abs(rise) // (bend - before[0])
            return before[1] + (step if rise >= 0 else -step)
        before = (bend, height)
    return line[-1][1]


def mixed(node: int, attempt: int) -> int:
    """Return the rank of a node among equals; the smallest wins.

    Source: S. Vigna, splitmix64.c (public domain), the output function.
    """
    bits = (node + attempt) & _MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
    return bits ^ (bits >> 31)


def best_row(totals: Sequence[tuple[int, int]], name_hashes: Sequence[int], attempt: int) -> int:
    """Return the row of the highest of (row, total), the smallest keyed hash among equals."""
    highest = max(total for _, total in totals)
    ties = [row for row, total in totals if total == highest]
    return min(ties, key=lambda row: mixed(name_hashes[row], attempt))


def first_row(totals: Sequence[tuple[int, int]], places: Sequence[int]) -> int:
    """Return the row of the highest of (row, total), that with the smallest place among equals."""
    highest = max(total for _, total in totals)
    return min((row for row, total in totals if total == highest), key=lambda row: places[row])


def normalized(raw: Sequence[int], *, reverse: bool) -> list[int]:
    """Return raw scores on the scale 0 to 100, the highest one being 100 (or 0 in reverse).

    Source: kubernetes v1.34 plugins/helper/normalize_score.go, DefaultNormalizeScore.
    """
    highest = max(raw, default=0)
    scaled = [NODE_SCORE_MAX * score // highest if highest > 0 else 0 for score in raw]
    return [NODE_SCORE_MAX - score for score in scaled] if reverse else scaled


def sums(domains: Sequence[int], counts: Sequence[int]) -> dict[int, int]:
    """Return the counts added up by domain, only where they are not 0."""
    by_domain: dict[int, int] = {}
    for domain, count in zip(domains, counts, strict=True):
        if domain >= 0 and count:
            by_domain[domain] = by_domain.get(domain, 0) + count
    return by_domain


def wanting(domains: Sequence[int], held: Sequence[int], *, lone: bool) -> list[bool]:
    """Tell which rows lack a domain, or have one that holds nothing (unless `lone`)."""
    return [domain < 0 or (not lone and held[domain] <= 0) for domain in domains]


def avoided(domains: Sequence[int], held: Sequence[int]) -> list[bool]:
    """Tell which rows are in a domain that holds something."""
    return [domain >= 0 and held[domain] > 0 for domain in domains]


def stretched(raw: Sequence[int]) -> list[int]:
    """Return scores between the least, which becomes 0, and the highest, which becomes 100.

    Source: kubernetes v1.34 plugins/interpodaffinity/scoring.go, NormalizeScore.
    """
    least, span = min(raw, default=0), max(raw, default=0) - min(raw, default=0)
    return [int(100.0 * (float(score - least) / float(span))) if span else 0 for score in raw]


def spread_sums(
    domains: Sequence[int], counted: Sequence[bool], counts: Sequence[int]
) -> tuple[dict[int, int], int, int]:
    """Return the sums of the counted rows by domain, the least, and the least of the others.

    Among equals, the domain of the smallest number is the emptiest.
    """
    by_domain: dict[int, int] = {}
    for domain, counts_here, count in zip(domains, counted, counts, strict=True):
        if counts_here:
            by_domain[domain] = by_domain.get(domain, 0) + count
    least, second = [*sorted(by_domain.values()), FAR, FAR][:2]
    return by_domain, least, second


def spread_scores(
    rows: Sequence[int],
    ignored: Sequence[bool],
    domains: Sequence[int],
    unlabelled: int,
    counted: Sequence[bool],
    counts: Sequence[int],
    weights: Sequence[float],
    *,
    more: float,
) -> list[float]:
    """Return one constraint's part of the scores of `rows`; see domain_kernels.add_spread.

    Source: kubernetes v1.34 plugins/podtopologyspread/scoring.go, PreScore and Score.
    """

    def place(row: int) -> int:
        return domains[row] if domains[row] >= 0 else unlabelled

    met = {place(row) for row, left_out in zip(rows, ignored, strict=True) if not left_out}
    held = dict.fromkeys(met, 0)
    for row, count in enumerate(counts):
        if counted[row] and place(row) in met:
            held[place(row)] += count
    weight = weights[len(met)]
    return [
        0.0 if left_out or domains[row] < 0 else float(held[domains[row]]) * weight + more
        for row, left_out in zip(rows, ignored, strict=True)
    ]


def rounded(value: float) -> int:
    """Return a value rounded, halves up; it is not negative."""
    whole = floor(value)
    return whole + 1 if value - whole >= 0.5 else whole


def turned(raw: Sequence[int], ignored: Sequence[bool]) -> list[int]:
    """Return scores of which less is better on the scale, 0 where `ignored`.

    Source: kubernetes v1.34 plugins/podtopologyspread/scoring.go, NormalizeScore.
    """
    scored = [score for score, left_out in zip(raw, ignored, strict=True) if not left_out]
    least, highest = min(scored, default=0), max(scored, default=0)
    return [
        0
        if left_out
        else NODE_SCORE_MAX
        if highest == 0
        else NODE_SCORE_MAX * (highest + least - score) // highest
        for score, left_out in zip(raw, ignored, strict=True)
    ]
