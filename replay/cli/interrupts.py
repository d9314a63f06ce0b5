"""Ctrl-C, even where Python loses it, and Ctrl-C or SIGTERM as a wish to come to an end.

A KeyboardInterrupt is raised wherever the main thread happens to be. In a callback of a C extension
or a destructor it is printed or dropped, and the program goes on; so it is also noted, and raised
again at the next safe moment. Signal handlers are the main thread's, and so are these classes.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Notes SIGINT while it is entered."""

    def __init__(self) -> None:
        self._noted = False
        self._before: signal.Handlers | int | None = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._note)  # type: ignore[assignment] # what was set
        return self

    def __exit__(self, *exception: object) -> None:
        signal.signal(signal.SIGINT, self._before or signal.default_int_handler)

    def check(self) -> None:
        """Raise KeyboardInterrupt where one was noted and lost."""
        if self._noted:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._noted = True
        raise KeyboardInterrupt


class Endings:
    """Notes the first SIGINT or SIGTERM while it is entered; the second one interrupts."""

    def __init__(self) -> None:
        self.asked = False
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        self._before = [signal.signal(each, self._note) for each in _SIGNALS]
        return self

    def __exit__(self, *exception: object) -> None:
        for each, before in zip(_SIGNALS, self._before, strict=True):
            signal.signal(each, before if before is not None else signal.SIG_DFL)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
