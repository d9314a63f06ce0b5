"""Golden scheduling scenarios."""

from __future__ import annotations

from collections.abc import Iterator

from replay.conform.scheduling import Json
from replay.conform.vectors import RECORDED
from tests.vectors import read_vectors


def whole_vectors(name: str) -> Iterator[Json]:
    """Yield the vectors of a file."""
    yield from read_vectors(RECORDED / name)


def vectors(name: str) -> Iterator[tuple[Json, Json]]:
    """Yield the scenarios of a file with what is expected, what upstream documents first."""
    for vector in whole_vectors(name):
        yield vector["scenario"], vector.get("expectedDocumented") or vector["expected"]
