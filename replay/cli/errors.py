"""The end of a command: a message for people and an exit code for programs."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any, Self

DIFFERS = 1
FAILED = 1
REFUSED = 2
SERVICE = 3
SPANS_LOST = 4
LOOP = 5
UNWRITABLE = 6
INTERRUPTED = 130
TERMINATED = 143
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ExitError(Exception):
    """Ends the command with `code`; the text is written to standard error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@contextlib.contextmanager
def refusing(*errors: type[Exception]) -> Iterator[None]:
    """Turn `errors` into exit code REFUSED, and errors of services into SERVICE."""
    from replay.errors import BackendError, ConfigurationError  # noqa: PLC0415 - when used
    from replay.world.answers import AnswerError  # noqa: PLC0415 - when used

    refused: tuple[type[Exception], ...] = (*errors, ConfigurationError)
    try:
        yield
    except refused as error:
        text = os_problem(error) if isinstance(error, OSError) else str(error)
        raise ExitError(REFUSED, text) from error
    except (BackendError, AnswerError) as error:
        notes = getattr(error, "__notes__", [])
        raise ExitError(SERVICE, "\n".join([str(error), *notes])) from error


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


class Interrupts:
    """Raises KeyboardInterrupt on SIGINT, and remembers it; a context manager."""

    def __init__(self) -> None:
        self._noted = False
        self._before: signal.Handlers | int | None = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._note)  # type: ignore[assignment] # what was set
        return self

    def __exit__(self, *exception: object) -> None:
        signal.signal(signal.SIGINT, self._before or signal.default_int_handler)

    def check(self) -> None:
        """Raise KeyboardInterrupt where SIGINT came and the exception was lost."""
        if self._noted:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._noted = True
        raise KeyboardInterrupt


class StopSignals:
    """Remembers the first SIGINT or SIGTERM; the second one interrupts. A context manager.

    `number` is the signal that came last, 0 before the first.
    """

    def __init__(self) -> None:
        self.number = 0
        self._is_armed = False
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        self._before = [signal.signal(each, self._note) for each in _SIGNALS]
        return self

    def __exit__(self, *exception: object) -> None:
        for each, before in zip(_SIGNALS, self._before, strict=True):
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
