"""Evaluate, in this process, against all that upstream's kube-scheduler v1.34.1 said.

Configurations, volume objects and the default profile alike: refusals, scores, texts, order and
weights of plugins, and all of preemption. The vectors lie in the folder `shared` beside the
repository.
"""

from __future__ import annotations

import pytest

from replay.conform.scheduling import differences, request_of
from services.scheduler import evaluation
from services.scheduler.configuration import options_of, read_configuration
from tests.scheduling_vectors import vectors

pytestmark = pytest.mark.usefixtures("tier")

FILES = {"scheduling.jsonl.gz": 600, "scheduling-extra.jsonl.gz": 300}


@pytest.mark.parametrize("name", FILES)
def test_every_field_of_every_scenario_is_upstreams(name: str) -> None:
    """Nothing that the vectors hold differs, in any scenario of the file."""
    count, wrong = 0, []
    for scenario, expected in vectors(name):
        count += 1
        request = request_of(scenario)
        options = options_of(request.config, read_configuration(request.config), "v1.34")
        wrong += differences(scenario, expected, evaluation.evaluate(request, options))
    assert count >= FILES[name]
    assert not wrong, f"{len(wrong)} differences in {count} scenarios:\n" + "\n".join(wrong[:20])
