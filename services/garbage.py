"""Garbage collection for processes that keep almost all objects that they make.

With the default settings, the collector visits all pods repeatedly while pods are added, and finds
no garbage. So what exists when a service or a replay starts is excluded from collection, and the
rest is visited far less often. A process may replay again and again, though, and what the former
replay left is excluded, too: it is collected when the excluded objects have become twice as many.
"""

from __future__ import annotations

import atexit
import gc
from dataclasses import dataclass


@dataclass(slots=True)
class _Excluded:
    """How many objects were excluded when all of them were in use."""

    used: int = 0


_excluded = _Excluded()


def calm(young: int = 100_000) -> None:
    """Exclude all existing objects from garbage collection, and collect far less often.

    `young` is the threshold of the youngest generation. A service creates some reference cycles
    with each refusal and each outgoing call; a replay creates none.
    """
    gc.freeze()
    if not _excluded.used:
        atexit.register(gc.unfreeze)  # otherwise extension modules report objects as leaked
        _excluded.used = gc.get_freeze_count()
    elif gc.get_freeze_count() > 2 * _excluded.used:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        _excluded.used = gc.get_freeze_count()
    collect_rarely(young)


def collect_rarely(young: int) -> None:
    """Let the youngest generation grow to `young` objects before it is collected."""
    gc.set_threshold(young, 50, 100)
