"""The autoscaler's estimator and expanders against what upstream's own code did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from replay.conform.autoscaler.cluster import Json
from replay.conform.autoscaler.estimates import estimate_difference, expander_difference
from replay.conform.vectors.vectors import RECORDED
from tests.vectors import read_vectors

FURTHER = Path(__file__).parents[2].parent / "shared" / "golden"
"""Further vectors may be kept beside the project."""
COMPARE: dict[str, Callable[[Json], str]] = {
    "estimate": estimate_difference,
    "expander": expander_difference,
}
VECTORS = [
    pytest.param(kind, vector, id=vector["id"])
    for kind in COMPARE
    for path in (
        RECORDED / f"autoscaler-{kind}-v1.36.jsonl.gz",
        *sorted(FURTHER.glob(f"autoscaler-{kind}-heldout*.jsonl.gz")),
    )
    for vector in read_vectors(path)
]


@pytest.mark.parametrize(("kind", "vector"), VECTORS)
def test_estimates_and_choices_are_those_of_upstream(kind: str, vector: Json) -> None:
    """Groups of pods, their order, the limit, the nodes and what they hold; the best options."""
    assert COMPARE[kind](vector) == ""


@pytest.mark.parametrize(
    ("kind", "name", "other", "text"),
    [
        ("estimate", "node_count", 99, "node_count 1, expected 99"),
        ("estimate", "order", [7], "order [0], expected [7]"),
        ("expander", "best", ["nobody"], 'best ["ondemand-3"], expected ["nobody"]'),
        ("expander", "error", "refused", "error false, expected true"),
    ],
)
def test_a_difference_names_its_field(kind: str, name: str, other: object, text: str) -> None:
    """The first vector of a kind, with another output; an alternative is accepted in its place."""
    vector = next(read_vectors(RECORDED / f"autoscaler-{kind}-v1.36.jsonl.gz"))
    wrong = {**vector, "expected": {**vector["expected"], name: other}}
    assert COMPARE[kind](wrong) == text
    if kind == "estimate":
        assert COMPARE[kind]({**wrong, "alternatives": [vector["expected"]]}) == ""
