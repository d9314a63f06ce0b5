"""A flipped bit in a file of a run is named, refused or harmless, and never an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.crashes import workload
from tests.torture.flips import Damaged, flips

_FLIPS = 4


@pytest.mark.e2e
def test_no_flipped_bit_is_taken_for_what_was_written(tmp_path: Path) -> None:
    """In a run that broke off, which is resumed, and in a finished one, which is asked."""
    damaged = Damaged(tmp_path, workload(1, pods=40))
    found = list(flips(damaged, range(_FLIPS)))
    assert len(found) == 2 * _FLIPS
    assert not [result for result in found if result[-1].startswith("BAD")]
