"""A short run of the torture by damaged checkpoints."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.torture.samples import ROOT
from tests.torture.states import sample, torture


def test_a_damaged_checkpoint_is_read_or_refused_and_does_nothing_else() -> None:
    """Its world, its position in the run's files, and the file itself."""
    sample()
    outcome = torture(range(1, 401))
    assert outcome.failures == {}
    assert outcome.counts["refused"] > 100
    assert outcome.counts["read"] > 10


@pytest.mark.long
def test_many_damaged_checkpoints_are() -> None:
    """As the command reads them."""
    command = [sys.executable, "-m", "tests.torture.states", "--count", "5000", "--seed", "500"]
    subprocess.run(command, cwd=ROOT, check=True)
