"""OpenB as real kube-schedulers ran it: as many pods stay unscheduled.

The published runs (kwok, kube-scheduler-simulator) place the pods of N nodes in file order, with
cpu and memory only and no departures; their figures vary with kube-scheduler's random ties.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from replay.backends.processes import EmbeddedServices
from replay.world.models import Models
from tests.e2e.replays import SHARED, run, trace

VANILLA = SHARED / "traces" / "k8s-sims-results" / "vanilla"
SIZES = [
    (300, 24, 30, range(1)),
    *(
        pytest.param(*size, range(10), marks=pytest.mark.long)
        for size in ((300, 24, 30), (700, 83, 92), (1200, 12, 17))
    ),
]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not VANILLA.is_dir(), reason="no ../shared/traces beside the project"),
]


@pytest.mark.parametrize(("nodes", "least", "most", "seeds"), SIZES)
def test_the_median_of_unscheduled_pods_is_that_of_real_schedulers(
    here: EmbeddedServices, tmp_path: Path, nodes: int, least: int, most: int, seeds: range
) -> None:
    """The bounds span what published runs saw, and a little more; long: all sizes, ten seeds."""
    records = trace([VANILLA / f"nodes-{nodes}.yaml.gz", VANILLA / f"pods-{nodes}.yaml.gz"])
    unscheduled = []
    for seed in seeds:
        run_path = tmp_path / f"seed-{seed}"
        finished = run(here, records, run_path, seed=seed, models=Models(eviction=False))
        unscheduled.append(len(finished.replay.cluster.pending))
    assert least <= median(unscheduled) <= most, unscheduled
