"""Real services for the end-to-end tests: one set of child processes for a test session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def services() -> Iterator[EmbeddedServices]:
    """Start queue, scheduler and eviction as processes of their own, on free ports."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "gen")])
    try:
        with EmbeddedServices() as embedded:
            yield embedded
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
