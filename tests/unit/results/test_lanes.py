"""Rows for intervals."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replay.results.spans.chrome_trace import Lanes


@given(intervals=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=40))
def test_no_two_intervals_of_a_row_overlap_and_no_row_is_too_many(
    intervals: list[tuple[int, int]],
) -> None:
    """There are as many rows as intervals at the busiest moment."""
    lanes = Lanes()
    rows: dict[int, int] = {}
    for begin, length in sorted(intervals):
        row = lanes.take(begin, begin + length)
        assert rows.get(row, 0) <= begin
        rows[row] = begin + length
    busiest = max((sum(b <= at < b + n for b, n in intervals) for at, _ in intervals), default=0)
    assert len(rows) == busiest
