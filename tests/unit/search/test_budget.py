"""The budget of a search: no replay begins after its time, by a clock that the test moves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import cast

import pytest

from replay.search.front import Point
from replay.search.line import LineSearch, Outcome
from replay.search.runs import Budget, SearchRuns, Tried, searched

MINUTE_NS = 60 * 10**9


class _Line(LineSearch):
    """The search along one knob, as points."""

    def ask(self) -> list[Point]:  # type: ignore[override]
        return [(place,) for place in super().ask()]

    def tell(self, point: Point, outcome: Outcome) -> None:  # type: ignore[override]
        super().tell(point[0], outcome)


class _Runs:
    """Stands for SearchRuns: replays take a minute, all of a round at once; `made` were made."""

    def __init__(self, workers: int, made: Sequence[int]) -> None:
        self.workers = workers
        self.now_ns = 0
        self.rounds = list[list[int]]()
        self._made: set[Point] = {(place,) for place in made}

    def missing(self, points: Sequence[Point]) -> int:
        """Return how many were not made yet."""
        return len({*points} - self._made)

    def run(self, points: Sequence[Point]) -> list[Tried]:
        """Make those that were not made yet."""
        self.rounds.append([point[0] for point in points])
        self.now_ns += MINUTE_NS if self.missing(points) else 0
        self._made |= {*points}
        return [Tried(point=point, shown=(), checks=(), figures={}, runs=()) for point in points]

    def outcome(self, tried: Tried) -> Outcome:
        """Return that it holds, as everywhere."""
        return Outcome(holds=tried.holds)


def rounds_of(budget: Budget, workers: int, made: Sequence[int] = ()) -> list[list[int]]:
    """Return the rounds in which a search for a border that is nowhere tries its five values."""
    runs = _Runs(workers, made)
    found = searched(
        _Line(40), cast("SearchRuns", runs), budget, lambda _points: None, lambda: runs.now_ns
    )
    assert [tried.point[0] for tried in found] == [*chain(*runs.rounds)]
    return runs.rounds


def test_without_a_limit_on_time_a_round_is_not_split() -> None:
    """All its replays are begun together."""
    assert rounds_of(Budget(), workers=2) == [[0, 10, 20, 29, 39]]


@pytest.mark.parametrize(
    ("minutes", "workers", "tried"),
    [
        (0, 1, [[0]]),
        (1, 2, [[0, 10], [20, 29]]),
        (2, 1, [[0], [10], [20]]),
        (9, 2, [[0, 10], [20, 29], [39]]),
    ],
)
def test_no_replay_begins_after_the_time(
    minutes: int, workers: int, tried: list[list[int]]
) -> None:
    """As many as there are workers begin together, and one minute goes by."""
    assert rounds_of(Budget(max_ns=minutes * MINUTE_NS), workers) == tried


def test_replays_that_were_made_before_are_read_after_the_time_too() -> None:
    """They cost nothing; the first that would have to be made ends the search."""
    found = rounds_of(Budget(max_ns=0), workers=1, made=[10, 20, 39])
    assert found == [[0], [10], [20]]
