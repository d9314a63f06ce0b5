"""Warns once, with an estimate, that a run's files grow large, early enough to restart cheaply.

Every attempt of a pod makes spans, so a small trace with many retries can fill a disk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from replay.results.durations import simulated
from replay.results.run.files import SPANS
from services.kube.time import MINUTE_NS

LARGE_BYTES = 1_000_000_000
"""The size of a run's files from which the warning is printed."""
_PERIOD_S = 5.0


class RunGrowth:
    """Checks the sizes of a run's files every few seconds of wall time, until it has warned."""

    def __init__(self, folder: Path, notice: Callable[[str], None]) -> None:
        self._folder = folder
        self._notice = notice
        self._next_s = 0.0
        self._began: tuple[int, int] | None = None

    def look(self, now_ns: int, end_ns: int | None) -> None:
        """Warn once if the run is large at `now_ns`; `end_ns`: the run's end, None if unknown."""
        if monotonic() < self._next_s:
            return
        self._next_s = monotonic() + _PERIOD_S
        sizes: dict[str, int] = {}
        for path in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # a draft was renamed meanwhile
                sizes[path.name] = path.stat().st_size
        size = sum(sizes.values())
        if self._began is None:
            self._began = now_ns, size
        if size >= LARGE_BYTES:
            self._next_s = float("inf")
            self._notice(warning(size, sizes.get(SPANS, 0), self._began, now_ns, end_ns))


def warning(size: int, spans: int, began: tuple[int, int], now_ns: int, end_ns: int | None) -> str:
    """Return the warning about a run of `size` bytes.

    began: an earlier time (ns) and the run's size at that time, from which growth is estimated.
    """
    since_ns, before = began
    passed_ns = max(1, now_ns - since_ns)
    text = f"the run's files have {_gb(size)}, {_gb(spans)} of which are spans"
    if end_ns is not None and end_ns > now_ns:
        expected = size + (size - before) * (end_ns - now_ns) // passed_ns
        text += f"; about {_gb(expected)} at its end in {simulated(end_ns - now_ns)}"
    else:
        more = (size - before) * MINUTE_NS // passed_ns
        text += f"; about {_gb(more)} more for each simulated minute"
    advice = "--spans 1% keeps those of one pod in a hundred, --spans off none"
    return f"{text}, at this rate; {advice if 2 * spans > size else '--until ends it earlier'}"


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
