"""Where a snapshot keeps what, so that a restored one numbers its rows alike."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which row is whose: `rows` are (node name, row), in the order in which they were taken.

    `free` are the rows to take next, the last one first; `used` counts those ever taken.
    """

    capacity: int
    used: int
    resources: tuple[str, ...]
    rows: tuple[tuple[str, int], ...]
    free: tuple[int, ...]
