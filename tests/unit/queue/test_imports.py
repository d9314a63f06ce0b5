"""The queue's process imports the plugins' events and hints, but no kernels."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import services.queue.core
from services.framework.plugins.events import IN_TREE

CORE = Path(services.queue.core.__file__).parent


def test_the_queue_imports_no_kernels() -> None:
    """Events and hints are importable without the snapshot, numpy and numba."""
    code = (
        "import sys; import services.queue.servicer; "
        "print(*sorted({'numpy', 'numba', 'services.framework.snapshot.snapshot', "
        "'services.framework.plugin'} & sys.modules.keys()))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == ""


def test_the_queues_core_names_no_plugin() -> None:
    """What one plugin needs of the queue, its room declares."""
    names = re.compile(rf'"({"|".join({row.plugin for row in IN_TREE})})"')
    naming = {path.name for path in CORE.rglob("*.py") if names.search(path.read_text("utf-8"))}
    assert not naming
