"""When two runs were decided by one policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from replay.results.run.manifest import Manifest
from replay.whatif.policy import policy_differences

OURS = Manifest(
    version="1", seed=0, rules="v1.34", traces=(), decided_by="reprieve 1", configuration={}
)


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({"decided_by": "first-fit 2"}, "schedulers reprieve 1 and first-fit 2"),
        (
            {"decided_by": "", "services": {"scheduler": "h:1"}},
            "schedulers reprieve 1 and a scheduler without a name at h:1",
        ),
        ({"seed": 3}, "seeds 0 and 3"),
        ({"rules": "v1.16"}, "rules v1.34 and v1.16"),
        ({"configuration": {"ties": "TIE_BREAK_NAME"}}, "--ties"),
        ({"configuration": {"disable_preemption": True}}, "--disable-preemption"),
        (
            {"configuration": {"kube_scheduler_configuration": "kind: x"}},
            "scheduler configurations",
        ),
    ],
)
def test_a_policy_is_scheduler_rules_configuration_and_seed(
    changed: dict[str, Any], difference: str
) -> None:
    """Each of them alone makes another one, with its values where these are short."""
    assert list(policy_differences(OURS, replace(OURS, **changed))) == [difference]


@pytest.mark.parametrize(
    "changed",
    [
        {"services": {"scheduler": "127.0.0.1:1"}},
        {"configuration": {"overrides": {"drop_nodes": ["n"]}}},
        {"configuration": {"kubelet_configuration": "kind: y"}},
    ],
)
def test_where_a_scheduler_runs_and_what_the_cluster_is_change_no_policy(
    changed: dict[str, Any],
) -> None:
    """A pod that gets another node then has moved."""
    assert not list(policy_differences(OURS, replace(OURS, **changed)))
