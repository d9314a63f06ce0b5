"""A short run of the torture by messages."""

from __future__ import annotations

import pytest

from tests.torture.messages import CONTRACTS, EPISODE, torture


@pytest.mark.parametrize("service", list(CONTRACTS))
def test_no_message_ends_breaks_or_fills_a_service(service: str) -> None:
    """Random, mutated and misplaced ones; a valid session beside them is not disturbed."""
    codes = torture([service], range(50), seed=20)
    assert codes.total() == 50 * EPISODE
    assert codes["OK"] > EPISODE
    assert codes["INVALID_ARGUMENT"] > EPISODE


@pytest.mark.e2e
def test_nor_does_one_that_comes_over_a_socket() -> None:
    """With bytes that are no messages."""
    assert torture(list(CONTRACTS), range(9), seed=21, over_socket=True, deadline_s=60)["OK"]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_no_message_of_many_does(seed: int) -> None:
    """A hundred thousand of each seed."""
    torture(list(CONTRACTS), range(100_000 // EPISODE), seed=seed)
