"""Signals that end a command: noted at once, raised where that leaves nothing half done.

An exception that a signal's handler raises within a library's `with condition:` can leave a lock
held that another thread waits for: the command would never end. Within a service that runs in this
process it would leave a request half applied. It is raised when such a call has returned.

How it is raised there (`_raise_later`): the frame that made the call gets a trace function, which
Python calls before the frame's next instruction, and which raises. It costs nothing before a
signal. A flag would have to be polled by every loop of every command, those of libraries included.
A timer that tries again would meet a replay with services in this process within such a call nearly
each time, and a command that is about to end would write its results although it was interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
from abc import ABC, abstractmethod
from types import FrameType
from typing import Any, NoReturn, Self

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command as Ctrl-C does."""
SIGNALLED = 128
"""What is added to a signal's number in the exit code of a command that it ended."""
_UNINTERRUPTED = (
    "concurrent.",
    "grpc.",
    "importlib.",
    "logging.",
    "services.rpc.local.",
    "threading.",
)
"""Modules and packages whose calls are not interrupted: they hold locks, or run a service."""
_deferred: list[BaseException] = []


def is_interrupted() -> bool:
    """Return whether a signal waits for a call to return."""
    return bool(_deferred)


class Interrupted(KeyboardInterrupt):
    """A signal that ends the command, as Ctrl-C does; `code` is the exit code."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.code = SIGNALLED + number


class _Handlers(ABC):
    """Calls `_note` on each of the ENDING signals that is not ignored; a context manager.

    What `_note` raises within a destructor or another callback, where Python can only report it, is
    raised in the code that goes on.
    """

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._report = sys.unraisablehook

    def __enter__(self) -> Self:
        handlers = {number: signal.getsignal(number) for number in ENDING}
        self._before = {
            number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN
        }
        for number in self._before:
            signal.signal(number, self._note)
        self._report, sys.unraisablehook = sys.unraisablehook, self._unraisable
        return self

    def __exit__(self, *exception: object) -> None:
        _deferred.clear()
        sys.unraisablehook = self._report
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    @abstractmethod
    def _note(self, number: int, frame: FrameType | None) -> None: ...

    def _unraisable(self, reported: sys.UnraisableHookArgs) -> None:
        caller = _safe_frame(sys._getframe().f_back)
        if isinstance(reported.exc_value, KeyboardInterrupt) and caller is not None:
            _raise_later(reported.exc_value, caller)
        else:
            self._report(reported)


class Interrupts(_Handlers):
    """Raises Interrupted on the first of the ENDING signals, and remembers it; a context manager.

    The second signal has the system's own effect: it ends the process at once. A signal that is
    ignored stays so, as SIGHUP under nohup.
    """

    def __init__(self) -> None:
        super().__init__()
        self._number = 0

    def check(self) -> None:
        """Raise Interrupted if a signal came, and another error took its exception's place."""
        if self._number:
            raise Interrupted(self._number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._number = number
        # The kernel does not end a container's first process by a signal without a handler.
        second = self._end if os.getpid() == 1 else signal.SIG_DFL
        for ending in self._before:
            signal.signal(ending, second)
        _interrupt(Interrupted(number), frame)

    def _end(self, number: int, frame: FrameType | None) -> None:
        del frame
        os._exit(SIGNALLED + number)


class StopSignals(_Handlers):
    """Remembers the first of the ENDING signals; the second one interrupts. A context manager.

    `number` is the signal that came last, 0 before the first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self._is_armed = False

    def arm(self) -> None:
        """Interrupt at the next signal, whether it is the first or the second."""
        self._is_armed = True

    @property
    def code(self) -> int:
        """Return the exit code of a command that the last signal ended."""
        return SIGNALLED + self.number

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._is_armed, is_armed = True, self._is_armed
        self.number = number
        if is_armed:
            _interrupt(KeyboardInterrupt(), frame)


def _interrupt(error: KeyboardInterrupt, frame: FrameType | None) -> None:
    """Raise now, or in the caller of an _UNINTERRUPTED call when that call has returned."""
    caller = _safe_frame(frame)
    if caller is frame or caller is None:
        raise error
    _raise_later(error, caller)


def _raise_later(error: BaseException, frame: FrameType) -> None:
    """Raise at the next instruction of a frame: a trace function of that frame alone does so."""

    def raise_here(_frame: FrameType, _event: str, _argument: object) -> NoReturn:
        _deferred.clear()
        raise error

    _deferred.append(error)
    frame.f_trace_opcodes = True
    frame.f_trace = raise_here
    sys.settrace(lambda *_: None)


def _safe_frame(frame: FrameType | None) -> FrameType | None:
    """Return the frame in which an exception may be raised.

    It is the caller of the outermost _UNINTERRUPTED call, or `frame` if no such call is running.
    """
    safe = frame
    while frame is not None:
        module = f"{frame.f_globals.get('__name__')}."
        frame = frame.f_back
        if module.startswith(_UNINTERRUPTED):
            safe = frame
    return safe
