"""Errors of overrides."""

from __future__ import annotations


class OverrideError(ValueError):
    """An override that is invalid or has no effect; the text is for users."""


class NoEffectError(OverrideError):
    """A valid override that does not change this trace."""
