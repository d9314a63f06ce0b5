"""Garbage collection for processes that keep almost all objects that they make.

With the default settings, the collector visits all pods repeatedly while pods are added, and finds
no garbage. So what exists when a service or a replay starts is excluded from collection, and the
rest is visited far less often. A process may replay again and again, though, and what the former
replay left is excluded, too: it is collected when twice as much memory is allocated. (Allocated
blocks are counted by the pool, in a thousandth of the time that counting excluded objects takes.)
"""

from __future__ import annotations

import atexit
import gc
import sys
from dataclasses import dataclass


@dataclass(slots=True)
class _Excluded:
    """How many blocks of memory were allocated when all that was excluded was in use."""

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
        _excluded.used = sys.getallocatedblocks()
    elif sys.getallocatedblocks() > 2 * _excluded.used:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        _excluded.used = sys.getallocatedblocks()
    collect_rarely(young)


def collect_rarely(young: int) -> None:
    """Let the youngest generation grow to `young` objects before it is collected."""
    gc.set_threshold(young, 50, 100)
