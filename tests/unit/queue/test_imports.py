"""The queue's process imports what plugins state about events, and no kernels."""

from __future__ import annotations

import subprocess
import sys


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
