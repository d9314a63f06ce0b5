"""Python's garbage collector, set for processes that make many values and few cycles.

With the defaults it walks all pods again and again while they are being added, and finds nothing.
"""

from __future__ import annotations

import gc


def calm(young: int = 100_000) -> None:
    """Leave what is there now alone, and look at what comes far less often.

    `young` is how many containers may come, those that went taken off, before they are looked at.
    A service makes some cycles with each refusal and each call of its own; a replay makes none.
    """
    gc.freeze()
    gc.set_threshold(young, 50, 100)
