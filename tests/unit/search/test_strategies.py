"""The strategies against brute force, on generated problems: what they name is so."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from random import Random

import pytest

from replay.search.front import FrontSearch, Point
from replay.search.line import LineSearch, Outcome

PROBLEMS = range(30)


def searched(search: LineSearch, outcome: Callable[[int], Outcome]) -> int:
    """Run a search to its end; return the number of positions that it asked for."""
    asked: list[int] = []
    while places := search.ask():
        asked += places
        for place in places:
            search.tell(place, outcome(place))
    assert len(set(asked)) == len(asked), "a position is asked for once"
    return len(asked)


def refined(search: FrontSearch, outcome: Callable[[Point], Outcome]) -> int:
    """Run a search to its end; return the number of points that it asked for."""
    asked: list[Point] = []
    while points := search.ask():
        asked += points
        for point in points:
            search.tell(point, outcome(point))
    assert len(set(asked)) == len(asked), "a point is asked for once"
    return len(asked)


@pytest.mark.parametrize("seed", PROBLEMS)
def test_a_monotone_check_has_its_border_in_a_logarithm_of_the_range(seed: int) -> None:
    """Also where it holds above the border, nowhere or everywhere."""
    random = Random(seed)  # noqa: S311 - chance makes the cases
    size = random.randrange(1, 400)
    first = random.choice((0, size, *[random.randrange(size + 1)] * 4))
    holds_below = random.random() < 0.5
    truth = [(place < first) == holds_below for place in range(size)]
    search = LineSearch(size)
    asked = searched(search, lambda place: Outcome(holds=truth[place]))
    borders = [(border.holds, border.fails) for border in search.borders()]
    inside = 0 < first < size
    pair = (first - 1, first) if holds_below else (first, first - 1)
    assert borders == ([pair] if inside else [])
    assert asked <= 5 + math.ceil(math.log2(size + 1)) + 2


@pytest.mark.parametrize("seed", PROBLEMS)
def test_each_border_of_any_check_is_one_and_exhaustive_finds_all_and_the_optimum(
    seed: int,
) -> None:
    """Outcomes change several times; what is between tried values is not claimed."""
    random = Random(seed)  # noqa: S311 - chance makes the cases
    size = random.randrange(2, 200)
    changes = sorted(random.sample(range(size), min(size, random.randrange(1, 7))))
    truth = [sum(change <= place for change in changes) % 2 == 0 for place in range(size)]
    figures = [random.randrange(1000) for _ in range(size)]

    def outcome(place: int) -> Outcome:
        return Outcome(holds=truth[place], objectives=(figures[place],))

    every = [
        (one, other) if truth[one] else (other, one)
        for one, other in itertools.pairwise(range(size))
        if truth[one] != truth[other]
    ]
    search = LineSearch(size, minimises=random.random() < 0.5)
    searched(search, outcome)
    pairs = [(border.holds, border.fails) for border in search.borders()]
    assert set(pairs) <= set(every)
    assert all(border.is_adjacent for border in search.borders())
    if truth[0] != truth[-1]:
        assert pairs
    search = LineSearch(size, exhaustive=True)
    assert searched(search, outcome) == size
    assert [(border.holds, border.fails) for border in search.borders()] == every
    holding = [place for place in range(size) if truth[place]]
    assert search.best() == min(holding, key=lambda place: (figures[place], place), default=None)


def test_a_border_is_looked_at_from_both_sides() -> None:
    """Its neighbours are tried, so that a single value that differs there is found."""
    truth = [place < 40 or place == 41 for place in range(100)]
    search = LineSearch(100)
    searched(search, lambda place: Outcome(holds=truth[place]))
    assert [(border.holds, border.fails) for border in search.borders()] == [
        (39, 40), (41, 40), (41, 42),
    ]  # fmt: skip


def test_the_best_value_has_worse_neighbours() -> None:
    """Around the best value that was tried the search goes on until both neighbours were tried."""
    search = LineSearch(101, minimises=True)
    asked = searched(search, lambda place: Outcome(holds=True, objectives=((place - 30) ** 2,)))
    assert search.best() == 30
    assert {29, 31} <= set(search.outcomes)
    assert asked < 30


def test_a_guess_replaces_the_bisection() -> None:
    """A good guess is the border with two positions beside the first; a bad one costs little."""
    search = LineSearch(10_000, first=[0])
    search.suggest(417, 418)
    asked = searched(search, lambda place: Outcome(holds=place <= 417))
    assert asked == 5  # the first, the guess, and the border's neighbours
    assert [(border.holds, border.fails) for border in search.borders()] == [(417, 418)]
    search = LineSearch(10_000, first=[0])
    search.suggest(10, 11)
    assert searched(search, lambda place: Outcome(holds=place <= 417)) < 25
    assert [(border.holds, border.fails) for border in search.borders()] == [(417, 418)]


def grid(sizes: Point) -> list[Point]:
    """Return every point."""
    return list(itertools.product(*map(range, sizes)))


@pytest.mark.parametrize("seed", PROBLEMS)
def test_the_front_of_monotone_checks_is_that_of_all_points(seed: int) -> None:
    """Whichever end of a knob is the tight one."""
    random = Random(seed)  # noqa: S311 - chance makes the cases
    sizes = tuple(random.randrange(1, 14) for _ in range(random.choice((2, 2, 3))))
    signs = [random.choice((1, -1)) for _ in sizes]
    weights = [random.randrange(1, 6) for _ in sizes]

    def load(point: Point) -> int:
        places = (
            place if sign > 0 else size - 1 - place
            for place, sign, size in zip(point, signs, sizes, strict=True)
        )
        return sum(weight * place**2 for weight, place in zip(weights, places, strict=True))

    limit = random.randrange(1 + max(map(load, grid(sizes))))
    search = FrontSearch(sizes, tighter=signs)
    refined(search, lambda point: Outcome(holds=load(point) <= limit))
    holding = [point for point in grid(sizes) if load(point) <= limit]
    tightness = {
        point: tuple(sign * place for sign, place in zip(signs, point, strict=True))
        for point in holding
    }
    front = [
        point
        for point in holding
        if not any(
            other != point
            and all(a >= b for a, b in zip(tightness[other], tightness[point], strict=True))
            for other in holding
        )
    ]
    assert search.front() == front


@pytest.mark.parametrize("signs", [(1, 1), (1, -1), (-1, 1), (-1, -1)])
def test_the_first_round_shows_which_end_of_a_knob_is_the_tight_one(signs: Point) -> None:
    """The end at which fewer points hold; the front is that of the given ends then."""

    def outcome(point: Point) -> Outcome:
        places = [p if sign > 0 else 9 - p for p, sign in zip(point, signs, strict=True)]
        return Outcome(holds=places[0] + places[1] <= 9)

    search = FrontSearch((10, 10))
    refined(search, outcome)
    assert search.tighter == signs
    given = FrontSearch((10, 10), tighter=signs)
    refined(given, outcome)
    assert search.front() == given.front()
    assert len(search.front()) == 10


@pytest.mark.parametrize("seed", PROBLEMS)
def test_the_cheapest_of_monotone_checks_is_the_cheapest_of_all_points(seed: int) -> None:
    """With fewer points than there are; prices grow with each knob."""
    random = Random(seed)  # noqa: S311 - chance makes the cases
    sizes = tuple(random.randrange(4, 16) for _ in range(random.choice((2, 3))))
    prices = [random.randrange(1, 20) for _ in sizes]
    gives = [random.randrange(1, 9) for _ in sizes]
    needs = random.randrange(1, 1 + sum(g * (s - 1) for g, s in zip(gives, sizes, strict=True)))

    def price(point: Point) -> float:
        return sum(cost * place for cost, place in zip(prices, point, strict=True))

    def outcome(point: Point) -> Outcome:
        return Outcome(holds=sum(g * p for g, p in zip(gives, point, strict=True)) >= needs)

    search = FrontSearch(sizes, tighter=[-1] * len(sizes), price=price)
    asked = refined(search, outcome)
    cheapest = min(price(point) for point in grid(sizes) if outcome(point).holds)
    best = search.best()
    assert best is not None
    assert price(best) == cheapest
    assert asked <= len(grid(sizes))
    for other in search.tighter_neighbours(best):
        assert not search.outcomes[other].holds


@pytest.mark.parametrize("seed", PROBLEMS)
def test_the_front_of_any_check_is_of_points_that_were_tried_and_exhaustive_is_the_front(
    seed: int,
) -> None:
    """By two figures, where outcomes are random."""
    random = Random(seed)  # noqa: S311 - chance makes the cases
    sizes = (random.randrange(2, 9), random.randrange(2, 9))
    truth = {
        point: Outcome(
            holds=random.random() < 0.7, objectives=(random.randrange(20), random.randrange(20))
        )
        for point in grid(sizes)
    }
    search = FrontSearch(sizes, minimises=True)
    refined(search, truth.__getitem__)
    assert search.front() == front_of(search.outcomes)
    search = FrontSearch(sizes, minimises=True, exhaustive=True)
    assert refined(search, truth.__getitem__) == len(truth)
    assert search.front() == front_of(truth)


def front_of(outcomes: Mapping[Point, Outcome]) -> list[Point]:
    """Return the points that hold and that no other one dominates, by two figures."""

    def figures(point: Point) -> tuple[float, float]:
        first, second = outcomes[point].objectives
        assert first is not None
        assert second is not None
        return first, second

    holding = [point for point, outcome in sorted(outcomes.items()) if outcome.holds]
    return [
        point
        for point in holding
        if not any(
            figures(other) != figures(point)
            and figures(other)[0] <= figures(point)[0]
            and figures(other)[1] <= figures(point)[1]
            for other in holding
        )
    ]
