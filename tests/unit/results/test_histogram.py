"""Histograms: against the sorted list of the same durations."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from replay.results.durations import DurationHistogram


@given(
    durations=st.lists(st.integers(0, 2**62), min_size=1, max_size=200),
    share=st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]),
)
def test_a_quantile_is_at_most_a_sixteenth_too_high(durations: list[int], share: float) -> None:
    """It is never below the exact one."""
    histogram = DurationHistogram()
    for duration in durations:
        histogram.record(duration)
    exact = sorted(durations)[max(math.ceil(share * len(durations)) - 1, 0)]
    assert exact <= histogram.quantile(share) <= exact + exact // 16


def test_count_sum_and_maximum_are_exact() -> None:
    """Only quantiles are rounded."""
    histogram = DurationHistogram()
    for value in (3, 1_000_003, 17):
        histogram.record(value)
    quantiles = histogram.quantiles()
    assert (quantiles.count, quantiles.sum_ns, quantiles.max_ns) == (3, 1_000_023, 1_000_003)


def test_an_empty_histogram_has_no_quantiles() -> None:
    """No durations is different from durations of 0 s."""
    quantiles = DurationHistogram().quantiles()
    assert (quantiles.count, quantiles.sum_ns) == (0, 0)
    assert (quantiles.p50_ns, quantiles.p99_ns, quantiles.max_ns) == (None, None, None)


def test_a_negative_duration_counts_as_none() -> None:
    """A clock that was set back does not break a run."""
    histogram = DurationHistogram()
    histogram.record(-5)
    assert (histogram.count, histogram.max_ns, histogram.sum_ns) == (1, 0, 0)


@given(durations=st.lists(st.integers(0, 2**62), max_size=100))
def test_the_buckets_hold_every_duration(durations: list[int]) -> None:
    """In order, and none is beyond the bucket's longest."""
    histogram = DurationHistogram()
    for duration in durations:
        histogram.record(duration)
    buckets = histogram.buckets()
    assert sum(count for _, count in buckets) == len(durations)
    assert sorted(upto for upto, _ in buckets) == [upto for upto, _ in buckets]
    for upto, _ in buckets:
        at_most = sum(count for other, count in buckets if other <= upto)
        assert at_most == sum(duration <= upto for duration in durations)
