"""The parts of a replayed cluster: objects with state that a checkpoint saves.

The annotated attributes of a part's class are its state: a checkpoint has these attributes and no
others (docs/decisions/0024). They begin without entries, as 0, False, "" or None; a constructor
sets those that begin otherwise. All other attributes connect a part with others, or never change.
"""

from __future__ import annotations

from collections import Counter, deque
from types import NoneType
from typing import get_args, get_origin, get_type_hints

_EMPTY = frozenset({dict, list, set, deque, Counter, int, bool, str})


class Part:
    """An object whose annotated attributes are its state."""

    def __init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            kind = get_origin(hint) or hint
            if NoneType in get_args(hint):
                setattr(self, name, None)
            elif kind in _EMPTY:
                setattr(self, name, kind())
