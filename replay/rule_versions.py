"""Chooses the default rules of a replay: those of the recorded cluster's version."""

from __future__ import annotations

import re

NEWEST_RULES = "v1.36"
"""The rules where no version is recorded."""

_BEFORE = "v1.34"
_NEWEST = (1, 36)
_VERSION = re.compile(r"v(\d+)\.(\d+)")


def rules_of(kubernetes_version: str) -> str:
    """Return the rules that are nearest to a version such as "v1.35.1"; "" for an unknown one."""
    match = _VERSION.match(kubernetes_version)
    if match is None:
        return ""
    return NEWEST_RULES if (int(match[1]), int(match[2])) >= _NEWEST else _BEFORE
