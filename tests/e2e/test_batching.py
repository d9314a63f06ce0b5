"""Batching never changes a decision."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.generate.options import SECOND_NS, GenerateOptions
from replay.generate.workload import generate
from tests.e2e.replays import run

WORKLOAD = GenerateOptions(
    seed=5,
    nodes=12,
    pods=240,
    deployments=6,
    budgets=5,
    window_ns=120 * SECOND_NS,
    service_ns=90 * SECOND_NS,
)


@pytest.mark.e2e
def test_one_pod_an_exchange_or_a_thousand_give_the_same_bytes(
    services: EmbeddedServices, tmp_path: Path
) -> None:
    """K=1, K=7 and K=1,000 write one decision log, with preemption and budgets in it."""
    logs = []
    for batch_size in (1, 7, 1000):
        run_path = tmp_path / f"k{batch_size}"
        run(services, generate(WORKLOAD), run_path, seed=3, batch_size=batch_size)
        logs.append((run_path / "decisions.jsonl").read_bytes())
    assert logs[0] == logs[1] == logs[2]
    text = logs[0].decode()
    assert '"preempted":' in text
    assert '"scheduled":' in text
    assert '"failedScheduling":' in text
