"""Ctrl-C, even where Python loses it.

A KeyboardInterrupt is raised wherever the main thread happens to be. In a callback of a C extension
or a destructor it is printed or dropped, and the program goes on; so it is also noted, and raised
again at the next safe moment.
"""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Self


class Interrupts:
    """Notes SIGINT while it is entered; in the main thread, as signal handlers must be."""

    def __init__(self) -> None:
        self._noted = False
        self._before: signal.Handlers | int | None = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._note)  # type: ignore[assignment] # what was set
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before or signal.default_int_handler)

    def check(self) -> None:
        """Raise KeyboardInterrupt where one was noted and lost."""
        if self._noted:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._noted = True
        raise KeyboardInterrupt
