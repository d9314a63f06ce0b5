"""What can go wrong with a service behind a replay."""

from __future__ import annotations


class BackendError(RuntimeError):
    """A service that cannot be started or reached, refuses, or stops answering; for people."""


class ConfigurationError(BackendError):
    """A service that refuses the configuration it was given; for people."""
