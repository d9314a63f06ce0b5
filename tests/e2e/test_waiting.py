"""What waits to be told changes no decision."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.backends.services import SchedulerService
from replay.generate.workload import GenerateOptions, generate
from reprieve.scheduler.v1beta1.scheduler_pb2 import RoundOutcomes
from services.kube.time import SECOND_NS
from tests.e2e.replays import run

WORKLOAD = GenerateOptions(
    seed=11,
    nodes=10,
    pods=200,
    deployments=4,
    budgets=8,
    window_ns=90 * SECOND_NS,
    service_ns=60 * SECOND_NS,
)


@pytest.mark.e2e
@pytest.mark.parametrize("rules", ["v1.34", "v1.16"])
def test_a_world_that_sends_all_at_once_gets_the_same_decisions(
    here: EmbeddedServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: str
) -> None:
    """In more rounds; the decision logs are the same bytes."""
    patient = run(here, generate(WORKLOAD), tmp_path / "patient", seed=2, rules=rules)
    receive = SchedulerService.receive_outcomes

    def nothing_may_wait(self: SchedulerService) -> RoundOutcomes:
        outcomes = receive(self)
        outcomes.ClearField("may_wait")
        return outcomes

    monkeypatch.setattr(SchedulerService, "receive_outcomes", nothing_may_wait)
    at_once = run(here, generate(WORKLOAD), tmp_path / "at-once", seed=2, rules=rules)
    logs = [(tmp_path / name / "decisions.jsonl").read_bytes() for name in ("patient", "at-once")]
    assert logs[0] == logs[1]
    assert patient.summary.decided.failed_attempts > 0
    assert patient.summary.rounds < 0.8 * at_once.summary.rounds
