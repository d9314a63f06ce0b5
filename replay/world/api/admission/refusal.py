"""Errors with which the simulated API server rejects requests."""

from __future__ import annotations

from typing import NamedTuple

from services.rpc.errors import FieldError


class AdmissionError(ValueError):
    """An object that an API server would reject; the text is for users.

    `retry_ns` is when an equal request could succeed though nothing happens until then; None:
    never.
    """

    def __init__(self, text: str, *, retry_ns: int | None = None) -> None:
        super().__init__(text)
        self.retry_ns = retry_ns


class RefusedPod(NamedTuple):
    """A pod that was not created; `by_admission`: not only because it exists already."""

    message: str
    by_admission: bool
    retry_ns: int | None = None

    @classmethod
    def of(cls, name: str, error: AdmissionError | FieldError) -> RefusedPod:
        """Return the refusal of a pod of that name, in the API server's words."""
        if isinstance(error, AdmissionError):
            return cls(f'pods "{name}" is forbidden: {error}', True, error.retry_ns)
        return cls(f'Pod "{name}" is invalid: {error}', True)
