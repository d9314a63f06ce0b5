"""The kernels of scores by usage agree with their plain twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from services.framework.columns import usage_kernels
from tests.property import kernel_twins as twins

pytestmark = pytest.mark.usefixtures("tier")

NODES, RESOURCES = 5, 3
ROWS = np.arange(NODES, dtype=np.int64)
amounts = st.one_of(st.integers(0, 6), st.integers(0, 2**48), st.sampled_from([0, 100, 4000]))
lines = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 10)),
    min_size=1,
    max_size=5,
    unique_by=lambda point: point[0],
)
Table = NDArray[np.int64]


def table(*shape: int) -> st.SearchStrategy[Table]:
    """Draw an int64 array of amounts."""
    size = int(np.prod(shape))
    flat = st.lists(amounts, min_size=size, max_size=size)
    return flat.map(lambda drawn: np.array(drawn, dtype=np.int64).reshape(shape))


weights = st.lists(st.integers(1, 100), min_size=RESOURCES, max_size=RESOURCES)
wanted = st.lists(amounts, min_size=RESOURCES, max_size=RESOURCES)
COLUMNS = np.arange(RESOURCES, dtype=np.int64)


def shares(
    row: int, wants: list[int], weigh: list[int], allocatable: Table, used: Table, non_zero: Table
) -> list[tuple[int, int, int]]:
    """Return (capacity, used with the pod, weight) of each resource."""
    return [
        (int(allocatable[row, i]), int((non_zero if i < 2 else used)[row, i]) + wants[i], weigh[i])
        for i in range(RESOURCES)
    ]


@settings(max_examples=120)
@given(
    wants=wanted,
    weigh=weights,
    allocatable=table(NODES, RESOURCES),
    used=table(NODES, RESOURCES),
    non_zero=table(NODES, 2),
)
def test_most_allocated_equals_the_twins(
    wants: list[int], weigh: list[int], allocatable: Table, used: Table, non_zero: Table
) -> None:
    """Each row's score, above capacity and without any."""
    scores = np.zeros(NODES, dtype=np.int64)
    usage_kernels.most_allocated(
        ROWS, COLUMNS, np.array(wants), np.array(weigh), allocatable, used, non_zero, scores
    )
    assert scores.tolist() == [
        twins.most_allocated(shares(row, wants, weigh, allocatable, used, non_zero))
        for row in range(NODES)
    ]


@settings(max_examples=120)
@given(
    wants=wanted,
    weigh=weights,
    line=lines,
    allocatable=table(NODES, RESOURCES),
    used=table(NODES, RESOURCES),
    non_zero=table(NODES, 2),
)
def test_requested_to_capacity_equals_the_twins(
    wants: list[int],
    weigh: list[int],
    line: list[tuple[int, int]],
    allocatable: Table,
    used: Table,
    non_zero: Table,
) -> None:
    """Each row's score along rising and falling lines."""
    scaled = sorted((bend, height * 10) for bend, height in line)
    bends, heights = (np.array(column, dtype=np.int64) for column in zip(*scaled, strict=True))
    scores = np.zeros(NODES, dtype=np.int64)
    usage_kernels.requested_to_capacity(
        ROWS,
        COLUMNS,
        np.array(wants),
        np.array(weigh),
        bends,
        heights,
        allocatable,
        used,
        non_zero,
        scores,
    )
    assert scores.tolist() == [
        twins.requested_to_capacity(shares(row, wants, weigh, allocatable, used, non_zero), scaled)
        for row in range(NODES)
    ]


def test_a_falling_line_truncates_toward_zero() -> None:
    """Upstream divides whole numbers, which cuts off towards 0 on the way down too."""
    line = [(0, 100), (30, 0)]
    assert [twins.on_line(at, line) for at in (0, 1, 29, 30, 99)] == [100, 97, 4, 0, 0]


@given(quotient=st.integers(1, 100), divisor=st.integers(1, 2**56), less=st.integers(0, 2))
def test_quotients_beside_whole_numbers_are_exact(quotient: int, divisor: int, less: int) -> None:
    """A quotient that is nearly a whole number is not rounded up to it."""
    dividend = max(quotient * divisor - less, 0)
    assert usage_kernels._quotient(dividend, divisor) == dividend // divisor
