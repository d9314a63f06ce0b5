"""The kernels agree with their plain twins, in both tiers."""

from __future__ import annotations

from collections import Counter
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from services.framework.columns import kernels, usage_kernels
from services.framework.columns.kernels import Kernel
from services.framework.plugins.node_resources.plugin import fit_code
from tests.property import kernel_twins as twins

pytestmark = pytest.mark.usefixtures("tier")

NODES, RESOURCES = 6, 4
ROWS = np.arange(NODES, dtype=np.int64)
amounts = st.one_of(st.integers(0, 6), st.integers(0, 2**48), st.sampled_from([0, 100, 4000]))
requests = st.lists(
    st.tuples(st.integers(0, RESOURCES - 1), amounts),
    max_size=RESOURCES,
    unique_by=lambda pair: pair[0],
)


def column(*shape: int) -> st.SearchStrategy[NDArray[np.int64]]:
    """Draw an int64 array of amounts."""
    size = int(np.prod(shape))
    flat = st.lists(amounts, min_size=size, max_size=size)
    return flat.map(lambda drawn: np.array(drawn, dtype=np.int64).reshape(shape))


def wide(*shape: int) -> st.SearchStrategy[NDArray[np.int64]]:
    """Draw an int64 array of numbers up to 2^61."""
    flat = st.lists(
        st.integers(0, 2**61), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))
    )
    return flat.map(lambda drawn: np.array(drawn, dtype=np.int64).reshape(shape))


def split(pairs: list[tuple[int, int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return columns and amounts."""
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()


@settings(max_examples=150)
@given(
    amounts=requests,
    allocatable=column(NODES, RESOURCES),
    requested=column(NODES, RESOURCES),
    count=column(NODES),
    most=column(NODES),
)
def test_fit_codes_are_those_of_the_twin(
    amounts: list[tuple[int, int]],
    allocatable: NDArray[np.int64],
    requested: NDArray[np.int64],
    count: NDArray[np.int64],
    most: NDArray[np.int64],
) -> None:
    """Shortages, and which of them nothing can cure, agree bit by bit."""
    amounts = [pair for pair in amounts if pair[1] > 0]
    codes = np.zeros(NODES, dtype=np.int64)
    kernels.fit(ROWS, *split(amounts), allocatable, requested, count, most, codes)
    assert codes.tolist() == [
        fit_code(
            amounts,
            allocatable[row].tolist(),
            requested[row].tolist(),
            int(count[row]),
            int(most[row]),
        )
        for row in range(NODES)
    ]


@settings(max_examples=150)
@given(
    amounts=requests,
    weights=st.lists(st.integers(1, 9), min_size=RESOURCES, max_size=RESOURCES),
    allocatable=column(NODES, RESOURCES),
    requested=column(NODES, RESOURCES),
    non_zero=column(NODES, 2),
)
def test_resource_scores_are_those_of_the_twins(
    amounts: list[tuple[int, int]],
    weights: list[int],
    allocatable: NDArray[np.int64],
    requested: NDArray[np.int64],
    non_zero: NDArray[np.int64],
) -> None:
    """LeastAllocated and both forms of BalancedAllocation agree to the last digit."""
    columns, asked = split(amounts)
    shares = np.array(weights[: len(amounts)], dtype=np.int64)
    least, balanced, changed = (np.zeros(NODES, dtype=np.int64) for _ in range(3))
    usage_kernels.least_allocated(
        ROWS, columns, asked, shares, allocatable, requested, non_zero, least
    )
    kernels.balanced_allocation(ROWS, columns, asked, allocatable, requested, False, balanced)
    kernels.balanced_allocation(ROWS, columns, asked, allocatable, requested, True, changed)
    for row in range(NODES):
        held = [int((non_zero if c < 2 else requested)[row, c]) + n for c, n in amounts]
        capacity = [int(allocatable[row, c]) for c, _ in amounts]
        assert least[row] == twins.least_allocated(
            list(zip(capacity, held, weights[: len(amounts)], strict=True))
        )
        real = [int(requested[row, c]) + n for c, n in amounts]
        assert balanced[row] == twins.balanced_allocation(list(zip(capacity, real, strict=True)))
        used = [int(requested[row, c]) for c, _ in amounts]
        asked_of = [amount for _, amount in amounts]
        shares_of = list(zip(capacity, used, asked_of, strict=True))
        assert changed[row] == twins.balance_change(shares_of)


small = st.lists(st.integers(0, 4), min_size=NODES, max_size=NODES)


@settings(max_examples=200)
@given(
    refused=st.lists(st.sampled_from([-2, -1, 0, 0, 0, 5]), min_size=NODES, max_size=NODES),
    plain=small,
    raw=st.lists(st.tuples(small, st.integers(1, 3), st.booleans()), max_size=3),
    hashes=st.lists(st.integers(0, 2**64 - 1), min_size=NODES, max_size=NODES, unique=True),
    attempt=st.integers(0, 2**64 - 1),
    places=st.permutations(range(NODES)),
)
def test_the_chosen_row_equals_the_twins(
    refused: list[int],
    plain: list[int],
    raw: list[tuple[list[int], int, bool]],
    hashes: list[int],
    attempt: int,
    places: list[int],
) -> None:
    """Normalising, totals, ties, the keyed hash and the order of names agree."""
    rows = [row for row in range(NODES) if refused[row] == 0]
    full_marks = sum(100 * weight for _, weight, reverse in raw if reverse)
    refuser = np.array(refused, dtype=np.int8)
    totals = np.array(plain, dtype=np.int64) + full_marks
    table = np.array([scores for scores, _, _ in raw], dtype=np.int64).reshape(-1, NODES)
    signs = np.array([-weight if less else weight for _, weight, less in raw], dtype=np.int64)
    highest = np.zeros(len(raw), dtype=np.int64)
    for others in (np.roll(refuser, 1), refuser):
        kernels.normalize(NODES, others, table, signs, highest, totals)
    no_score = (np.zeros(NODES, dtype=np.int64),)
    again, one = np.zeros(NODES, dtype=np.int64), np.zeros(1, dtype=np.int64)
    before = np.array(plain, dtype=np.int64) + full_marks
    kernels.weigh(ROWS, no_score, one, table, signs, highest, before, again)
    assert again.tolist() == totals.tolist()
    chosen, total, ties = kernels.choose(
        NODES, refuser, totals, np.array(hashes, dtype=np.uint64), np.uint64(attempt)
    )
    first = kernels.choose_first(NODES, refuser, totals, np.array(places, dtype=np.int64))
    assert first[1:] == (total, ties)
    if not rows:
        assert (chosen, first[0]) == (-1, -1)
        return
    expected: dict[int, int] = {row: plain[row] for row in rows}
    for scores, weight, reverse in raw:
        scaled = twins.normalized([scores[row] for row in rows], reverse=reverse)
        for row, score in zip(rows, scaled, strict=True):
            expected[row] += weight * score
    assert {row: int(totals[row]) for row in rows} == expected
    assert (total, ties) == (max(expected.values()), list(expected.values()).count(total))
    assert chosen == twins.best_row(list(expected.items()), hashes, attempt)
    assert first[0] == twins.first_row(list(expected.items()), places)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), nodes=st.integers(2, 900), highest=st.integers(0, 3))
def test_the_best_row_of_many_is_that_of_the_twin(seed: int, nodes: int, highest: int) -> None:
    """The best rows may be in any blocks of them, and refused rows with higher totals count not."""
    draw = np.random.default_rng(seed)
    refuser = draw.integers(-1, 2, nodes).astype(np.int8)
    totals = draw.integers(-highest, highest + 1, nodes)
    hashes = draw.integers(0, 2**64, nodes, dtype=np.uint64)
    attempt = int(draw.integers(0, 2**64, dtype=np.uint64))
    best, total, ties = kernels.choose(nodes, refuser, totals, hashes, np.uint64(attempt))
    fitting = [(row, int(totals[row])) for row in np.flatnonzero(refuser == 0).tolist()]
    if not fitting:
        assert best == -1
        return
    assert best == twins.best_row(fitting, hashes.tolist(), attempt)
    assert total == max(total for _, total in fitting)
    assert ties == [other for _, other in fitting].count(total)


@given(
    rows=st.lists(st.integers(0, NODES - 1)),
    before=st.lists(st.integers(-2, 5), min_size=NODES, max_size=NODES),
    codes=small,
    scores=st.lists(small, min_size=1, max_size=2),
)
def test_rows_named_twice_are_merged_once(
    rows: list[int], before: list[int], codes: list[int], scores: list[list[int]]
) -> None:
    """A refusal and a sum of scores are written once; other rows are unchanged."""
    named = np.array(rows, dtype=np.int64)
    refuser, totals = np.full(NODES, 9, dtype=np.int8), np.full(NODES, 9, dtype=np.int64)
    earlier, said = np.array(before, dtype=np.int8), np.full(NODES, 9, dtype=np.int64)
    said_earlier = 100 + np.arange(NODES)
    given_codes = np.array(codes, dtype=np.int64)
    kernels.refuse(named, given_codes, 3, earlier, said_earlier, refuser, said)
    columns = tuple(np.array(column, dtype=np.int64) for column in scores)
    weights = np.arange(2, 2 + len(scores), dtype=np.int64)
    nothing, none = np.zeros((0, NODES), dtype=np.int64), np.zeros(0, dtype=np.int64)
    kernels.weigh(named, columns, weights, nothing, none, none, earlier.astype(np.int64), totals)
    for row in range(NODES):
        if row not in rows:
            assert (refuser[row], said[row], totals[row]) == (9, 9, 9)
            continue
        refused = codes[row] and (before[row] == 0 or before[row] > 3)
        assert refuser[row] == (3 if refused else before[row])
        assert said[row] == (codes[row] if refused else 100 + row)
        weighted = [weight * column[row] for weight, column in enumerate(scores, 2)]
        assert totals[row] == before[row] + sum(weighted)


@given(
    refused=st.lists(st.sampled_from([-2, -1, 0, 1, 2, 127]), min_size=NODES, max_size=NODES),
    codes=small,
)
def test_refusals_are_grouped_by_their_codes(refused: list[int], codes: list[int]) -> None:
    """Each code of each plugin is a group, and so are nodes that PreFilter excludes."""
    refuser, given_codes = np.array(refused, dtype=np.int8), np.array(codes, dtype=np.int64)
    group_of = np.empty(NODES, dtype=np.int32)
    counted = np.empty((NODES, 3), dtype=np.int64)
    found = kernels.group(refuser, given_codes, group_of, counted)
    pairs = list(zip(refused, codes, strict=True))
    groups = [(number, code) for _, number, code in counted[:found].tolist()]
    counts = Counter(pair for pair in pairs if pair[0] not in {-1, 0, kernels.OVERRIDDEN})
    assert dict(zip(groups, counted[:found, 0].tolist(), strict=True)) == counts
    for place, pair in zip(group_of.tolist(), pairs, strict=True):
        assert place == (groups.index(pair) if pair in counts else kernels.NO_GROUP)
    table = np.empty((NODES, 2), dtype=np.int64)
    found = kernels.count_codes(given_codes, table)
    assert dict(table[:found].tolist()) == Counter(codes)


@given(allocatable=wide(NODES, 3), requested=wide(NODES, 3), asked=wide(3))
def test_both_tiers_wrap_around_alike(
    allocatable: NDArray[np.int64], requested: NDArray[np.int64], asked: NDArray[np.int64]
) -> None:
    """Sums and products beyond 64 bits are the same in plain Python and compiled."""
    columns, weights = np.arange(3), np.ones(3, dtype=np.int64)
    non_zero = requested[:, :2].copy()
    answers = []
    for plain_steps in (inf, 0):
        scores = np.zeros((3, NODES), dtype=np.int64)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Kernel, "plain_steps", plain_steps)
            usage_kernels.least_allocated(
                ROWS, columns, asked, weights, allocatable, requested, non_zero, scores[0]
            )
            for by_change in (False, True):
                kernels.balanced_allocation(
                    ROWS, columns, asked, allocatable, requested, by_change, scores[1 + by_change]
                )
        answers.append(scores.tolist())
    assert answers[0] == answers[1]
