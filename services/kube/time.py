"""Units of time in ns, and durations ("1m30s") in Go's notation.

Source: Go's time package, ParseDuration and Duration.String.
"""

from __future__ import annotations

import re

MICROSECOND_NS = 1_000
MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS
DAY_NS = 24 * HOUR_NS
UNITS_NS = {
    "ns": 1,
    "us": MICROSECOND_NS,
    "\u00b5s": MICROSECOND_NS,
    "\u03bcs": MICROSECOND_NS,
    "ms": MILLISECOND_NS,
    "s": SECOND_NS,
    "m": MINUTE_NS,
    "h": HOUR_NS,
}
"""Go's units; microseconds may be written with the micro sign or the Greek letter mu."""
_PART = re.compile(r"([0-9]*)(?:(\.)([0-9]*))?([^0-9.]*)")
_DURATION_NS_MAX = 2**63 - 1


class DurationError(ValueError):
    """A text is not a duration; the message is the same as Go's."""


def parse_duration_ns(text: str) -> int:
    """Parse a duration and return it in ns. Raises DurationError with Go's message."""
    body = text[1:] if text[:1] in {"-", "+"} else text
    if body == "0":
        return 0
    if not body:
        raise DurationError(f"time: invalid duration {_quoted(text)}")
    total_ns, position = 0, 0
    while position < len(body):
        part = _PART.match(body, position)
        assert part is not None, "every group of the pattern may be empty"  # noqa: S101 - an invariant
        total_ns += _part_ns(part, text)
        position = part.end()
        if total_ns > _DURATION_NS_MAX:
            raise DurationError(f"time: invalid duration {_quoted(text)}")
    return -total_ns if text[0] == "-" else total_ns


def format_duration(duration_ns: int) -> str:
    """Print a duration of 0 or more ns as Go does: "0s", "1.5ms", "1m30s"."""
    if duration_ns == 0:
        return "0s"
    if duration_ns < SECOND_NS:
        unit = next(
            candidate for candidate in ("ms", "us", "ns") if duration_ns >= UNITS_NS[candidate]
        )
        name = "\u00b5s" if unit == "us" else unit
        return f"{_decimal(duration_ns, UNITS_NS[unit])}{name}"
    minutes, rest_ns = divmod(duration_ns, 60 * SECOND_NS)
    hours, minutes = divmod(minutes, 60)
    head = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{head}{_decimal(rest_ns, SECOND_NS)}s"


def _part_ns(part: re.Match[str], text: str) -> int:
    whole, _, fraction, unit = part.groups()
    if not whole and not fraction:
        raise DurationError(f"time: invalid duration {_quoted(text)}")
    if not unit:
        raise DurationError(f"time: missing unit in duration {_quoted(text)}")
    if unit not in UNITS_NS:
        raise DurationError(f"time: unknown unit {_quoted(unit)} in duration {_quoted(text)}")
    digits = fraction or ""
    # As Go does, truncate the product of floats; exact arithmetic would round differently.
    fraction_ns = int(int(digits or "0") * (UNITS_NS[unit] / 10 ** len(digits)))
    return int(whole or "0") * UNITS_NS[unit] + fraction_ns


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    width = len(str(unit)) - 1
    digits = f"{rest:0{width}d}".rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
