"""A short run of the attack by hostile services."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.torture.hostile import BEHAVIOURS, attacks

_NAMES = list(BEHAVIOURS)


def number_of(service: int, behaviour: str) -> int:
    """Return the number of an attack by the scheduler (0), the queue (1) or the eviction (2)."""
    return service * len(_NAMES) + _NAMES.index(behaviour)


def attacked(numbers: Sequence[int], seed: int) -> Counter[str]:
    """Run attacks in a process of their own: its children are those whose memory is measured."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(attacks, numbers, seed).result()


@pytest.mark.e2e
def test_a_hostile_service_ends_a_replay_with_one_error() -> None:
    """In bounded time and memory, and the next replay uses the same folder."""
    chosen = [number_of(0, "endless"), number_of(1, "huge"), number_of(2, "foreign")]
    ended = attacked(chosen, seed=1)
    assert ended.total() == len(chosen)
    assert ended["refused"] >= 1


@pytest.mark.long
def test_no_hostile_service_does_more() -> None:
    """Each behaviour of each service."""
    assert attacked(range(3 * len(_NAMES)), seed=2).total() == 3 * len(_NAMES)
