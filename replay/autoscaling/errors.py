"""Errors of node-group files."""

from __future__ import annotations

from replay.errors import ReplayError


class GroupsError(ReplayError, ValueError):
    """Raised for an invalid node-group definition; the message names the field."""
