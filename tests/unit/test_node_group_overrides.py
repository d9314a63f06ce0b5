"""`--set` of a node group and of the autoscaler's flags."""

from __future__ import annotations

import pytest

from replay.autoscaling.file import read
from replay.overrides.assignment import parse_assignment
from replay.overrides.errors import NoEffectError, OverrideError
from replay.overrides.node_groups import groups_text
from replay.overrides.overrides import Overrides

FILE = """
flags: {expander: most-pods}
groups:
- {name: web, max: 4, copy: a}
- {name: a.b, min: 1, max: 2, copy: a, price: 0.5}
"""


def changed(*texts: str) -> str:
    """Return the file with assignments."""
    return groups_text(FILE, [parse_assignment(text) for text in texts])


def test_fields_and_flags_are_set_and_everything_else_stays() -> None:
    """A group's name may have dots."""
    file = read(
        changed(
            "nodeGroup.web.max=9",
            "nodeGroup.a.b.price=2",
            "nodeGroup.web.provisioningDelay=30s",
            "autoscaler.scale-down-utilization-threshold=0.7",
        )
    )
    assert file.flags == {"expander": "most-pods", "scale-down-utilization-threshold": "0.7"}
    web, other = file.groups
    assert (web.max, web.min, web.copy, web.provisioning_delay) == (9, 0, "a", "30s")
    assert (other.price, other.min, other.max) == (2, 1, 2)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nodeGroup.we.max=9", "there is no node group we; did you mean web?"),
        ("nodeGroup.web.color=red", "'color' cannot be set; fields of nodeGroup: max, min, price"),
        ("nodeGroup.web.max=many", "max must be a whole number"),
        ("nodeGroup.web.price=free", "the price must be a number"),
        ("nodeGroup.web.min=5", "0 <= min <= max"),
    ],
)
def test_what_cannot_be_set_is_refused(text: str, problem: str) -> None:
    """By the option, and why."""
    with pytest.raises(OverrideError, match="--set nodeGroup") as refused:
        changed(text)
    assert problem in str(refused.value)


def test_assignments_without_node_groups_have_no_effect() -> None:
    """And without assignments nothing is changed."""
    with pytest.raises(NoEffectError, match="without --autoscaler"):
        Overrides(sets=("nodeGroup.web.max=9",)).autoscaler(None)
    assert Overrides().autoscaler(None) is None
    assert Overrides().autoscaler(FILE) == FILE
