"""The search along one knob: a coarse grid, bisection where outcomes differ, then the neighbours.

A search asks for positions and receives outcomes; it runs nothing. It assumes nothing of the
outcomes: where they change more often than once, it finds a border in each gap whose ends differ,
and it may miss two borders within a gap whose ends agree. What it claims is what was tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_COARSE = 5
"""Positions of the coarse grid, both ends included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome at one position or point: whether all checks hold, and the figures to minimise.

    objectives: smaller is better; None is a figure without a value, which is worse than any.
    """

    holds: bool
    objectives: tuple[float | None, ...] = ()

    @property
    def rank(self) -> tuple[tuple[bool, float], ...]:
        """Return the objectives in their order, so that a smaller rank is better."""
        return tuple((value is None, value or 0.0) for value in self.objectives)


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """Two positions with different outcomes and no tried one between them."""

    holds: int
    fails: int

    @property
    def is_adjacent(self) -> bool:
        """Return whether nothing is between the two."""
        return abs(self.holds - self.fails) == 1


class LineSearch:
    """Searches the positions 0 to size - 1 of one knob for borders.

    exhaustive: ask for every position. minimises: look for a smaller objective, too, around the
    best position that holds, until both its neighbours were tried. first: the first round, in place
    of the coarse grid; from there on the search climbs, to twice the highest position each time,
    until outcomes differ.
    """

    def __init__(
        self,
        size: int,
        *,
        exhaustive: bool = False,
        minimises: bool = False,
        first: Sequence[int] = (),
    ) -> None:
        if size < 1:
            raise ValueError("a search needs a position")
        self.size = size
        self._minimises = minimises
        self._climbs = bool(first)
        steps = max(1, min(_COARSE, size) - 1)
        coarse = [round(step * (size - 1) / steps) for step in range(steps + 1)]
        self._wanted = dict.fromkeys(range(size) if exhaustive else first or coarse)
        self._outcomes: dict[int, Outcome] = {}

    @property
    def outcomes(self) -> Mapping[int, Outcome]:
        """Return the outcome of each tried position, ascending."""
        return dict(sorted(self._outcomes.items()))

    def suggest(self, *positions: int) -> None:
        """Add positions to ask for: a guess at where the border is."""
        self._wanted |= dict.fromkeys(place for place in positions if 0 <= place < self.size)

    def tell(self, position: int, outcome: Outcome) -> None:
        """Receive the outcome at a position."""
        self._outcomes[position] = outcome

    def ask(self) -> list[int]:
        """Return the positions to try next, none of which needs another; [] at the end."""
        rounds = (self._above(), self._middles(), self._neighbours(), self._around_best())
        for positions in (self._wanted, *rounds):
            missing = [place for place in dict.fromkeys(positions) if place not in self._outcomes]
            if missing:
                return missing
        return []

    def borders(self) -> list[Border]:
        """Return each pair of tried neighbours with different outcomes, ascending."""
        return [
            Border(holds=one, fails=other)
            if self._outcomes[one].holds
            else Border(holds=other, fails=one)
            for one, other in itertools.pairwise(self.outcomes)
            if self._outcomes[one].holds != self._outcomes[other].holds
        ]

    def best(self) -> int | None:
        """Return the first position that holds with the smallest objectives; None if none holds."""
        holding = [place for place, outcome in self.outcomes.items() if outcome.holds]
        return min(holding, key=lambda place: self._outcomes[place].rank, default=None)

    def _above(self) -> Iterator[int]:
        if self._climbs and not self.borders():
            yield min(2 * max(self._outcomes) + 1, self.size - 1)

    def _middles(self) -> Iterator[int]:
        for border in self.borders():
            if not border.is_adjacent:
                yield (border.holds + border.fails) // 2

    def _neighbours(self) -> Iterator[int]:
        """Yield the positions beside each border, where outcomes may change once more."""
        for border in self.borders():
            for place in (min(border.holds, border.fails) - 1, max(border.holds, border.fails) + 1):
                if 0 <= place < self.size:
                    yield place

    def _around_best(self) -> Iterator[int]:
        """Yield the middle of the gap on each side of the best position."""
        best = self.best() if self._minimises else None
        if best is None:
            return
        tried = list(self.outcomes)
        place = tried.index(best)
        for other in (*tried[max(0, place - 1) : place], *tried[place + 1 : place + 2]):
            if abs(other - best) > 1:
                yield (other + best) // 2
