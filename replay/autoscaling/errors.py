"""The error of a file of node groups."""

from __future__ import annotations

from replay.errors import ReplayError


class GroupsError(ReplayError, ValueError):
    """Node groups that cannot be used; the text says which field, and is for users."""
