"""What pods and a node use together, and when that first comes to matter.

Usage is a curve for each resource: a step function of the time since its start. Most nodes never
come near a threshold: they are settled by the sum of what each curve will come to at most. The
others are looked ahead, HORIZON_NS at a time, over all curves' changes as columns. numpy is loaded
with the first profile: most traces tell of none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from replay.world.models import SECOND_NS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Int64s = NDArray[np.int64]

HORIZON_NS = 3600 * SECOND_NS
"""How far usage is looked ahead at once."""

_FOR_EVER_NS = 1 << 62


def int64s(values: Sequence[int]) -> Int64s:
    """Return whole numbers as a column."""
    import numpy as np  # noqa: PLC0415 - loaded when needed

    return np.array(values, dtype=np.int64)


def arranged(offsets: Sequence[int], values: Sequence[int], before: int) -> tuple[Int64s, Int64s]:
    """Return offsets as a column, and by how much each value differs from the one before it."""
    import numpy as np  # noqa: PLC0415 - loaded when needed

    return int64s(offsets), np.diff(int64s(values), prepend=before)


class Curve(Protocol):
    """What is used of one resource, bytes, by the time since its start, ns."""

    def used(self, offset_ns: int) -> int:
        """Return what is used then."""

    def most(self, offset_ns: int, until_ns: int) -> int:
        """Return the most that is used from `offset_ns` to `until_ns`, or more."""

    def next_change_ns(self, offset_ns: int) -> int | None:
        """Return the first offset after that one at which it may change, None for none."""

    def changes(self, offset_ns: int, until_ns: int) -> tuple[Int64s, Int64s]:
        """Return the offsets of what changes after that one, up to `until_ns`, and by how much."""


class Amounts:
    """A curve of segments, the last of which lasts for ever; nothing before the first.

    `_steps` is by how much a segment differs from the one before it; `_peaks` the most from a
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
        """Return what is used then."""
        index = self._index(offset_ns)
        return int(self._values[index - 1]) if index else 0

    def most(self, offset_ns: int, until_ns: int) -> int:  # noqa: ARG002 - the most from then on
        """Return the most that is used from just before the next segment begins."""
        return int(self._peaks[max(0, self._index(offset_ns) - 1)]) if len(self._peaks) else 0

    def next_change_ns(self, offset_ns: int) -> int | None:
        """Return when the next segment begins."""
        index = self._index(offset_ns)
        return int(self._offsets[index]) if index < len(self._offsets) else None

    def changes(self, offset_ns: int, until_ns: int) -> tuple[Int64s, Int64s]:
        """Return the segments that begin in that time."""
        low, high = self._index(offset_ns), self._index(until_ns)
        return self._offsets[low:high], self._steps[low:high]

    def _index(self, offset_ns: int) -> int:
        """Return the first segment that begins after `offset_ns`."""
        return int(self._offsets.searchsorted(offset_ns, side="right"))


Source = tuple[int, Curve]
"""A curve and when it started, ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """All that is used on a node, by resource."""

    memory: list[Source] = field(default_factory=list)
    storage: list[Source] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The most that may be used for nothing to happen, bytes; None where any amount may."""

    memory: int | None = None
    storage: int | None = None

    def exceeded(self, memory: int, storage: int) -> bool:
        """Tell whether more than that is used."""
        return (self.memory is not None and memory > self.memory) or (
            self.storage is not None and storage > self.storage
        )


def next_change_ns(sources: Sources, now_ns: int) -> int | None:
    """Return when a source next changes after `now_ns`, None where none does."""
    found = (
        (start_ns, curve.next_change_ns(now_ns - start_ns))
        for start_ns, curve in (*sources.memory, *sources.storage)
    )
    return min((start_ns + at_ns for start_ns, at_ns in found if at_ns is not None), default=None)


def look_again_ns(sources: Sources, now_ns: int, bounds: Bounds) -> int | None:
    """Return when the sources may use more together than the bounds, None for never.

    That is the first such moment after `now_ns`, or the end of the look ahead where none lies
    within it and more may come after it.
    """
    found = (
        _look_again_ns(sources.memory, now_ns, bounds.memory),
        _look_again_ns(sources.storage, now_ns, bounds.storage),
    )
    return min((at_ns for at_ns in found if at_ns is not None), default=None)


def used_bytes(sources: Sources, now_ns: int) -> tuple[int, int]:
    """Return the memory and the storage that the sources use together at `now_ns`."""
    return (
        sum(curve.used(now_ns - start_ns) for start_ns, curve in sources.memory),
        sum(curve.used(now_ns - start_ns) for start_ns, curve in sources.storage),
    )


def _look_again_ns(sources: Sequence[Source], now_ns: int, most: int | None) -> int | None:
    if most is None or _most(sources, now_ns, _FOR_EVER_NS) <= most:
        return None
    horizon_ns = HORIZON_NS
    while _most(sources, now_ns, horizon_ns) <= most:
        horizon_ns *= 2
    if horizon_ns > HORIZON_NS:
        return now_ns + horizon_ns // 2
    return _first_over_ns(sources, now_ns, most)


def _most(sources: Sequence[Source], now_ns: int, within_ns: int) -> int:
    offsets = ((now_ns - start_ns, curve) for start_ns, curve in sources)
    return sum(curve.most(offset_ns, offset_ns + within_ns) for offset_ns, curve in offsets)


def _first_over_ns(sources: Sequence[Source], now_ns: int, most: int) -> int | None:
    """Return when more than `most` is first used, or where the look ahead ends that finds none."""
    import numpy as np  # noqa: PLC0415 - loaded when needed

    times, steps, goes_on = [], [], False
    for start_ns, curve in sources:
        until_ns = now_ns - start_ns + HORIZON_NS
        offsets, changes = curve.changes(now_ns - start_ns, until_ns)
        times.append(offsets + start_ns)
        steps.append(changes)
        goes_on |= curve.next_change_ns(until_ns) is not None
    at = np.concatenate(times)
    order = at.argsort(kind="stable")
    at = at[order]
    used = np.concatenate(steps)[order].cumsum()
    used += sum(curve.used(now_ns - start_ns) for start_ns, curve in sources)
    last = np.append(at[1:] != at[:-1], True) if len(at) else np.zeros(0, dtype=np.bool_)
    over = last & (used > most)
    if over.any():
        return int(at[over.argmax()])
    return now_ns + HORIZON_NS if goes_on else None
