"""The compiled kernels over domains agree with their plain twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from services.framework.columns import domain_kernels
from services.framework.plugins.pod_topology_spread.scores import DomainWeights, logarithm
from tests.property import kernel_twins as twins

pytestmark = pytest.mark.usefixtures("tier")

NODES, DOMAINS = 7, 4
ROWS = np.arange(NODES, dtype=np.int64)
domains = st.lists(st.integers(-1, DOMAINS - 1), min_size=NODES, max_size=NODES)
counts = st.lists(st.integers(0, 9), min_size=NODES, max_size=NODES)
signed = st.lists(st.integers(-50, 50), min_size=NODES, max_size=NODES)
flags = st.lists(st.booleans(), min_size=NODES, max_size=NODES)


def int64s(values: list[int]) -> NDArray[np.int64]:
    """Return a column."""
    return np.array(values, dtype=np.int64)


def held(domain: list[int], count: list[int]) -> NDArray[np.int64]:
    """Return the sums by domain, as the kernel adds them up."""
    sums = np.zeros(DOMAINS, dtype=np.int64)
    domain_kernels.domain_sums(NODES, int64s(domain), int64s(count), sums)
    return sums


@given(domains, signed)
def test_sums_by_domain_agree(domain: list[int], count: list[int]) -> None:
    """Rows without a domain add nothing to the total."""
    sums = np.zeros(DOMAINS, dtype=np.int64)
    total = domain_kernels.domain_sums(NODES, int64s(domain), int64s(count), sums)
    expected = twins.sums(domain, count)
    assert sums.tolist() == [expected.get(number, 0) for number in range(DOMAINS)]
    assert total == sum(expected.values())
    there = any(pods and place >= 0 for place, pods in zip(domain, count, strict=True))
    assert domain_kernels.present(NODES, int64s(domain), int64s(count)) == there


@given(domains, counts, flags, st.booleans())
def test_refusals_by_domain_agree(
    domain: list[int], count: list[int], refused: list[bool], lone: bool
) -> None:
    """Affinity overrides an earlier refusal; anti-affinity keeps it."""
    sums, places = held(domain, count), int64s(domain)
    codes = int64s([7 * code for code in refused])
    domain_kernels.avoid(NODES, places, sums, 2, codes)
    avoided = twins.avoided(domain, sums.tolist())
    assert codes.tolist() == [
        7 if before else 2 if now else 0 for before, now in zip(refused, avoided, strict=True)
    ]
    codes = np.zeros(NODES, dtype=np.int64)
    domain_kernels.want(NODES, places, sums, lone, 1, codes)
    assert codes.tolist() == [int(e) for e in twins.wanting(domain, sums.tolist(), lone=lone)]


@given(signed)
def test_stretched_scores_agree(raw: list[int]) -> None:
    """The least is 0, the highest 100."""
    scores = np.zeros(NODES, dtype=np.int64)
    domain_kernels.stretch(ROWS, int64s(raw), scores)
    assert scores.tolist() == twins.stretched(raw)


@given(domains, counts, flags)
def test_spread_sums_agree(domain: list[int], count: list[int], counted: list[bool]) -> None:
    """The smallest count, and the smallest count in another domain."""
    counted = [flag and place >= 0 for flag, place in zip(counted, domain, strict=True)]
    sums, occurs = np.zeros(DOMAINS, dtype=np.int64), np.zeros(DOMAINS, dtype=np.bool_)
    number, least, emptiest, second = domain_kernels.spread_sums(
        NODES, int64s(domain), np.array(counted), int64s(count), sums, occurs
    )
    expected, first, next_ = twins.spread_sums(domain, counted, count)
    assert (number, least, second) == (len(expected), first, next_)
    assert emptiest == min((d for d in expected if expected[d] == least), default=-1)
    assert {place: int(sums[place]) for place in np.flatnonzero(occurs).tolist()} == expected


@given(domains, counts, flags, flags, flags, st.integers(0, 4))
def test_spread_scores_agree(
    domain: list[int],
    count: list[int],
    counted: list[bool],
    fitting: list[bool],
    left_out: list[bool],
    unlabelled: int,
) -> None:
    """Weights follow from the domains that hold a node that fits and is not ignored."""
    rows = [row for row in range(NODES) if fitting[row]]
    ignored = [left_out[row] for row in rows]
    weights = DomainWeights().up_to(NODES)
    values = np.zeros(len(rows), dtype=np.float64)
    domain_kernels.add_spread(
        int64s(rows),
        np.array(ignored, dtype=np.bool_),
        NODES,
        int64s(domain),
        DOMAINS + 1,
        unlabelled,
        np.array(counted),
        int64s(count),
        weights,
        2.0,
        values,
    )
    assert values.tolist() == twins.spread_scores(
        rows, ignored, domain, unlabelled, counted, count, weights.tolist(), more=2.0
    )
    raw, scores = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    domain_kernels.rounded(values, raw)
    assert raw.tolist() == [twins.rounded(value) for value in values.tolist()]
    domain_kernels.turn(np.array(ignored, dtype=np.bool_), raw, scores)
    assert scores.tolist() == twins.turned(raw.tolist(), ignored)


@given(st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, 3)), max_size=20))
def test_counts_that_follow_changes_equal_recounts(changes: list[tuple[int, int]]) -> None:
    """Counting pods one by one gives the same as counting all."""
    weights = int64s([0, 1, -2, 5])
    log = np.array([(row, number, 1) for row, number in changes], dtype=np.int64).reshape(-1, 3)
    followed, anew = np.zeros(NODES, dtype=np.int64), np.zeros(NODES, dtype=np.int64)
    mattered = domain_kernels.follow(log, weights, followed)
    domain_kernels.recount(log[:, 0].copy(), log[:, 1].copy(), weights, anew)
    assert followed.tolist() == anew.tolist()
    assert mattered == any(number for _, number in changes)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 7, 10, 100, 5002])
def test_logarithms_are_within_a_bit_of_the_librarys(number: int) -> None:
    """The method is exact to less than one unit in the last place."""
    expected = float(np.log(np.float64(number)))
    assert abs(logarithm(number) - expected) <= np.spacing(expected)
