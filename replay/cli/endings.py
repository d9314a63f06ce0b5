"""Ctrl-C and SIGTERM as a wish to come to an end, which a program grants in its own time."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Endings:
    """Notes the first SIGINT or SIGTERM while it is entered; the second one interrupts.

    Only in the main thread, as signal handlers must be.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        self._before = [signal.signal(each, self._note) for each in _SIGNALS]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each, before in zip(_SIGNALS, self._before, strict=True):
            signal.signal(each, before if before is not None else signal.SIG_DFL)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
