"""Names, UIDs and random draws: keyed hashes of their identity, never a generator's output.

Two runs of one trace therefore make the same pods, even where the runs differ otherwise. A random
number is a keyed hash of the seed and of its purpose. No number depends on the numbers drawn
before. A number for pod 17 is the same whatever is drawn for other pods, so that two workloads that
differ in one option differ only in its consequences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

_NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def object_uid(kind: str, namespace: str, name: str, owner_uid: str = "", ordinal: int = 0) -> str:
    """Return the UID, in the form of a UUID, of the object that the arguments identify."""
    text = _digest(kind, namespace, name, owner_uid, str(ordinal)).hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


def name_suffix(owner_uid: str, ordinal: int, length: int = 5) -> str:
    """Return `length` letters of the alphabet of Kubernetes' generated names.

    Source: kubernetes v1.34 apimachinery pkg/util/rand/rand.go, alphanums (without vowels and
    easily mistaken digits).
    """
    number = int.from_bytes(_digest("suffix", owner_uid, str(ordinal)), "big")
    letters = []
    for _ in range(length):
        number, index = divmod(number, len(_NAME_LETTERS))
        letters.append(_NAME_LETTERS[index])
    return "".join(letters)


def _digest(*parts: str) -> bytes:
    return blake2b("\x00".join(parts).encode(), digest_size=16, person=b"reprieve").digest()


_T = TypeVar("_T")
_SPAN = 1 << 64


class KeyedRandom:
    """The random numbers of one seed; the arguments `what` identify a number."""

    def __init__(self, seed: int) -> None:
        self._key = (seed % _SPAN).to_bytes(8, "big")

    def share(self, *what: object) -> float:
        """Return a number in [0, 1), uniformly distributed."""
        return (self._number(what) >> 11) / (1 << 53)

    def below(self, limit: int, *what: object) -> int:
        """Return an integer in [0, limit), uniformly distributed."""
        return self._number(what) * limit // _SPAN

    def between(self, low: int, high: int, *what: object) -> int:
        """Return an integer in [low, high], uniformly distributed."""
        return low + self.below(high - low + 1, *what)

    def weighted(self, items: Sequence[tuple[_T, int]], *what: object) -> _T:
        """Return an item with a probability in proportion to its weight. Raises ValueError."""
        at = self.below(sum(weight for _, weight in items), *what)
        for item, weight in items:
            at -= weight
            if at < 0:
                return item
        raise ValueError("no item has a weight")

    def exponential_ns(self, mean_ns: int, *what: object) -> int:
        """Return an exponentially distributed duration, ns, of at most eight times its mean."""
        # Rounded to milliseconds: the last bits of a logarithm differ between platforms.
        unit = min(8.0, -math.log1p(-self.share(*what)))
        return max(1, round(unit * 1000)) * mean_ns // 1000

    def _number(self, what: tuple[object, ...]) -> int:
        text = "\x00".join(map(str, what)).encode()
        digest = blake2b(text, digest_size=8, key=self._key, person=b"generate").digest()
        return int.from_bytes(digest, "big")
