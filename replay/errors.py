"""Errors that end a command; their texts are for users and say what to do.

ReplayError is the base of all of them.
"""

from __future__ import annotations

import errno
from pathlib import Path

DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})
"""Errors of the disk itself: full, over a quota or a limit, failing, or read-only."""
_WHERE_MAX = 4300
_PROBLEM_MAX = 1500


class ReplayError(Exception):
    """An error that ends a command."""


class BackendError(ReplayError):
    """A service cannot be started or reached, refuses a request, or stops answering."""


class ServiceLostError(BackendError):
    """A service, or its session, that was there is gone: a checkpoint may be restored elsewhere."""


class ServiceSilentError(ServiceLostError):
    """A service does not respond in time; its connection may be gone, or it may still work."""


class ConfigurationError(BackendError):
    """A service refuses its configuration."""


class TraceError(ReplayError, ValueError):
    """A trace cannot be read or written; `where` is the file with frame, line or record.

    Text of the file that is quoted in either may be long; the middle of it is left out.
    """

    def __init__(self, where: str, problem: str) -> None:
        self.where = _shortened(where, _WHERE_MAX)
        self.problem = _shortened(problem, _PROBLEM_MAX)
        super().__init__(f"{self.where}: {self.problem}")


class UnreadableError(TraceError):
    """An importer failed on a file in a way that it does not expect: an error of ours, too."""


def _shortened(text: str, length: int) -> str:
    if len(text) <= length:
        return text
    return f"{text[: length - 200]} ... {text[-195:]}"


class RunError(ReplayError, ValueError):
    """A run directory cannot be made or read."""


class OutputError(ReplayError):
    """A file cannot be written: its disk is full, over a quota, read-only or failing."""


def unwritable(path: Path, error: OSError, verb: str = "written") -> ReplayError:
    """Return the error for a file or folder that cannot be written.

    An OutputError if the disk is the reason; else a RunError, such as for a missing permission.
    """
    text = f"{path} cannot be {verb}: {error.strerror or error}"
    return OutputError(text) if error.errno in DISK else RunError(text)


def unreadable(path: Path, error: OSError) -> RunError:
    """Return the error for a file of a run that cannot be read."""
    return RunError(f"{path} cannot be read: {error.strerror or error}")


class RecordError(ReplayError):
    """A recording cannot be made.

    `retry_after_s` is the wait that a server requests before the request is repeated, or 0.
    """

    retry_after_s = 0.0


class KubeconfigError(RecordError):
    """A kubeconfig cannot be read or used; `where` is the file and the entry."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")


class UnreachableError(RecordError):
    """A server does not answer, or ends an answer early."""


class AllRefusedError(RecordError):
    """A server refuses every resource; the text is its answer for one of them.

    `advice` is what the user can do.
    """

    advice = ""


class ApiError(RecordError):
    """A server refuses a request.

    `status` is the HTTP status, `reason` and `message` are those of the Kubernetes Status.
    """

    def __init__(
        self, path: str, status: int, reason: str, message: str, retry_after_s: float = 0.0
    ) -> None:
        super().__init__(
            f"{path}: {status} {reason}: {message}" if message else f"{path}: {status}"
        )
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s

    @property
    def is_gone(self) -> bool:
        """Return whether a resourceVersion or a continue token has expired."""
        return self.status == 410

    @property
    def is_refused(self) -> bool:
        """Return whether this resource is forbidden or not served; others may be allowed."""
        return self.status in {403, 404, 405}
