"""What the kernels over topology domains compute, in plain Python.

A domain is a number, negative where a row has none. The property tests hold kernel and twin equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor

from services.scheduler.core.domain_kernels import FAR

NODE_SCORE_MAX = 100


def sums(domains: Sequence[int], counts: Sequence[int]) -> dict[int, int]:
    """Return the counts added up by domain, only where they are not 0."""
    found: dict[int, int] = {}
    for domain, count in zip(domains, counts, strict=True):
        if domain >= 0 and count:
            found[domain] = found.get(domain, 0) + count
    return found


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
    return [int(100.0 * (float(each - least) / float(span))) if span else 0 for each in raw]


def spread_sums(
    domains: Sequence[int], counted: Sequence[bool], counts: Sequence[int]
) -> tuple[dict[int, int], int, int]:
    """Return the sums of the counted rows by domain, the least, and the least of the others.

    Among equals, the domain of the smallest number is the emptiest.
    """
    found: dict[int, int] = {}
    for domain, counts_here, count in zip(domains, counted, counts, strict=True):
        if counts_here:
            found[domain] = found.get(domain, 0) + count
    least, second = [*sorted(found.values()), FAR, FAR][:2]
    return found, least, second


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
    scored = [each for each, left_out in zip(raw, ignored, strict=True) if not left_out]
    least, highest = min(scored, default=0), max(scored, default=0)
    return [
        0
        if left_out
        else NODE_SCORE_MAX
        if highest == 0
        else NODE_SCORE_MAX * (highest + least - each) // highest
        for each, left_out in zip(raw, ignored, strict=True)
    ]
