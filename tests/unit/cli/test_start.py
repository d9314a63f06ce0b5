"""What a command imports before it does anything: its start is most of a short command's time."""

from __future__ import annotations

import subprocess
import sys

import pytest

LEFT_OUT = ("grpc", "opentelemetry", "numpy", "numba", "replay.importers.registry")
"""What a command that shows a run has no use for."""


@pytest.mark.parametrize("command", ["get", "verify"])
def test_commands_that_read_a_run_do_not_import_the_replay(command: str) -> None:
    """Neither gRPC nor the importers of other formats."""
    code = (
        f"import sys; import replay.cli.commands.{command}\n"
        f"print(*(name for name in {LEFT_OUT!r} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []
