"""Real services for the end-to-end tests, once for a session: as child processes, or in this one.

Where a test is not about processes or the wire it takes `here`: the same servicers, messages and
bytes (test_in_process.py) in less time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from tests.e2e.commands import reprieve
from tests.extenders import ANY_EXTENDER

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def services() -> Iterator[EmbeddedServices]:
    """Start all services as processes of their own, on free ports."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "gen")])
    try:
        with EmbeddedServices(configurations=[ANY_EXTENDER], autoscaler=True) as embedded:
            yield embedded
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="session")
def long_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a trace whose replay takes long enough to be interrupted."""
    path = tmp_path_factory.mktemp("long") / "x.ktr"
    reprieve(path.parent, "generate", "-o", path.name, "--pods", "20000", "--nodes", "300")
    return path


@pytest.fixture(scope="session")
def here() -> Iterator[EmbeddedServices]:
    """Serve queue, scheduler, eviction and autoscaler within this process."""
    with EmbeddedServices(
        in_process=True, configurations=[ANY_EXTENDER], autoscaler=True
    ) as embedded:
        yield embedded
