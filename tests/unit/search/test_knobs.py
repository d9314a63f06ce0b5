"""Knobs: ranges as people write them, and the command line of each value."""

from __future__ import annotations

import pytest

from replay.search.knobs import KnobError, parse_knob

OPTIONS = {"scale-nodes", "seed", "rules"}


@pytest.mark.parametrize(
    ("text", "label", "values", "shown"),
    [
        ("deployment.web.replicas=1..4", "deployment.web.replicas", "1 2 3 4", "1 2 3 4"),
        ("set:podMaxBackoffSeconds=10..30/10", "podMaxBackoffSeconds", "10 20 30", "10 20 30"),
        ("seed=-1..1", "seed", "-1 0 1", "-1 0 1"),
        ("scale-nodes=-0..-2", "scale-nodes", "-0 -1 -2", "-0 -1 -2"),
        ("scale-nodes=pool=a:-0..-1", "nodes of pool=a", "pool=a:-0 pool=a:-1", "-0 -1"),
        ("scale-nodes=pool=a:=2..=3", "nodes of pool=a", "pool=a:=2 pool=a:=3", "2 3"),
        ("scale-nodes=+0..+2/2", "scale-nodes", "+0 +2", "+0 +2"),
        ("evictionHard.memory.available=100Mi..200Mi/100Mi", "evictionHard.memory.available",
         "100Mi 200Mi", "100Mi 200Mi"),
        ("evictionHard.memory.available=5%..15%/5", "evictionHard.memory.available",
         "5% 10% 15%", "5% 10% 15%"),
        ("scale-nodes=0.5..1.5/0.5", "scale-nodes", "0.5 1 1.5", "0.5 1 1.5"),
        ("pdb.web.minAvailable=1..4/2", "pdb.web.minAvailable", "1 3 4", "1 3 4"),
        ("rules=v1.34,v1.36", "rules", "v1.34 v1.36", "v1.34 v1.36"),
    ],
)  # fmt: skip
def test_a_range_lists_its_values_in_order(text: str, label: str, values: str, shown: str) -> None:
    """Both ends are in it, and signs and selectors belong to each value."""
    knob = parse_knob(text, OPTIONS)
    assert (knob.label, list(knob.values), list(knob.shown)) == (
        label,
        values.split(),
        shown.split(),
    )


def test_a_range_of_fractions_without_a_step_has_a_hundred() -> None:
    """And a list has no size by which its values ascend."""
    knob = parse_knob("scale-nodes=0.5..1.5", OPTIONS)
    assert (len(knob.values), knob.values[1]) == (101, "0.51")
    assert not parse_knob("rules=a,b", OPTIONS).is_ordered


def test_an_override_and_an_option_become_arguments_of_replay() -> None:
    """An option's name is one of replay's; anything else is a key of --set."""
    override = parse_knob("deployment.web.replicas=1..4", OPTIONS)
    assert override.arguments(2) == ("--set", "deployment.web.replicas=3")
    option = parse_knob("scale-nodes=pool=a:-0..-3", OPTIONS)
    assert option.arguments(3) == ("--scale-nodes", "pool=a:-3")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("seed", "write deployment.web.replicas=1..50"),
        ("seed=", "write deployment.web.replicas=1..50"),
        ("seed=5..2", "write the smaller number first"),
        ("seed=3", "a single value is no range"),
        ("rules=a,a", "a value is given twice"),
        ("rules=a,,b", "a value is empty"),
        ("seed=1..9/0", "the step must be above 0"),
        ("seed=1..9000000", "9,000,000 values; at most 100,000"),
        ("x.y=1Gi..8Mi", "in one unit"),
        ("scale-nodes==1..9", "both ends need the same sign"),
    ],
)
def test_an_invalid_knob_is_refused_with_the_valid_form(text: str, problem: str) -> None:
    """Before anything is run."""
    with pytest.raises(KnobError, match=problem):
        parse_knob(text, OPTIONS)
