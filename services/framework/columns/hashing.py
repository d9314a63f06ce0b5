"""The keyed hash that breaks ties, so that a choice follows from identities alone.

`node_hash` of each node and `attempt_hash` of (seed, pod UID, attempt) are 64 bits of BLAKE2b;
their sum goes through splitmix64's finaliser, and the node with the smallest result wins. Two
runs that differ in one pod, one node or one attempt therefore differ in its consequences only.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray


@lru_cache(maxsize=1 << 17)
def node_hash(name: str) -> int:
    """Return a node's share of the tie-break, an unsigned 64-bit number."""
    return _bits(name.encode())


def attempt_hash(seed: int, uid: str, attempt_number: int) -> int:
    """Return a scheduling attempt's share of the tie-break, an unsigned 64-bit number."""
    return _bits(f"{seed}\0{uid}\0{attempt_number}".encode())


def _bits(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "little")


def all_mixed(nodes: Sequence[str], attempt_bits: int) -> NDArray[np.uint64]:
    """Return the rank of each node among equals, the smallest wins: uint64[nodes].

    `attempt_bits` is the attempt's `attempt_hash`.

    Source: S. Vigna, splitmix64.c (public domain), the output function.
    """
    bits = np.fromiter(map(node_hash, nodes), dtype=np.uint64, count=len(nodes))
    bits += np.uint64(attempt_bits)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return bits ^ (bits >> np.uint64(31))
