"""Durations as people write them, on command lines and in annotations: "1h30m", "0.5d"."""

from __future__ import annotations

import re

from services.kube.time import DAY_NS, UNITS_NS

_UNITS_NS = {**UNITS_NS, "d": DAY_NS}
_MOST_NS = 100 * 366 * DAY_NS
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ns|us|ms|s|m|h|d)")


def duration_ns(text: str) -> int:
    """Return a text such as "1h30m", "90s" or "0.5d" in ns, at most a hundred years.

    Unlike Go's durations (services.kube.time) it may have days, and no sign or empty number.
    Raises ValueError, with a text for users.
    """
    total_ns, end = 0.0, 0
    for match in _PART.finditer(text):
        if match.start() != end:
            break
        total_ns += float(match[1]) * _UNITS_NS[match[2]]
        end = match.end()
    if end != len(text) or not text:
        raise ValueError(f"{text!r} is not a duration; write 90s, 1h30m or 500ms")
    if total_ns > _MOST_NS:
        raise ValueError(f"{text!r} is longer than a hundred years")
    return round(total_ns)


def shown(length_ns: int) -> str:
    """Return a duration as `duration_ns` reads it, in whole units from days to ns."""
    if length_ns == 0:
        return "0s"
    parts, rest_ns = [], length_ns
    for unit in ("d", "h", "m", "s", "ms", "us", "ns"):
        number, rest_ns = divmod(rest_ns, _UNITS_NS[unit])
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts)
