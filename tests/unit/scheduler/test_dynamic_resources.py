"""DynamicResources in the sets of rules: where it is registered, and what it scores."""

from __future__ import annotations

import pytest

from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.framework.plugins.in_tree import SERVED
from services.framework.runtime.framework import Framework
from services.framework.snapshot.snapshot import Snapshot
from services.scheduler.configuration import read_configuration
from services.scheduler.core.session.options import RULES
from tests.builders import make_node, make_pod
from tests.cycles import evaluate

NAME = "DynamicResources"
FILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{plugins: {score: {disabled: [{name: NodeResourcesFit}]}}}]
"""


@pytest.mark.parametrize(("version", "weight"), [("v1.34", None), ("v1.36", 2)])
def test_it_scores_from_v1_36_on(version: str, weight: int | None) -> None:
    """With weight 2, and 0 for each node where no alternative was chosen."""
    snapshot = Snapshot()
    for name in ("a", "b"):
        snapshot.set_node(make_node(name).capacity(cpu="10", memory="10Gi").obj())
    rules = RULES[version]
    framework = Framework(snapshot, rules.profile, {**SERVED, **rules.plugins})
    assert framework.weights.get(NAME) == weight
    scores = evaluate(framework, make_pod("p").req({"cpu": "1"}).obj()).scores.get(NAME)
    expected = None if weight is None else {"a": 0, "b": 0}
    actual = None if scores is None else {node: score.weighted for node, score in scores.items()}
    assert actual == expected


@pytest.mark.parametrize(("version", "weight"), [("v1.34", 1), ("v1.36", 2)])
def test_a_configuration_file_begins_with_the_plugins_of_its_version(
    version: str, weight: int
) -> None:
    """Upstream merges a file with the defaults of the scheduler that reads it."""
    config = scheduler_pb2.SchedulerConfig(rules=version, kube_scheduler_configuration=FILE)
    (profile,) = read_configuration(config).profiles
    assert {plugin.name: plugin.weight for plugin in profile.plugins}[NAME] == weight
