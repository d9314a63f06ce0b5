"""Label selectors and node selectors match as upstream's do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.kube.selector import (
    LabelSelector,
    LabelSelectors,
    NodeSelector,
    NodeSelectorTerm,
    Operator,
    Requirement,
    as_int64,
)
from services.kube.taints import Taint, TaintEffect, Toleration, tolerated


@pytest.mark.parametrize(
    ("operator", "values", "present", "absent"),
    [
        (Operator.IN, ("a", "b"), True, False),
        (Operator.IN, ("b",), False, False),
        (Operator.NOT_IN, ("a",), False, True),
        (Operator.NOT_IN, ("b",), True, True),
        (Operator.EXISTS, (), True, False),
        (Operator.DOES_NOT_EXIST, (), False, True),
    ],
)
def test_an_operator_decides_on_present_and_absent_labels(
    operator: Operator, values: tuple[str, ...], present: bool, absent: bool
) -> None:
    """NotIn is met by an absent label."""
    requirement = Requirement(key="k", operator=operator, values=values)
    assert requirement.matches({"k": "a"}) is present
    assert requirement.matches({}) is absent


@pytest.mark.parametrize(
    ("operator", "label", "bound", "matches"),
    [
        (Operator.GT, "5", "4", True),
        (Operator.GT, "4", "4", False),
        (Operator.LT, "-1", "0", True),
        (Operator.GT, "5.0", "4", False),
        (Operator.GT, "5", "x", False),
    ],
)
def test_gt_and_lt_compare_integers_only(
    operator: Operator, label: str, bound: str, matches: bool
) -> None:
    """A text that is no int64 never matches."""
    requirement = Requirement(key="k", operator=operator, values=(bound,))
    assert requirement.matches({"k": label}) is matches


def test_an_empty_label_selector_matches_everything() -> None:
    """An absent selector is None, which matches nothing."""
    assert LabelSelector().matches({})


def test_a_node_selector_without_terms_or_conditions_matches_nothing() -> None:
    """Terms are alternatives, and an empty one is no match."""
    assert not NodeSelector().matches({"a": "b"}, "n")
    assert not NodeSelector(terms=(NodeSelectorTerm(),)).matches({"a": "b"}, "n")


def test_a_term_needs_labels_and_fields() -> None:
    """metadata.name is the only field."""
    term = NodeSelectorTerm(
        match_expressions=(Requirement(key="a", operator=Operator.EXISTS),),
        match_fields=(Requirement(key="metadata.name", operator=Operator.IN, values=("n",)),),
    )
    assert term.matches({"a": ""}, "n")
    assert not term.matches({"a": ""}, "m")
    assert not term.matches({}, "n")


@pytest.mark.parametrize("text", ["", "x", "1.0", str(2**63), "9" * 5000, "٣"])
def test_a_text_that_is_not_an_int64_gives_none(text: str) -> None:
    """Only ASCII digits within 64 bits count."""
    assert as_int64(text) is None


def test_a_toleration_covers_by_key_value_and_effect() -> None:
    """An empty key with Equal compares values alone; an empty effect means every effect."""
    taint = Taint(key="k", value="v", effect=TaintEffect.NO_SCHEDULE)
    assert tolerated(taint, [Toleration(operator="Exists")])
    assert tolerated(taint, [Toleration(value="v")])
    assert tolerated(taint, [Toleration(key="k", value="v", effect=TaintEffect.NO_SCHEDULE)])
    assert not tolerated(taint, [Toleration(key="k", value="v", effect=TaintEffect.NO_EXECUTE)])
    assert not tolerated(taint, [Toleration(key="k", value="w")])
    assert not tolerated(taint, [])


LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"))
REQUIREMENTS = st.builds(
    Requirement,
    key=st.sampled_from("abc"),
    operator=st.sampled_from(
        [operator for operator in Operator if operator.value not in ("Gt", "Lt")]
    ),
    values=st.lists(st.sampled_from("xyz"), max_size=2).map(tuple),
)
SELECTORS = st.none() | st.builds(
    LabelSelector, requirements=st.lists(REQUIREMENTS, max_size=2).map(tuple)
)


@given(st.lists(st.tuples(st.integers(0, 4), SELECTORS | st.just("gone"))), LABELS)
def test_indexed_label_selectors_match_like_a_scan(
    changes: list[tuple[int, LabelSelector | str | None]], labels: dict[str, str]
) -> None:
    """In the order in which they came; one that is replaced keeps its place."""
    selectors: LabelSelectors[int] = LabelSelectors()
    by_key: dict[int, LabelSelector | None] = {}
    for key, selector in changes:
        if isinstance(selector, str):
            selectors.remove(key)
            by_key.pop(key, None)
        else:
            selectors.put(key, selector)
            by_key[key] = selector
    matching = [key for key, one in by_key.items() if one is not None and one.matches(labels)]
    assert selectors.matching(labels) == matching
