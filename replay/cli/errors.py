"""What ends a command: a message for people and an exit code for programs."""

from __future__ import annotations

REFUSED = 2
SERVICE = 3
SPANS_LOST = 4
LOOP = 5


class ExitError(Exception):
    """Ends the command with `code`; the text goes to standard error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
