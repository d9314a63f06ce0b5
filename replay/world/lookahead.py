"""What several usage profiles use together, and when that first comes to matter.

Profiles are step functions of the time since their start. Most nodes never come near a threshold:
they are settled by the sum of what each profile will use at most. The others are looked ahead,
HORIZON_NS at a time, over all profiles' changes as columns. numpy is loaded with the first profile:
most traces tell of none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from replay.world.models import SECOND_NS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Int64s = NDArray[np.int64]

HORIZON_NS = 3600 * SECOND_NS
"""How far usage is looked ahead at once."""


def int64s(values: Sequence[int]) -> Int64s:
    """Return whole numbers as a column."""
    import numpy as np  # noqa: PLC0415 - loaded when needed

    return np.array(values, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """What a profile uses of one resource: int64[segments] each.

    `steps` is by how much a segment differs from the one before it; `peaks` the most from a
    segment on.
    """

    values: Int64s
    steps: Int64s
    peaks: Int64s

    @classmethod
    def of(cls, values: Sequence[int]) -> Amounts:
        """Return the columns of the segments' amounts, in order."""
        import numpy as np  # noqa: PLC0415 - loaded when needed

        column = int64s(values)
        peaks = np.maximum.accumulate(column[::-1])[::-1]
        return cls(values=column, steps=np.diff(column, prepend=0), peaks=peaks)

    def before(self, index: int) -> int:
        """Return what is used until segment `index` begins."""
        return int(self.values[index - 1]) if index else 0

    def peak(self, index: int) -> int:
        """Return the most that is used from just before segment `index` begins."""
        return int(self.peaks[max(0, index - 1)]) if len(self.peaks) else 0


class Profile(Protocol):
    """Segments by the offset from the start at which they begin, ns."""

    @property
    def offsets(self) -> Int64s:
        """Return int64[segments], rising."""

    @property
    def memory(self) -> Amounts:
        """Return what is used of memory, bytes."""

    @property
    def storage(self) -> Amounts:
        """Return what is used of ephemeral storage, bytes."""


Source = tuple[int, Profile]
"""A profile and when it started, ns."""


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


def next_change_ns(sources: Sequence[Source], now_ns: int) -> int | None:
    """Return when a source next changes after `now_ns`, None where none does."""
    found = []
    for start_ns, profile in sources:
        index = _index(profile, now_ns - start_ns)
        if index < len(profile.offsets):
            found.append(start_ns + int(profile.offsets[index]))
    return min(found, default=None)


def look_again_ns(sources: Sequence[Source], now_ns: int, bounds: Bounds) -> int | None:
    """Return when the sources may use more together than the bounds, None for never.

    That is the first such moment after `now_ns`, or the end of the look ahead where none lies
    within it and more comes after it.
    """
    indices = [_index(profile, now_ns - start_ns) for start_ns, profile in sources]
    pairs = list(zip((profile for _, profile in sources), indices, strict=True))
    most_memory = sum(profile.memory.peak(index) for profile, index in pairs)
    most_storage = sum(profile.storage.peak(index) for profile, index in pairs)
    if not bounds.exceeded(most_memory, most_storage):
        return None
    import numpy as np  # noqa: PLC0415 - loaded when needed

    ahead = _Ahead.of(sources, indices, now_ns)
    over = np.zeros(len(ahead.times), dtype=np.bool_)
    for most, used in ((bounds.memory, ahead.memory), (bounds.storage, ahead.storage)):
        if most is not None:
            over |= used > most
    return int(ahead.times[over.argmax()]) if over.any() else ahead.end_ns


def used_bytes(sources: Sequence[Source], now_ns: int) -> tuple[int, int]:
    """Return the memory and the storage that the sources use together at `now_ns`."""
    memory = storage = 0
    for start_ns, profile in sources:
        index = _index(profile, now_ns - start_ns)
        memory += profile.memory.before(index)
        storage += profile.storage.before(index)
    return memory, storage


def _index(profile: Profile, offset_ns: int) -> int:
    """Return the first segment that begins after `offset_ns`."""
    return int(profile.offsets.searchsorted(offset_ns, side="right"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ahead:
    """What sources use together from each moment at which one of them changes.

    `end_ns` is where the look ahead ends, None where nothing comes after it.
    """

    times: Int64s
    memory: Int64s
    storage: Int64s
    end_ns: int | None

    @classmethod
    def of(cls, sources: Sequence[Source], indices: Sequence[int], now_ns: int) -> _Ahead:
        """Return the next HORIZON_NS of sources, each of which goes on at its index."""
        import numpy as np  # noqa: PLC0415 - loaded when needed

        times, memory, storage = [], [], []
        used_memory = used_storage = 0
        goes_on = False
        for (start_ns, profile), low in zip(sources, indices, strict=True):
            high = _index(profile, now_ns - start_ns + HORIZON_NS)
            goes_on |= high < len(profile.offsets)
            times.append(profile.offsets[low:high] + start_ns)
            memory.append(profile.memory.steps[low:high])
            storage.append(profile.storage.steps[low:high])
            used_memory += profile.memory.before(low)
            used_storage += profile.storage.before(low)
        at = np.concatenate(times)
        order = at.argsort(kind="stable")
        at = at[order]
        last = np.append(at[1:] != at[:-1], True) if len(at) else np.zeros(0, dtype=np.bool_)
        return cls(
            times=at[last],
            memory=(used_memory + np.concatenate(memory)[order].cumsum())[last],
            storage=(used_storage + np.concatenate(storage)[order].cumsum())[last],
            end_ns=now_ns + HORIZON_NS if goes_on else None,
        )
