"""The recorded scripts of upstream's eviction manager.

They lie outside the repository, in the folder `shared` beside it; without them, tests skip.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replay.conform.vectors import Json, read_vectors

GOLDEN = Path(__file__).resolve().parents[1].parent / "shared" / "golden"


def scripts(mode: str) -> Iterator[Json]:
    """Yield the scripts recorded of the kubelet `mode`; skip the test where they are missing."""
    path = GOLDEN / f"eviction-{mode}-dev.jsonl.gz"
    if not path.exists():
        pytest.skip(f"the shared golden vectors are not here ({path.name})")
    yield from read_vectors(path)
