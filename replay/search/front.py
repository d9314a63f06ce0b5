"""The search over several knobs: the Pareto front of the points that hold, by refinement.

The points are a grid, one dimension a knob. Boxes of the grid whose corners have different outcomes
are halved along their longest side until they are single steps; then the neighbours of each point
of the front are tried. Where outcomes are monotone (once a check fails, it fails with any knob
further on), every border passes through boxes whose corners differ, and the front is that of all
points. Otherwise it is that of the points which were tried, and nothing more is claimed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from replay.search.line import Outcome

Point = tuple[int, ...]
"""A position on each knob."""
Box = tuple[Point, Point]
"""The corners of a box with the lowest and with the highest positions."""
_COARSE = {2: 3}
"""Positions a knob in the first round, by the number of knobs; 2, the ends, for more knobs."""


class FrontSearch:
    """Searches a grid for the front of the points that hold.

    minimises: the front is that of the smallest objectives. Otherwise it is that of the tightest
    points, none of which holds with a knob further on: `tighter` has +1 for a knob whose higher
    positions are tighter, and -1 for one whose lower ones are; None: as the first round shows.
    price: of each point, which a dearer knob never lowers: only the cheapest point that holds is
    looked for, and boxes that cannot be cheaper are left out.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        exhaustive: bool = False,
        minimises: bool = False,
        tighter: Sequence[int] | None = None,
        price: Callable[[Point], float] | None = None,
    ) -> None:
        self.sizes = tuple(sizes)
        self._minimises = minimises
        self._tighter = None if tighter is None else tuple(tighter)
        self._price = price
        self._outcomes: dict[Point, Outcome] = {}
        coarse = _COARSE.get(len(sizes), 2)
        ticks = [_ticks(size, coarse) for size in sizes]
        every: Iterable[Sequence[int]] = (range(size) for size in sizes)
        self._wanted = list(itertools.product(*(every if exhaustive else ticks)))
        self._boxes: list[Box] = [] if exhaustive else list(_boxes(ticks))

    @property
    def outcomes(self) -> Mapping[Point, Outcome]:
        """Return the outcome of each tried point, ascending."""
        return dict(sorted(self._outcomes.items()))

    def tell(self, point: Point, outcome: Outcome) -> None:
        """Receive the outcome at a point."""
        self._outcomes[point] = outcome

    def ask(self) -> list[Point]:
        """Return the points to try next, none of which needs another; [] at the end."""
        missing = self._missing(self._wanted)
        return missing or self._refined() or self._missing(self._beside_front())

    @property
    def tighter(self) -> tuple[int, ...]:
        """Return for each knob whether higher (+1) or lower (-1) positions are tighter."""
        if self._tighter is not None:
            return self._tighter
        signs = []
        for knob, size in enumerate(self.sizes):
            holds = [0, 0]
            for point in self._wanted:
                if point in self._outcomes and point[knob] in {0, size - 1}:
                    holds[point[knob] > 0] += self._outcomes[point].holds
            signs.append(-1 if holds[0] < holds[1] else 1)
        return tuple(signs)

    def front(self) -> list[Point]:
        """Return the points that hold and are not dominated by another one, ascending."""
        holding = [point for point, outcome in self.outcomes.items() if outcome.holds]
        merits = {point: self._merits(point) for point in holding}
        return [
            point
            for point in holding
            if not any(_dominates(merits[other], merits[point]) for other in holding)
        ]

    def best(self) -> Point | None:
        """Return the cheapest point of the front, or its first one by objectives; None: none holds.

        Of equally good points it is the first.
        """
        price = self._price
        if price is not None:
            holding = [point for point, outcome in self.outcomes.items() if outcome.holds]
            return min(holding, key=lambda point: (price(point), point), default=None)
        return min(self.front(), key=lambda point: self._outcomes[point].rank, default=None)

    def tighter_neighbours(self, point: Point) -> Iterator[Point]:
        """Yield the points one step further on a single knob."""
        for knob, sign in enumerate(self.tighter):
            place = point[knob] + sign
            if 0 <= place < self.sizes[knob]:
                yield (*point[:knob], place, *point[knob + 1 :])

    def _merits(self, point: Point) -> tuple[object, ...]:
        """Return what is compared with another point's; smaller is better."""
        if self._minimises:
            return self._outcomes[point].rank
        return tuple(-sign * place for sign, place in zip(self.tighter, point, strict=True))

    def _missing(self, points: Iterable[Point]) -> list[Point]:
        return [point for point in dict.fromkeys(points) if point not in self._outcomes]

    def _refined(self) -> list[Point]:
        """Halve boxes until each that is left needs a corner; return these corners."""
        corners: dict[Point, None] = {}
        waiting, price = self._boxes, self._price
        if price is not None:
            # One box a round, that which may have the cheapest point: what it shows closes others.
            waiting = sorted(
                waiting, key=lambda box: price(self._cheapest_corner(box)), reverse=True
            )
        kept: list[Box] = []
        while waiting and not (corners and price is not None):
            box = waiting.pop()
            missing = self._missing(_corners(box))
            if missing:
                corners |= dict.fromkeys(missing)
                kept.append(box)
            elif self._is_open(box):
                waiting += _halves(box)
        self._boxes = [*waiting, *kept]
        return list(corners)

    def _is_open(self, box: Box) -> bool:
        """Return whether a box may have points that matter beside its corners, which are tried."""
        if all(high - low <= 1 for low, high in zip(*box, strict=True)):
            return False
        price, best = self._price, self.best() if self._price is not None else None
        if price is not None and best is not None:
            lowest = price(self._cheapest_corner(box))
            if lowest >= price(best):
                return False
        return len({self._outcomes[corner].holds for corner in _corners(box)}) > 1

    def _cheapest_corner(self, box: Box) -> Point:
        """Return the tightest corner of a box, which is its cheapest one."""
        ends = zip(self.tighter, *box, strict=True)
        return tuple(high if sign > 0 else low for sign, low, high in ends)

    def _beside_front(self) -> Iterator[Point]:
        """Yield the neighbours that show whether a point of the front is one."""
        if self._price is not None:
            best = self.best()
            yield from () if best is None else self.tighter_neighbours(best)
            return
        for point in self.front():
            yield from self.tighter_neighbours(point)
            if self._minimises:
                for knob, size in enumerate(self.sizes):
                    for place in (point[knob] - 1, point[knob] + 1):
                        if 0 <= place < size:
                            yield (*point[:knob], place, *point[knob + 1 :])


def _dominates(one: Sequence[object], other: Sequence[object]) -> bool:
    pairs = list(zip(one, other, strict=True))
    return one != other and all(a <= b for a, b in pairs)  # type: ignore[operator] # of one kind


def _ticks(size: int, count: int) -> list[int]:
    steps = max(1, min(count, size) - 1)
    return sorted({round(step * (size - 1) / steps) for step in range(steps + 1)})


def _boxes(ticks: Sequence[Sequence[int]]) -> Iterator[Box]:
    """Yield the boxes between the ticks; a knob with one value has no extent."""
    sides = [list(itertools.pairwise(places)) or [(places[0], places[0])] for places in ticks]
    for box in itertools.product(*sides):
        yield tuple(low for low, _ in box), tuple(high for _, high in box)


def _corners(box: Box) -> Iterator[Point]:
    return itertools.product(*(dict.fromkeys(ends) for ends in zip(*box, strict=True)))


def _halves(box: Box) -> list[Box]:
    """Return a box's halves along its longest side; both have the middle."""
    low, high = box
    extents = [end - start for start, end in zip(low, high, strict=True)]
    knob = extents.index(max(extents))
    middle = (low[knob] + high[knob]) // 2
    return [
        (low, (*high[:knob], middle, *high[knob + 1 :])),
        ((*low[:knob], middle, *low[knob + 1 :]), high),
    ]
