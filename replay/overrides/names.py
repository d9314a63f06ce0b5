"""Names in error messages: the names that a trace has, and the one most like a wrong name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_SHOWN = 8


def shown_names(names: Iterable[str], default: str) -> str:
    """Return up to eight sorted names as a text; `default` if there are no names."""
    ordered = sorted(names)
    if not ordered:
        return default
    more = len(ordered) - _SHOWN
    return ", ".join(ordered[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def closest(name: str, names: Iterable[str]) -> str:
    """Return "; did you mean X?" with the element of `names` most like `name`; "" if none is."""
    close = difflib.get_close_matches(name, sorted(names), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def unknown_name(kind: str, name: str, names: Iterable[str]) -> str:
    """Return the message that a trace has no such object, with the names that it has."""
    names = list(names)
    if not names:
        return f"the trace has no {kind}"
    plural = f"{kind}es" if kind.endswith("s") else f"{kind}s"
    return (
        f"the trace has no {kind} {name}{closest(name, names)}; its {plural} are "
        f"{shown_names(names, '')}"
    )
