"""`--set` of a node group and of the autoscaler's flags."""

from __future__ import annotations

import pytest

from replay.autoscaling.file import autoscaling, read
from replay.overrides.assignment import parse_assignment
from replay.overrides.errors import NoEffectError, OverrideError
from replay.overrides.files.node_groups import groups_text
from replay.overrides.overrides import Overrides
from services.kube.time import SECOND_NS

FILE = """
flags: {expander: most-pods}
groups:
- {name: web, max: 4, template: {}}
- {name: a.b, min: 1, max: 2, template: {}, price: 0.5}
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
    assert (web.max, web.min, web.template, web.provisioning_delay) == (9, 0, {}, "30s")
    assert (other.price, other.min, other.max) == (2, 1, 2)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nodeGroup.we.max=9", "there is no node group we; did you mean web?"),
        ("nodeGroup.web.color=red", "'color' cannot be set; fields of nodeGroup: max, min, price"),
        ("nodeGroup.web.max=many", "max must be a whole number"),
        ("nodeGroup.web.price=free", "the price must be a number"),
        ("nodeGroup.web.min=5", "0 <= min <= max"),
        ("nodeGroup.web.provisioningDelay=soon", "groups[0].provisioningDelay: 'soon'"),
        ("nodeGroup.web.provisioningDelay=[30s, 2]", "or a list of durations"),
        ("nodeGroup.web.provisioningDelay=[]", "or a list of durations"),
        ("autoscaler.scan-interval=soon", "flags.scan-interval: 'soon'"),
    ],
)
def test_what_cannot_be_set_is_refused(text: str, problem: str) -> None:
    """By the option, and why."""
    with pytest.raises(OverrideError, match=r"--set (nodeGroup|autoscaler)") as refused:
        changed(text)
    assert problem in str(refused.value)


def test_a_delay_may_be_a_list() -> None:
    """Each new node has one of its durations; one of the two forms takes the other's place."""
    assert delays("[30s, 2m]") == (30 * SECOND_NS, 120 * SECOND_NS)
    assert delays("0s") == (0,)


def delays(value: str) -> tuple[int, ...]:
    """Return the delays of a group for which a value was set."""
    assignment = parse_assignment(f"nodeGroup.g.provisioningDelay={value}")
    file = read(groups_text("groups: [{name: g, max: 1, template: {}}]", [assignment]))
    return autoscaling(file, 0).groups[0].provisioning_ns


def test_assignments_without_node_groups_have_no_effect() -> None:
    """And without assignments nothing is changed."""
    with pytest.raises(NoEffectError, match="without --autoscaler"):
        Overrides(sets=("nodeGroup.web.max=9",)).autoscaler(None)
    assert Overrides().autoscaler(None) is None
    assert Overrides().autoscaler(FILE) == FILE
