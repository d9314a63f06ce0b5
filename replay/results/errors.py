"""What is wrong with a run directory."""

from __future__ import annotations


class RunError(ValueError):
    """A run directory that cannot be made or read; the text is for people."""
