"""Lengths of time as people write them: "90s", "1h30m", "2.5ms"."""

from __future__ import annotations

import re

_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60 * 1_000_000_000,
    "h": 3600 * 1_000_000_000,
    "d": 86_400 * 1_000_000_000,
}
_MOST_NS = 100 * 366 * _UNITS_NS["d"]
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ns|us|ms|s|m|h|d)")


def duration_ns(text: str) -> int:
    """Return ns. Raises ValueError, with a text for people."""
    total_ns, end = 0.0, 0
    for match in _PART.finditer(text):
        if match.start() != end:
            break
        total_ns += float(match[1]) * _UNITS_NS[match[2]]
        end = match.end()
    if end != len(text) or not text:
        raise ValueError(f"{text!r} is no length of time; write 90s, 1h30m or 500ms")
    if total_ns > _MOST_NS:
        raise ValueError(f"{text!r} is longer than a hundred years")
    return round(total_ns)


def shown(at_ns: int) -> str:
    """Return a length of time as it would be written, in the largest units that fit."""
    if at_ns == 0:
        return "0s"
    parts, left = [], at_ns
    for unit in ("d", "h", "m", "s", "ms", "us", "ns"):
        number, left = divmod(left, _UNITS_NS[unit])
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts)
