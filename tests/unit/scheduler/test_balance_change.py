"""NodeResourcesBalancedAllocation as v1.36 has it: the change of a node's balance counts."""

from __future__ import annotations

import pytest

from services.framework.plugins.in_tree import SERVED
from services.framework.runtime.framework import Framework
from services.framework.snapshot.snapshot import Snapshot
from services.scheduler.core.session.options import RULES
from tests.builders import make_node, make_pod
from tests.cycles import evaluate

NAME = "NodeResourcesBalancedAllocation"


def score(held: dict[str, str] | None, requests: dict[str, str]) -> int:
    """Return the score of a node of 10 cpu and 10Gi that holds a pod, for another pod."""
    snapshot = Snapshot()
    snapshot.set_node(make_node("n").capacity(cpu="10", memory="10Gi").obj())
    if held is not None:
        snapshot.set_pod(make_pod("held").req(held).node("n").obj())
    rules = RULES["v1.36"]
    framework = Framework(snapshot, rules.profile, {**SERVED, **rules.plugins})
    verdicts = evaluate(framework, make_pod("p").req(requests).obj())
    return verdicts.scores[NAME]["n"].normalized


@pytest.mark.parametrize(
    ("held", "requests", "expected"),
    [
        (None, {"cpu": "1", "memory": "1Gi"}, 75),
        (None, {"cpu": "10"}, 50),
        ({"cpu": "10"}, {"memory": "10Gi"}, 100),
        ({"cpu": "5"}, {"cpu": "1"}, 72),
        ({"cpu": "5"}, {"memory": "2Gi"}, 80),
    ],
)
def test_what_betters_the_balance_scores_above_75(
    held: dict[str, str] | None, requests: dict[str, str], expected: int
) -> None:
    """50 plus half of (50 plus the score with the pod less that without), each truncated."""
    assert score(held, requests) == expected


def test_the_other_rules_keep_their_own_score() -> None:
    """Only v1.36 has a plugin of its own."""
    assert {name for name, rules in RULES.items() if rules.plugins} == {"v1.36"}
