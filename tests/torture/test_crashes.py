"""A power cut at any moment leaves a run that goes on, or is whole, or has not begun."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.torture.crashes import Crashed, workload

_TRIED = 25


@pytest.mark.e2e
def test_a_power_cut_at_any_moment_loses_nothing_that_was_promised(tmp_path: Path) -> None:
    """Some of the folders that a disk may hold; the long test tries all of them."""
    crashed = Crashed(tmp_path, workload(1, pods=40))
    assert crashed.is_complete(), "something else writes into the run's folder"
    outcomes = set()
    for number, files in crashed.some_folders(_TRIED, Random(7)):  # noqa: S311 - a test's choices
        outcome = crashed.outcome(number, files)
        assert not outcome.startswith("BAD"), (number, outcome)
        outcomes.add(outcome)
    assert outcomes == {"not begun", "resumed", "whole"}
