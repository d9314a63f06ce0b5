"""Python's garbage collector, set for processes that make many values and few cycles.

With the defaults it walks all pods again and again while they are being added, and finds nothing.
"""

from __future__ import annotations

import gc

_THRESHOLDS = (100_000, 50, 100)


def calm() -> None:
    """Leave what is there now alone, and look at what comes far less often."""
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
