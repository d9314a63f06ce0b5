"""Signals that end a command: noted at once, raised where that leaves nothing half done.

An exception that a signal's handler raises within a library's `with condition:` can leave a lock
held that another thread waits for: the command would never end. Within a service that runs in this
process it would leave a request half applied. It is raised when such a call has returned.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn, Self

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command as Ctrl-C does; its exit code is 128 and the signal's number."""
_WHOLE = ("concurrent.", "grpc.", "logging.", "services.rpc.local.", "threading.")
"""Modules and packages whose calls are not interrupted: they hold locks, or run a service."""
_deferred: list[KeyboardInterrupt] = []


def is_interrupted() -> bool:
    """Return whether a signal waits for a call to return."""
    return bool(_deferred)


class Interrupted(KeyboardInterrupt):
    """A signal that ends the command, as Ctrl-C does; `code` is the exit code."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.code = 128 + number


class Interrupts:
    """Raises Interrupted on the first of the ENDING signals, and remembers it; a context manager.

    The second signal has the system's own effect: it ends the process at once. A signal that is
    ignored stays so, as SIGHUP under nohup. Within another one it is that one.
    """

    def __init__(self) -> None:
        self._number = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        for each in ENDING:
            outer = getattr(signal.getsignal(each), "__self__", None)
            if isinstance(outer, type(self)):
                return outer
        self._before = _replaced(self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        _set_again(self._before)

    def check(self) -> None:
        """Raise Interrupted where a signal came and the exception was lost."""
        if self._number:
            raise Interrupted(self._number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._number = number
        # The kernel does not end a container's first process by a signal without a handler.
        second = self._end if os.getpid() == 1 else signal.SIG_DFL
        for each in self._before:
            signal.signal(each, second)
        _interrupt(Interrupted(number), frame)

    def _end(self, number: int, frame: FrameType | None) -> None:
        del frame
        os._exit(128 + number)


class StopSignals:
    """Remembers the first of the ENDING signals; the second one interrupts. A context manager.

    `number` is the signal that came last, 0 before the first.
    """

    def __init__(self) -> None:
        self.number = 0
        self._is_armed = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = _replaced(self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        _set_again(self._before)

    def arm(self) -> None:
        """Interrupt at the next signal, whether it is the first or the second."""
        self._is_armed = True

    @property
    def code(self) -> int:
        """Return the exit code of a command that the last signal ended."""
        return 128 + self.number

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._is_armed, is_armed = True, self._is_armed
        self.number = number
        if is_armed:
            _interrupt(KeyboardInterrupt(), frame)


def _replaced(handler: Callable[[int, FrameType | None], None]) -> dict[signal.Signals, Any]:
    """Set the handler of all ENDING signals that are not ignored; return the former ones."""
    found = {each: signal.getsignal(each) for each in ENDING}
    before = {each: former for each, former in found.items() if former is not signal.SIG_IGN}
    for each in before:
        signal.signal(each, handler)
    return before


def _set_again(before: dict[signal.Signals, Any]) -> None:
    _deferred.clear()
    for each, former in before.items():
        signal.signal(each, former if former is not None else signal.SIG_DFL)


def _interrupt(error: KeyboardInterrupt, frame: FrameType | None) -> None:
    """Raise in `frame`, or in the caller of the _WHOLE call that it is within, when that returns.

    The caller's next instruction raises: a trace function of that frame alone does so.
    """
    caller = _outside(frame)
    if caller is frame or caller is None:
        raise error

    def raise_here(_frame: FrameType, _event: str, _argument: object) -> NoReturn:
        _deferred.clear()
        raise error

    _deferred.append(error)
    caller.f_trace_opcodes = True
    caller.f_trace = raise_here
    sys.settrace(lambda *_: None)


def _outside(frame: FrameType | None) -> FrameType | None:
    """Return the caller of the outermost _WHOLE frame; `frame` itself where there is none."""
    outside = frame
    while frame is not None:
        module = f"{frame.f_globals.get('__name__')}."
        frame = frame.f_back
        if module.startswith(_WHOLE):
            outside = frame
    return outside
