"""Usage over time as curves: what a node's pods use together, and when that exceeds a limit.

A curve is a step function of the time since its start, one for each resource. Most nodes never come
near a threshold: the sum of the curves' highest values shows it. For the others the changes of all
curves are summed as columns, HORIZON_NS at a time. A kubelet samples a growing curve, so that it is
a step function, too; the kernel does not, so that `first_over_ns` reads it as the line that it is.
numpy is loaded with the first usage profile:
most traces have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, Protocol

from services.kube.time import SECOND_NS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Int64s = NDArray[np.int64]

HORIZON_NS = 3600 * SECOND_NS
"""How far ahead the changes of usage are summed at once."""

_FOR_EVER_NS = _SUM_MAX = 1 << 62


def int64s(values: Sequence[int]) -> Int64s:
    """Return the numbers as a column, int64[values]."""
    import numpy as np  # noqa: PLC0415 - loaded when needed

    return np.array(values, dtype=np.int64)


def as_changes(offsets: Sequence[int], values: Sequence[int], before: int) -> tuple[Int64s, Int64s]:
    """Return the offsets and how much each value differs from the one before: int64[offsets]."""
    import numpy as np  # noqa: PLC0415 - loaded when needed

    return int64s(offsets), np.diff(int64s(values), prepend=before)


class UsageCurve(Protocol):
    """The use of one resource, bytes, by the time since the curve's start, ns."""

    def used(self, offset_ns: int) -> int:
        """Return the bytes used at `offset_ns`."""

    def most(self, offset_ns: int, until_ns: int) -> int:
        """Return an upper bound of the bytes used from `offset_ns` to `until_ns`."""

    def next_change_ns(self, offset_ns: int) -> int | None:
        """Return the first offset after `offset_ns` at which it may change, None if none."""

    def changes(self, offset_ns: int, until_ns: int) -> tuple[Int64s, Int64s]:
        """Return the changes after `offset_ns` up to `until_ns`: offsets and differences, bytes."""

    def line(self, offset_ns: int) -> Line:
        """Return how usage continues from an offset, as the kernel counts it."""


class Line(NamedTuple):
    """Bytes in use at an offset, how many more each ns brings, and the offset of the next bend.

    `until_ns` is None if there is no further bend.
    """

    used: Fraction | int
    rate: Fraction | int
    until_ns: int | None


class SegmentCurve:
    """A curve of a recorded profile's segments; the last one has no end, before the first is 0.

    `_steps` is how much a segment differs from the one before it, `_peaks` the highest value from a
    segment on: int64[segments] each.
    """

    __slots__ = ("_offsets", "_peaks", "_steps", "_values")

    def __init__(self, offsets: Int64s, values: Sequence[int]) -> None:
        import numpy as np  # noqa: PLC0415 - loaded when needed

        self._offsets = offsets
        self._values = int64s(values)
        self._steps = np.diff(self._values, prepend=0)
        self._peaks = np.maximum.accumulate(self._values[::-1])[::-1]

    def used(self, offset_ns: int) -> int:
        """Return the value of the segment that holds the offset."""
        index = self._index(offset_ns)
        return int(self._values[index - 1]) if index else 0

    def most(self, offset_ns: int, until_ns: int) -> int:  # noqa: ARG002 - a bound for all later times
        """Return the highest value of the current segment and all later ones."""
        return int(self._peaks[max(0, self._index(offset_ns) - 1)]) if len(self._peaks) else 0

    def next_change_ns(self, offset_ns: int) -> int | None:
        """Return the offset of the next segment."""
        index = self._index(offset_ns)
        return int(self._offsets[index]) if index < len(self._offsets) else None

    def changes(self, offset_ns: int, until_ns: int) -> tuple[Int64s, Int64s]:
        """Return the segments that begin in the interval."""
        low, high = self._index(offset_ns), self._index(until_ns)
        return self._offsets[low:high], self._steps[low:high]

    def line(self, offset_ns: int) -> Line:
        """Return the segment that holds the offset: it is level."""
        return Line(self.used(offset_ns), 0, self.next_change_ns(offset_ns))

    def _index(self, offset_ns: int) -> int:
        return int(self._offsets.searchsorted(offset_ns, side="right"))


StartedCurve = tuple[int, UsageCurve]
"""A curve's start, ns since the Unix epoch, and the curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUsage:
    """The curves of all that is used on a node, by resource; the memory of its pods apart."""

    memory: list[StartedCurve] = field(default_factory=list)
    own_memory: list[StartedCurve] = field(default_factory=list)
    storage: list[StartedCurve] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageLimits:
    """Use of a node, bytes, up to which no step changes anything; None: any use.

    `pods_memory` limits the memory of its pods alone.
    """

    memory: int | None = None
    pods_memory: int | None = None
    storage: int | None = None

    def exceeded(self, usage: NodeUsage, now_ns: int) -> bool:
        """Return whether use is above a limit at `now_ns`."""
        return any(
            limit is not None and _used(curves, now_ns) > limit
            for limit, curves in self.limited(usage)
        )

    def limited(self, usage: NodeUsage) -> Sequence[tuple[int | None, Sequence[StartedCurve]]]:
        """Return each limit with the curves whose sum it limits."""
        return (
            (self.memory, (*usage.memory, *usage.own_memory)),
            (self.pods_memory, usage.memory),
            (self.storage, usage.storage),
        )


def next_change_ns(usage: NodeUsage, now_ns: int) -> int | None:
    """Return when a curve next changes after `now_ns`, None for never."""
    times = (
        (start_ns, curve.next_change_ns(now_ns - start_ns))
        for start_ns, curve in (*usage.memory, *usage.own_memory, *usage.storage)
    )
    return min((start_ns + at_ns for start_ns, at_ns in times if at_ns is not None), default=None)


def look_again_ns(usage: NodeUsage, now_ns: int, limits: UsageLimits) -> int | None:
    """Return when the curves together may exceed the limits, None for never.

    That is the first such time after `now_ns`, or the end of the horizon where there is no such
    time within it and may be one after it.
    """
    times_ns = (_look_again_ns(curves, now_ns, limit) for limit, curves in limits.limited(usage))
    return min((at_ns for at_ns in times_ns if at_ns is not None), default=None)


def never_over(curves: Sequence[StartedCurve], now_ns: int, limit: int) -> bool:
    """Return whether a bound of the curves shows that they never exceed a limit from now on."""
    return _most(curves, now_ns, _FOR_EVER_NS) <= limit


def first_over_ns(
    curves: Sequence[StartedCurve], now_ns: int, limit: int, until_ns: int = _FOR_EVER_NS
) -> int | None:
    """Return the first time from `now_ns` to `until_ns` at which curves together exceed a limit.

    None if there is no such time. The time is exact: growth counts at every ns, in whole bytes.
    """
    if never_over(curves, now_ns, limit):
        return None
    at_ns = now_ns
    while at_ns <= until_ns:
        lines = [(start_ns, curve.line(at_ns - start_ns)) for start_ns, curve in curves]
        used, rate = sum(line.used for _, line in lines), sum(line.rate for _, line in lines)
        if used >= limit + 1:
            return at_ns
        bends = (start + line.until_ns for start, line in lines if line.until_ns is not None)
        bend_ns = min(bends, default=None)
        if rate > 0:
            over_ns = at_ns - (used - limit - 1) // rate
            if bend_ns is None or over_ns < bend_ns:
                return int(over_ns) if over_ns <= until_ns else None
        if bend_ns is None:
            return None
        at_ns = bend_ns
    return None


def exact_bytes(curves: Sequence[StartedCurve], now_ns: int) -> int:
    """Return what the curves use together at `now_ns` as the kernel counts it, bytes."""
    return int(sum(curve.line(now_ns - start_ns).used for start_ns, curve in curves))


def _used(curves: Sequence[StartedCurve], now_ns: int) -> int:
    return sum(curve.used(now_ns - start_ns) for start_ns, curve in curves)


def _look_again_ns(curves: Sequence[StartedCurve], now_ns: int, limit: int | None) -> int | None:
    if limit is None or _most(curves, now_ns, _FOR_EVER_NS) <= limit:
        return None
    horizon_ns = HORIZON_NS
    while _most(curves, now_ns, horizon_ns) <= limit:
        horizon_ns *= 2
    if horizon_ns > HORIZON_NS:
        return now_ns + horizon_ns // 2
    return _first_over_ns(curves, now_ns, limit)


def _most(curves: Sequence[StartedCurve], now_ns: int, within_ns: int) -> int:
    offsets = ((now_ns - start_ns, curve) for start_ns, curve in curves)
    return sum(curve.most(offset_ns, offset_ns + within_ns) for offset_ns, curve in offsets)


def _first_over_ns(curves: Sequence[StartedCurve], now_ns: int, limit: int) -> int | None:
    """Return when use first exceeds the limit, else the horizon's end (None: no later change)."""
    import numpy as np  # noqa: PLC0415 - loaded when needed

    times, steps, goes_on = [], [], False
    for start_ns, curve in curves:
        until_ns = now_ns - start_ns + HORIZON_NS
        offsets, changes = curve.changes(now_ns - start_ns, until_ns)
        times.append(offsets + start_ns)
        steps.append(changes)
        goes_on |= curve.next_change_ns(until_ns) is not None
    at = np.concatenate(times)
    order = at.argsort(kind="stable")
    at = at[order]
    by_time = np.concatenate(steps)[order]
    if _most(curves, now_ns, HORIZON_NS) > _SUM_MAX:
        by_time = by_time.astype(object)  # Python's integers, which no sum exceeds
    used = by_time.cumsum() + _used(curves, now_ns)
    last = np.append(at[1:] != at[:-1], True) if len(at) else np.zeros(0, dtype=np.bool_)
    over = last & (used > limit)
    if over.any():
        return int(at[over.argmax()])
    return now_ns + HORIZON_NS if goes_on else None
