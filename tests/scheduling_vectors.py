"""Golden scheduling scenarios; they lie beside the repository, and tests skip without them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replay.conform.scheduling import Json
from replay.conform.vectors import read_vectors

FOLDER = Path(__file__).resolve().parents[1] / ".." / "shared" / "golden"


def whole_vectors(name: str) -> Iterator[Json]:
    """Yield the vectors of a file."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"the golden vectors are not beside the repository: {path}")
    yield from read_vectors(path)


def vectors(name: str) -> Iterator[tuple[Json, Json]]:
    """Yield the scenarios of a file with what is expected, what upstream documents first."""
    for vector in whole_vectors(name):
        yield vector["scenario"], vector.get("expectedDocumented") or vector["expected"]
