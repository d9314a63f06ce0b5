"""Formats durations for users, and counts durations in a histogram.

`DurationHistogram` estimates the quantiles of millions of values in bounded memory. The highest
five bits of a value, and their position, select its bucket, as in HdrHistogram with one significant
hexadecimal digit: a bucket is at most 1/16 of its value wide. Count, sum and maximum are exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from services.kube.time import SECOND_NS

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400


def wall(duration_ns: int) -> str:
    """Return a measured time with three digits, such as "850 ns", "12.3 us" or "1.04 s"."""
    value = float(duration_ns)
    for unit in ("ns", "us", "ms"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.2f} s" if value < 100 else f"{value:,.0f} s"


def simulated(duration_ns: int) -> str:
    """Return a simulated time as Kubernetes writes it, such as "0s", "1.5s", "1h30m" or "2d4h".

    From a minute on, the two largest units are shown, and the second is rounded down.
    """
    if duration_ns < _MINUTE_S * SECOND_NS:
        return f"{duration_ns / SECOND_NS:.3f}".rstrip("0").rstrip(".") + "s"
    seconds = duration_ns // SECOND_NS
    if seconds < _HOUR_S:
        return _two(seconds // _MINUTE_S, "m", seconds % _MINUTE_S, "s")
    if seconds < _DAY_S:
        return _two(seconds // _HOUR_S, "h", seconds % _HOUR_S // _MINUTE_S, "m")
    return _two(seconds // _DAY_S, "d", seconds % _DAY_S // _HOUR_S, "h")


def age(duration_ns: int) -> str:
    """Return an age as kubectl's tables show it.

    Source: kubernetes v1.34 apimachinery pkg/util/duration/duration.go, HumanDuration.
    """
    seconds = duration_ns // SECOND_NS
    if seconds < 0:
        return "0s" if seconds >= -2 else "<invalid>"
    minutes, hours, days = seconds // _MINUTE_S, seconds // _HOUR_S, seconds // _DAY_S
    if seconds < 2 * _MINUTE_S:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % _MINUTE_S, "s")
    if minutes < 3 * 60:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return _two(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


_PRECISION_BITS = 4
_FIRST = 1 << _PRECISION_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Quantiles of durations, ns; None if there are no durations.

    p50, p90 and p99 are the upper bounds of buckets, up to 1/16 above the true value.
    """

    count: int
    sum_ns: int
    p50_ns: int | None
    p90_ns: int | None
    p99_ns: int | None
    max_ns: int | None


@dataclass(slots=True)
class DurationHistogram:
    """Counts durations; a negative duration counts as 0 ns."""

    _buckets: dict[int, int] = field(default_factory=dict)
    count: int = 0
    sum_ns: int = 0
    max_ns: int = 0

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
        """Return the quantile for `share` (0 to 1), ns; 0 if there are no durations."""
        rank, seen = share * self.count, 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                return min(_upper_bound(bucket), self.max_ns)
        return 0

    def buckets(self) -> list[tuple[int, int]]:
        """Return (upper bound in ns, count) of each bucket, in ascending order."""
        return [
            (min(_upper_bound(bucket), self.max_ns), self._buckets[bucket])
            for bucket in sorted(self._buckets)
        ]

    def quantiles(self) -> Quantiles:
        """Return count, sum, percentiles and maximum."""
        values_ns = [self.quantile(0.5), self.quantile(0.9), self.quantile(0.99), self.max_ns]
        p50_ns, p90_ns, p99_ns, max_ns = values_ns if self.count else [None] * 4
        return Quantiles(
            count=self.count,
            sum_ns=self.sum_ns,
            p50_ns=p50_ns,
            p90_ns=p90_ns,
            p99_ns=p99_ns,
            max_ns=max_ns,
        )


def _upper_bound(bucket: int) -> int:
    """Return the largest duration that falls into a bucket."""
    if bucket < 2 * _FIRST:
        return bucket
    shift = (bucket >> _PRECISION_BITS) - 1
    return ((bucket - (shift << _PRECISION_BITS) + 1) << shift) - 1
