"""Batching never changes a decision."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.generate.options import SECOND_NS, GenerateOptions
from replay.generate.workload import generate
from reprieve.trace.v1alpha1.trace_pb2 import Record
from tests.e2e.replays import run

BURST_NS = 60 * SECOND_NS
WORKLOAD = GenerateOptions(
    seed=5,
    nodes=6,
    pods=160,
    deployments=5,
    budgets=16,
    window_ns=120 * SECOND_NS,
    service_ns=90 * SECOND_NS,
)


def bursts() -> Iterator[Record]:
    """Yield the workload with all of a minute's arrivals at the minute's beginning."""
    for record in generate(WORKLOAD):
        record.at_ns -= record.at_ns % BURST_NS
        yield record


@pytest.mark.e2e
@pytest.mark.parametrize("rules", ["v1.34", "v1.16"])
def test_one_pod_an_exchange_or_a_thousand_give_the_same_bytes(
    services: EmbeddedServices, tmp_path: Path, rules: str
) -> None:
    """K=1, K=7 and K=1,000 write one decision log of bursts on a full cluster with budgets."""
    logs, sizes = [], []
    for batch_size in (1, 7, 1000):
        run_path = tmp_path / f"k{batch_size}"
        finished = run(services, bursts(), run_path, seed=3, rules=rules, batch_size=batch_size)
        logs.append((run_path / "decisions.jsonl").read_bytes())
        sizes.append(finished.summary.batch_size_mean)
    assert logs[0] == logs[1] == logs[2]
    assert sizes[0] <= 1
    assert sizes[1] > 3
    assert sizes[2] > 20
    observed = [json.loads(line).get("observed", {}) for line in logs[0].splitlines()]
    nominated = [each["nominated"] for each in observed if "nominated" in each]
    assert any(each.get("decidedBy") == "1-pdb-violations" for each in nominated)
    assert any(each["preempted"].get("violatesBudget") for each in observed if "preempted" in each)
    assert any("failedScheduling" in each for each in observed)
    assert any("scheduled" in each for each in observed)
