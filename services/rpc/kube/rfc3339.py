"""Parses and prints times in the format of RFC 3339, such as "2026-01-01T00:00:00Z".

Numbers are ns since the Unix epoch. The format covers only the years 1 to 9999.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from services.kube.time import SECOND_NS

_TIME = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:\d\d)", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=8192)
def parse_ns(text: str) -> int | None:
    """Return a time in ns; None for any other text. Digits below a ns are dropped."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    try:
        moment = datetime.fromisoformat(match[1] + match[3]).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    fraction_ns = int((match[2] or "").ljust(9, "0"))
    return (moment - _EPOCH) // timedelta(seconds=1) * SECOND_NS + fraction_ns


def text(at_ns: int, digits: int | None = 0) -> str:
    """Return a time in UTC; `digits` (0 to 9) of the second's fraction, None for as many as needed.

    Further digits are cut off. Raises OverflowError for a year outside 1 to 9999.
    """
    seconds, fraction_ns = divmod(at_ns, SECOND_NS)
    fraction = f".{fraction_ns:09d}"
    shown = fraction.rstrip(".0") if digits is None else fraction[: digits + 1] if digits else ""
    return f"{(_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]}{shown}Z"
