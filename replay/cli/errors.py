"""The end of a command: a message for people and an exit code for programs."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Self

from services.terminal import one_line

DIFFERS = 1
FAILED = 1
NOT_FOUND = 1
REFUSED = 2
SERVICE = 3
SPANS_LOST = 4
LOOP = 5
UNWRITABLE = 6
BROKEN_PIPE = 141
INTERRUPTED = 130
HUNG_UP = 129
TERMINATED = 143
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command as Ctrl-C does; its exit code is 128 and the signal's number."""


class ExitError(Exception):
    """Ends the command with `code`; the text is written to standard error, in its lines."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@contextlib.contextmanager
def refusing(*errors: type[Exception]) -> Iterator[None]:
    """Turn `errors` into exit code REFUSED, and errors of services into SERVICE."""
    from replay.errors import DISK, BackendError, ConfigurationError  # noqa: PLC0415 - when used
    from replay.world.answers import AnswerError  # noqa: PLC0415 - when used

    refused: tuple[type[Exception], ...] = (*errors, ConfigurationError)
    try:
        yield
    except refused as error:
        if not isinstance(error, OSError):
            raise ExitError(REFUSED, one_line(str(error))) from error
        code = UNWRITABLE if error.errno in DISK else REFUSED
        raise ExitError(code, one_line(os_problem(error))) from error
    except (BackendError, AnswerError) as error:
        notes = getattr(error, "__notes__", [])
        raise ExitError(SERVICE, "\n".join(map(one_line, [str(error), *notes]))) from error


@contextlib.contextmanager
def refusing_traces() -> Iterator[None]:
    """Turn a trace that cannot be read or written into exit code REFUSED."""
    from replay.errors import TraceError  # noqa: PLC0415 - loaded when needed

    with refusing(TraceError, OSError):
        yield


def os_problem(error: OSError) -> str:
    """Return the system's message, with the file where it has one."""
    problem = error.strerror or str(error)
    return f"{error.filename}: {problem}" if error.filename else problem


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
            before = signal.getsignal(each)
            outer = getattr(before, "__self__", None)
            if isinstance(outer, type(self)):
                return outer
            if before is not signal.SIG_IGN:
                self._before[each] = before
        for each in self._before:
            signal.signal(each, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        for each, before in self._before.items():
            signal.signal(each, before if before is not None else signal.SIG_DFL)

    def check(self) -> None:
        """Raise Interrupted where a signal came and the exception was lost."""
        if self._number:
            raise Interrupted(self._number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._number = number
        # The kernel does not end a container's first process by a signal without a handler.
        second = self._end if os.getpid() == 1 else signal.SIG_DFL
        for each in self._before:
            signal.signal(each, second)
        raise Interrupted(number)

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
        self._before: list[tuple[signal.Signals, Any]] = []

    def __enter__(self) -> Self:
        self._before = [(each, signal.getsignal(each)) for each in ENDING]
        self._before = [each for each in self._before if each[1] is not signal.SIG_IGN]
        for each, _ in self._before:
            signal.signal(each, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        for each, before in self._before:
            signal.signal(each, before if before is not None else signal.SIG_DFL)

    def arm(self) -> None:
        """Interrupt at the next signal, whether it is the first or the second."""
        self._is_armed = True

    @property
    def code(self) -> int:
        """Return the exit code of a command that the last signal ended."""
        return 128 + self.number

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._is_armed, is_armed = True, self._is_armed
        self.number = number
        if is_armed:
            raise KeyboardInterrupt
