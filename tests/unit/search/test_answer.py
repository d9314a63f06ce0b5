"""The sentences of an answer, where the runs have shown no border."""

from __future__ import annotations

import pytest

from replay.search.answer import Answer, KnobSearch
from replay.search.front import Point
from replay.search.knobs import parse_knob
from replay.search.line import Outcome
from replay.search.runs import Tried
from replay.whatif.assertions import CheckedAssertion, parse_assertion


@pytest.mark.parametrize(
    ("places", "sentence"),
    [
        ([2], "replicas: holds at 3, the only value that was tried."),
        ([0, 4], "replicas: holds at every value that was tried, from 1 to 5."),
    ],
)
def test_an_answer_without_a_border_names_what_was_tried(places: list[int], sentence: str) -> None:
    """One value has no ends."""
    knob = parse_knob("replicas=1..5", ())
    tried = [
        Tried(point=(place,), shown=(knob.shown[place],), checks=(), figures={}, runs=())
        for place in places
    ]
    answer = Answer(
        knobs=[knob], objectives=(), size=5, tried=tried, borders=[], best=None, is_ended_early=True
    )
    assert next(answer.sentences()) == sentence


def test_a_point_of_the_front_is_named_where_the_budget_ended_before_its_neighbours() -> None:
    """Else the answer would be how many points were tried."""
    knobs = [parse_knob("replicas=1..5", ()), parse_knob("seconds=1..5", ())]
    search = KnobSearch(knobs)
    results: dict[Point, bool] = {(0, 0): True, (4, 0): False, (0, 4): False, (4, 4): False}
    for point, holds in results.items():
        search.tell(point, Outcome(holds=holds))
    failing = CheckedAssertion(assertion=parse_assertion("pending == 0"), value=2, holds=False)
    tried: dict[Point, Tried] = {
        point: Tried(
            point=point,
            shown=tuple(knob.shown[place] for knob, place in zip(knobs, point, strict=True)),
            checks=() if holds else (failing,),
            figures={},
            runs=(),
        )
        for point, holds in results.items()
    }
    assert list(search.answer(tried).sentences()) == [
        "Holds at replicas: 1, seconds: 1; no point beside it that fails was tried.",
        "Tried 4 of 25 points; the budget ended the search.",
    ]
