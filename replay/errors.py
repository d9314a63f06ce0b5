"""Why a command ends early: errors of services, traces, recordings and run folders.

Why a trace is refused.

Why a recording cannot begin, or cannot go on.

What is wrong with a run directory.
"""

from __future__ import annotations


class BackendError(RuntimeError):
    """A service that cannot be started or reached, refuses, or stops answering; for people."""


class ConfigurationError(BackendError):
    """A service that refuses the configuration it was given; for people."""


class TraceError(ValueError):
    """A trace that cannot be read or written; `where` names file and frame, line or record."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where = where
        self.problem = problem


class RecordError(Exception):
    """A recording that cannot be made; the text is for people and says what to do."""


class KubeconfigError(RecordError):
    """A kubeconfig that cannot be read or used; `where` names the file and the entry."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")


class UnreachableError(RecordError):
    """A server that does not answer, or breaks off an answer."""


class AllRefusedError(RecordError):
    """A server that refuses every resource; the text is what it said of one."""


class ApiError(RecordError):
    """A request that the server refuses.

    `status` is HTTP's, `reason` and `message` are those of its Status.
    """

    def __init__(self, path: str, status: int, reason: str, message: str) -> None:
        super().__init__(
            f"{path}: {status} {reason}: {message}" if message else f"{path}: {status}"
        )
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def is_gone(self) -> bool:
        """Tell whether a resourceVersion or a continue token is too old: list again."""
        return self.status == 410

    @property
    def is_refused(self) -> bool:
        """Tell whether this resource is forbidden or not served: the others may be."""
        return self.status in {403, 404, 405}


class RunError(ValueError):
    """A run directory that cannot be made or read; the text is for people."""
