"""Draws that depend on the seed and on what is drawn, never on what was drawn before.

A draw for pod 17 stays the same whatever is drawn for other pods, so two workloads that differ in
one option differ in its consequences only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

_T = TypeVar("_T")
_SPAN = 1 << 64


class Draw:
    """Keyed draws of one seed."""

    def __init__(self, seed: int) -> None:
        self._key = (seed % _SPAN).to_bytes(8, "big")

    def share(self, *what: object) -> float:
        """Return a number in [0, 1), evenly."""
        return (self._number(what) >> 11) / (1 << 53)

    def below(self, limit: int, *what: object) -> int:
        """Return an integer in [0, limit), evenly."""
        return self._number(what) * limit // _SPAN

    def between(self, low: int, high: int, *what: object) -> int:
        """Return an integer in [low, high], evenly."""
        return low + self.below(high - low + 1, *what)

    def weighted(self, items: Sequence[tuple[_T, int]], *what: object) -> _T:
        """Return one of the items by its weight."""
        at = self.below(sum(weight for _, weight in items), *what)
        for item, weight in items:
            at -= weight
            if at < 0:
                return item
        raise ValueError("nothing to draw from")

    def exponential_ns(self, mean_ns: int, *what: object) -> int:
        """Return a duration, ns, of exponential distribution, at most eight times its mean."""
        # Rounded to milliseconds: the last bits of a logarithm differ between platforms.
        unit = min(8.0, -math.log1p(-self.share(*what)))
        return max(1, round(unit * 1000)) * mean_ns // 1000

    def _number(self, what: tuple[object, ...]) -> int:
        text = "\x00".join(map(str, what)).encode()
        digest = blake2b(text, digest_size=8, key=self._key, person=b"generate").digest()
        return int.from_bytes(digest, "big")
