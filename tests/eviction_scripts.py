"""The recorded scripts of upstream's eviction manager."""

from __future__ import annotations

from collections.abc import Iterator

from replay.conform.vectors.vectors import RECORDED, Json
from tests.vectors import read_vectors


def scripts(rules: str) -> Iterator[Json]:
    """Yield the scripts recorded of the kubelet `rules`."""
    yield from read_vectors(RECORDED / f"eviction-{rules}.jsonl.gz")
