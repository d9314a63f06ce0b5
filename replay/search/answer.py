"""The answer of a search: what holds, what fails beside it, and which values were tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replay.search.front import FrontSearch, Point
from replay.search.knobs import Knob
from replay.search.line import LineSearch, Outcome
from replay.search.runs import Tried
from services.terminal import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBorder:
    """A combination of values for which all checks hold, and one for which one fails.

    Nothing was tried between them. Such a combination is called a point.

    is_adjacent: they are one step of one knob apart.
    """

    holds: Tried
    fails: Tried
    is_adjacent: bool

    @property
    def runs(self) -> tuple[Path, Path]:
        """Return the two runs that show it, with one seed."""
        return self.holds.runs[self.fails.shows], self.fails.runs[self.fails.shows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a search found.

    size: the number of all points. tried: ascending. borders: of one knob, each; of several, one
    beside each point of the front. best: the point that holds with the smallest objectives, or of
    several knobs the first of the front; None where none holds. front: of several knobs.
    is_ended_early: the budget ended the search.
    """

    knobs: Sequence[Knob]
    objectives: Sequence[str]
    size: int
    tried: Sequence[Tried]
    borders: Sequence[FoundBorder]
    best: Tried | None
    front: Sequence[Tried] = ()
    is_ended_early: bool = False

    @property
    def is_exhaustive(self) -> bool:
        """Return whether every point was tried."""
        return len(self.tried) == self.size

    @property
    def border(self) -> FoundBorder | None:
        """Return the border whose runs are shown: beside the best point where there is one."""
        beside = (border for border in self.borders if border.holds is self.best)
        return next(beside, next(iter(self.borders), None))

    def at(self, tried: Tried) -> str:
        """Return a point as people read it."""
        if len(self.knobs) == 1:
            return tried.shown[0]
        pairs = zip(self.knobs, tried.shown, strict=True)
        return ", ".join(f"{knob.label}: {value}" for knob, value in pairs)

    def sentences(self) -> Iterator[str]:
        """Yield the answer as sentences, the most important first, then how it was found."""
        yield from self._of_one() if len(self.knobs) == 1 else self._of_several()
        if self.objectives and self.best is not None:
            yield self._of_best()
        yield self._of_tried()

    def _of_one(self) -> Iterator[str]:
        label = self.knobs[0].label
        if not self.borders:
            yield f"{label}: {self._uniform()}."
        for border in self.borders:
            text = f"{label}: holds at {self.at(border.holds)}, fails at {self.at(border.fails)}"
            yield f"{text}{reason(border.fails)}."
            if not border.is_adjacent:
                yield "Values between the two were not tried: the budget ended the search."

    def _of_several(self) -> Iterator[str]:
        if not self.front or not any(not tried.holds for tried in self.tried):
            yield f"{self._uniform()[0].upper()}{self._uniform()[1:]}."
            return
        failing = {border.holds.point: border.fails for border in self.borders}
        for holds in self.front:
            fails = failing.get(holds.point)
            if fails is None:
                yield f"Holds at {self.at(holds)}; no point beside it that fails was tried."
            else:
                yield f"Holds at {self.at(holds)}; fails at {self.at(fails)}{reason(fails)}."

    def _uniform(self) -> str:
        what = "holds" if all(tried.holds for tried in self.tried) else "fails"
        values = "value" if len(self.knobs) == 1 else "point"
        first, last = self.at(self.tried[0]), self.at(self.tried[-1])
        if len(self.tried) == 1:
            return f"{what} at {first}, the only {values} that was tried"
        return f"{what} at every {values} that was tried, from {first} to {last}"

    def _of_best(self) -> str:
        assert self.best is not None  # noqa: S101 - the caller looks
        figures = ", ".join(
            f"{name} {figure_shown(self.best.figures.get(name))}" for name in self.objectives
        )
        among = "of all values" if self.is_exhaustive else "of those that were tried"
        return f"Smallest where it holds, {among}: {self.at(self.best)} ({figures})."

    def _of_tried(self) -> str:
        what = "value" if len(self.knobs) == 1 else "point"
        if self.is_exhaustive:
            extra = ""
            if len(self.knobs) == 1 and self.knobs[0].is_ordered:
                extra = self._extremes()
            return f"All {counted(self.size, what)} were tried{extra}."
        more = "" if not self.is_ended_early else "; the budget ended the search"
        return f"Tried {len(self.tried):,} of {counted(self.size, what)}{more}."

    def _extremes(self) -> str:
        holding = [tried for tried in self.tried if tried.holds]
        if not holding:
            return ""
        if len(holding) == 1:
            return f": {self.at(holding[0])} alone holds"
        smallest, largest = self.at(holding[0]), self.at(holding[-1])
        return f": the smallest that holds is {smallest}, the largest {largest}"

    def to_mapping(self) -> dict[str, Any]:
        """Return the answer as JSON has it."""
        return {
            "answer": list(self.sentences()),
            "knobs": [{"name": knob.label, "values": len(knob.values)} for knob in self.knobs],
            "points": self.size,
            "exhaustive": self.is_exhaustive,
            "ended_by_budget": self.is_ended_early,
            "borders": [
                {
                    "holds": self._place(border.holds),
                    "fails": self._place(border.fails),
                    "adjacent": border.is_adjacent,
                    "runs": list(map(str, border.runs)),
                }
                for border in self.borders
            ],
            "best": None if self.best is None else self._place(self.best),
            "front": [self._place(tried) for tried in self.front],
            "tried": [self._mapping_of(tried) for tried in self.tried],
        }

    def _place(self, tried: Tried) -> dict[str, str]:
        return {
            knob.label: knob.values[position]
            for knob, position in zip(self.knobs, tried.point, strict=True)
        }

    def _mapping_of(self, tried: Tried) -> dict[str, Any]:
        return {
            "at": self._place(tried),
            "holds": tried.holds,
            "checks": [
                {"check": result.assertion.text, "holds": result.holds, "value": result.value}
                for result in tried.checks
            ],
            "figures": dict(tried.figures),
            "removed_nodes": list(tried.removed),
            "runs": list(map(str, tried.runs)),
        }


def reason(tried: Tried) -> str:
    """Return why a point fails, in brackets; "" where it holds."""
    failing = tried.failing
    return "" if failing is None else f" ({failing.assertion.text}: {failing.found})"


def figure_shown(value: float | None) -> str:
    """Return a figure as a table has it."""
    return "-" if value is None else f"{value:,.5g}"


class KnobSearch:
    """The search over one knob or several, as points, with its answer."""

    def __init__(
        self,
        knobs: Sequence[Knob],
        *,
        exhaustive: bool = False,
        objectives: Sequence[str] = (),
        line: LineSearch | None = None,
        front: FrontSearch | None = None,
    ) -> None:
        self.knobs = knobs
        self._objectives = objectives
        sizes = [len(knob.values) for knob in knobs]
        self.line = line
        if line is None and front is None and len(knobs) == 1:
            self.line = LineSearch(sizes[0], exhaustive=exhaustive, minimises=bool(objectives))
        self._front = front or FrontSearch(sizes, exhaustive=exhaustive, minimises=bool(objectives))

    def ask(self) -> list[Point]:
        """Return the points to try next; [] at the end."""
        if self.line is not None:
            return [(position,) for position in self.line.ask()]
        return self._front.ask()

    def tell(self, point: Point, outcome: Outcome) -> None:
        """Receive the outcome at a point."""
        if self.line is not None:
            self.line.tell(point[0], outcome)
        else:
            self._front.tell(point, outcome)

    def answer(self, tried: Mapping[Point, Tried]) -> Answer:
        """Return what is known from the points that were tried."""
        is_ended_early = bool(self.ask())
        size = 1
        for knob in self.knobs:
            size *= len(knob.values)
        ordered = [tried[point] for point in sorted(tried)]
        if self.line is not None:
            best = self.line.best()
            return Answer(
                knobs=self.knobs,
                objectives=self._objectives,
                size=size,
                tried=ordered,
                borders=[
                    FoundBorder(
                        holds=tried[border.holds,],
                        fails=tried[border.fails,],
                        is_adjacent=border.is_adjacent,
                    )
                    for border in self.line.borders()
                ],
                best=None if best is None or not self._objectives else tried[best,],
                is_ended_early=is_ended_early,
            )
        front, first = self._front.front(), self._front.best()
        return Answer(
            knobs=self.knobs,
            objectives=self._objectives,
            size=size,
            tried=ordered,
            borders=list(self._borders(front, tried)),
            best=None if first is None else tried[first],
            front=[tried[point] for point in front],
            is_ended_early=is_ended_early,
        )

    def _borders(
        self, front: Sequence[Point], tried: Mapping[Point, Tried]
    ) -> Iterator[FoundBorder]:
        """Yield for each point of the front a neighbour that fails, where one was tried."""
        for point in front:
            for other in self._front.tighter_neighbours(point):
                if other in tried and not tried[other].holds:
                    yield FoundBorder(holds=tried[point], fails=tried[other], is_adjacent=True)
                    break
