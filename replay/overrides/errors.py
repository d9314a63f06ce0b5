"""What is wrong with an override."""

from __future__ import annotations

from collections.abc import Iterable

_SHOWN = 8


class OverrideError(ValueError):
    """An override that cannot be made, or would touch nothing; the text says what there is."""


def listed(names: Iterable[str], nothing: str) -> str:
    """Return some names for a message, in their order; `nothing` where there are none."""
    known = sorted(names)
    if not known:
        return nothing
    more = len(known) - _SHOWN
    return ", ".join(known[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
