"""Files of golden vectors, all of whose lines can be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from replay.conform.vectors.vectors import Json, UnreadableVector, read_lines


def read_vectors(path: Path) -> Iterator[Json]:
    """Yield the JSON objects of a file, one a line."""
    for line in read_lines(path):
        assert not isinstance(line, UnreadableVector), f"{path}, line {line.line}: {line.reason}"
        yield line
