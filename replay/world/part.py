"""The parts of a replayed cluster: objects with state that a checkpoint saves.

The annotated attributes of a part's class are its state: a checkpoint has these attributes and no
others (docs/decisions/0024). They begin without entries, as 0, False, "" or None; a constructor
sets those that begin otherwise. All other attributes connect a part with others, or never change.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

_EMPTY = frozenset({dict, list, set, deque, Counter, int, bool, str})


class Part:
    """An object whose annotated attributes are its state."""

    def __init__(self) -> None:
        kind: Any = type(self)
        for name, make in _first_values(kind).items():
            setattr(self, name, make())


@cache
def _first_values(kind: type) -> Mapping[str, Callable[[], Any]]:
    """Return what makes the first value of each attribute that has no constructor's."""
    made = dict[str, Callable[[], Any]]()
    for name, hint in get_type_hints(kind).items():
        origin = get_origin(hint) or hint
        if NoneType in get_args(hint):
            made[name] = NoneType
        elif origin in _EMPTY:
            made[name] = origin
    return made
