"""Kubernetes' own preemption test, read from its performance-config file and replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace
from tests.e2e.replays import SHARED, bindings, run

CONFIG = SHARED / "traces" / "scheduler_perf" / "default_preemption" / "performance-config.yaml"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not CONFIG.is_file(), reason="no ../shared/traces beside the project"),
]


@pytest.mark.parametrize(
    ("params", "preemptors"),
    [({}, 5), ({"initNodes": 200, "initPods": 800, "measurePods": 200}, 200)],
)
def test_each_high_pod_preempts_three_low_ones(
    here: EmbeddedServices, tmp_path: Path, params: dict[str, int], preemptors: int
) -> None:
    """Four pods of 0.9 CPU on each node of 4 CPU; 3 CPU are requested: three must go."""
    options = ImportOptions(workload="PreemptionBasic/5Nodes", params=params)
    finished = run(here, open_trace([CONFIG], options=options), tmp_path / "run")
    victims = [bound.victims for bound in bindings(finished).values() if bound.victims]
    assert [len(victim) for victim in victims] == [3] * preemptors
    assert len({name for victim in victims for name in victim}) == 3 * preemptors
