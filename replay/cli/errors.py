"""The end of a command: a message for users and an exit code for programs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

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


class ExitError(Exception):
    """Ends the command with `code`; the message is written to standard error line by line."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@contextlib.contextmanager
def refusing(*errors: type[Exception]) -> Iterator[None]:
    """Turn `errors` into exit code REFUSED, and errors of services into SERVICE."""
    from replay.errors import DISK, BackendError, ConfigurationError  # noqa: PLC0415 - when used

    refused: tuple[type[Exception], ...] = (*errors, ConfigurationError)
    try:
        yield
    except refused as error:
        if not isinstance(error, OSError):
            raise ExitError(REFUSED, one_line(str(error))) from error
        code = UNWRITABLE if error.errno in DISK else REFUSED
        raise ExitError(code, one_line(os_problem(error))) from error
    except BackendError as error:
        notes = getattr(error, "__notes__", [])
        raise ExitError(SERVICE, "\n".join(map(one_line, [str(error), *notes]))) from error


@contextlib.contextmanager
def refusing_traces() -> Iterator[None]:
    """Turn a trace that cannot be read or written into exit code REFUSED."""
    from replay.errors import TraceError  # noqa: PLC0415 - loaded when needed

    with refusing(TraceError, OSError):
        yield


def os_problem(error: OSError) -> str:
    """Return the system's message, with the file if the error names one."""
    problem = error.strerror or str(error)
    return f"{error.filename}: {problem}" if error.filename else problem
