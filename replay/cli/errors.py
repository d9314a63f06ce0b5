"""What ends a command: a message for people and an exit code for programs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

DIFFERS = 1
FAILED = 1
REFUSED = 2
SERVICE = 3
SPANS_LOST = 4
LOOP = 5
INTERRUPTED = 130


class ExitError(Exception):
    """Ends the command with `code`; the text goes to standard error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@contextlib.contextmanager
def refusing(*errors: type[Exception]) -> Iterator[None]:
    """Turn `errors` into the exit code for what is refused, and a broken service into its own."""
    from replay.backends.errors import BackendError, ConfigurationError  # noqa: PLC0415 - when used

    refused: tuple[type[Exception], ...] = (*errors, ConfigurationError)
    try:
        yield
    except refused as error:
        text = os_problem(error) if isinstance(error, OSError) else str(error)
        raise ExitError(REFUSED, text) from error
    except BackendError as error:
        notes = getattr(error, "__notes__", [])
        raise ExitError(SERVICE, "\n".join([str(error), *notes])) from error


@contextlib.contextmanager
def refusing_traces() -> Iterator[None]:
    """Turn a trace that cannot be read or written into the exit code for what is refused."""
    from replay.trace.errors import TraceError  # noqa: PLC0415 - loaded when needed

    with refusing(TraceError, OSError):
        yield


def os_problem(error: OSError) -> str:
    """Return what the system said, with the file where it names one."""
    problem = error.strerror or str(error)
    return f"{error.filename}: {problem}" if error.filename else problem
