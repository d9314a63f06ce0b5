"""A short run of the torture by damaged files."""

from __future__ import annotations

import subprocess
import sys
from random import Random

import pytest

from tests.torture.files import damaged_file, torture
from tests.torture.samples import ROOT, samples


def test_a_damaged_file_is_read_or_refused() -> None:
    """Of every format; in a process of its own, within its time and memory."""
    found = torture(range(1, 201), show=lambda _: None)
    assert found.failures == {}
    assert found.counts.total() == 200


def test_a_number_makes_the_same_file_again() -> None:
    """So that a failure can be repeated."""
    sample = samples()["manifests"]
    one, other = (damaged_file(sample, Random(7)) for _ in range(2))  # noqa: S311 - a test's choices
    assert one == other != sample.file


@pytest.mark.long
def test_many_damaged_files_are() -> None:
    """As the command reads them."""
    command = [sys.executable, "-m", "tests.torture.files", "--count", "2000", "--seed", "500"]
    subprocess.run(command, cwd=ROOT, check=True)
