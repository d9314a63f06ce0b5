"""The recorded scripts of upstream's eviction manager."""

from __future__ import annotations

from collections.abc import Iterator

from replay.conform.vectors import RECORDED, Json
from tests.vectors import read_vectors


def scripts(mode: str) -> Iterator[Json]:
    """Yield the scripts recorded of the kubelet `mode`."""
    yield from read_vectors(RECORDED / f"eviction-{mode}.jsonl.gz")
