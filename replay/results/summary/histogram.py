"""Durations counted in buckets that are at most 1/16 wide: quantiles of millions, cheaply.

A value's bucket is its highest five bits and their place, as in HdrHistogram with one significant
hexadecimal digit; count, sum and maximum are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

_PRECISION_BITS = 4
_FIRST = 1 << _PRECISION_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Some durations, ns: the 50th, 90th and 99th percentile at most 1/16 too high."""

    count: int
    sum_ns: int
    p50_ns: int
    p90_ns: int
    p99_ns: int
    max_ns: int


class Histogram:
    """Counts durations of 0 ns and more; a negative one counts as 0."""

    __slots__ = ("_buckets", "count", "max_ns", "sum_ns")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0
        self.sum_ns = 0
        self.max_ns = 0

    def record(self, *durations_ns: int) -> None:
        """Count durations."""
        buckets = self._buckets
        for measured_ns in durations_ns:
            duration_ns = bucket = max(measured_ns, 0)
            if duration_ns >= _FIRST:
                shift = duration_ns.bit_length() - _PRECISION_BITS - 1
                bucket = (shift << _PRECISION_BITS) + (duration_ns >> shift)
            buckets[bucket] = buckets.get(bucket, 0) + 1
            self.sum_ns += duration_ns
            self.max_ns = max(self.max_ns, duration_ns)
        self.count += len(durations_ns)

    def quantile(self, share: float) -> int:
        """Return a duration, ns, that `share` (0 to 1) of all do not exceed; 0 without any."""
        wanted, seen = share * self.count, 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(_upper_bound(bucket), self.max_ns)
        return 0

    def buckets(self) -> list[tuple[int, int]]:
        """Return (the longest duration of a bucket, ns; how many are in it), the shortest first."""
        return [
            (min(_upper_bound(bucket), self.max_ns), self._buckets[bucket])
            for bucket in sorted(self._buckets)
        ]

    def quantiles(self) -> Quantiles:
        """Return what a table shows."""
        return Quantiles(
            count=self.count,
            sum_ns=self.sum_ns,
            p50_ns=self.quantile(0.5),
            p90_ns=self.quantile(0.9),
            p99_ns=self.quantile(0.99),
            max_ns=self.max_ns,
        )


def _upper_bound(bucket: int) -> int:
    """Return the largest duration that falls into a bucket."""
    if bucket < 2 * _FIRST:
        return bucket
    shift = (bucket >> _PRECISION_BITS) - 1
    return ((bucket - (shift << _PRECISION_BITS) + 1) << shift) - 1
