"""Work on a session's core that may block: extenders are asked in the midst of a decision.

It runs in a thread, so that health checks and other sessions are answered meanwhile, and one piece
of it at a time, since a core is no place for two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import TypeVar

_T = TypeVar("_T")

DECIDING_S_MAX = 20.0
"""How long a round's decisions may take before those that there are get answered."""


class Deciding:
    """A session's turn at its core; where nothing `blocks`, work is done at once."""

    def __init__(self, *, blocks: bool) -> None:
        self.blocks = blocks
        self._turn = asyncio.Lock()
        self._due = 0.0

    def begin(self) -> None:
        """Begin a round."""
        self._due = monotonic() + DECIDING_S_MAX

    @property
    def is_due(self) -> bool:
        """Tell whether a round has taken long enough to be answered in part."""
        return monotonic() > self._due

    async def run(self, work: Callable[[], _T]) -> _T:
        """Do `work` and return what it returns.

        Whoever waits may be cancelled; the work is not, and the turn ends with it.
        """
        if not self.blocks:
            return work()
        async with self._turn:
            task = asyncio.ensure_future(asyncio.to_thread(work))
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                await asyncio.wait([task])
                raise
