"""What later versions than v1.34 decide otherwise, by their release notes."""

from __future__ import annotations

import re

_VERSION = re.compile(r"v(\d+)\.(\d+)")
RULES = "v1.34"
"""The rules that the changes below are changes of."""

CHANGED_RULES = "v1.36"
_CHANGED_IN = (1, 36)
CHANGE = (
    "NodeResourcesBalancedAllocation scores the change of a node's balance "
    "(v1.36, kubernetes#135573)"
)


def changed_rules(kubernetes_version: str, rules: str) -> str:
    """Return the rules that a recording of that version is also judged by, "" for none."""
    match = _VERSION.match(kubernetes_version)
    if match is None or rules not in {"", RULES}:
        return ""
    return CHANGED_RULES if (int(match[1]), int(match[2])) >= _CHANGED_IN else ""
