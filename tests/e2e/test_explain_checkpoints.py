"""A decision that is replayed again from a checkpoint is explained as from the run's beginning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replay import recovery
from replay.backends.processes import EmbeddedServices
from replay.backends.services import SchedulerService
from replay.explain.explain import explain
from replay.explain.target import ExplainQuery, attempt_of
from replay.generate.workload import GenerateOptions, generate
from replay.results.run.checkpoints import checkpoints_in
from replay.results.run.directory import RunDirectory
from replay.world.models import Models
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.kube.time import SECOND_NS
from tests.e2e.replays import run

pytestmark = pytest.mark.e2e

WORKLOAD = GenerateOptions(
    seed=5,
    nodes=5,
    pods=60,
    deployments=5,
    budgets=30,
    window_ns=120 * SECOND_NS,
    service_ns=90 * SECOND_NS,
)


def test_explanations_from_a_checkpoint_are_those_from_the_beginning(
    here: EmbeddedServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer rounds are replayed for them; nothing else is another."""
    monkeypatch.setattr(recovery, "KEPT_SHARE", float("inf"))
    monkeypatch.setattr(recovery, "LOOK_NS", 0)
    models = Models(eviction=False)
    finished = run(here, generate(WORKLOAD), tmp_path / "run", seed=4, models=models).run
    kept = checkpoints_in(finished.path)
    assert len(kept) > 5
    address = here.addresses["scheduler"]
    told: list[int] = []
    send_round = SchedulerService.send_round

    def counted(service: SchedulerService, round_: scheduler_pb2.Round) -> None:
        told.append(round_.time_ns)
        send_round(service, round_)

    monkeypatch.setattr(SchedulerService, "send_round", counted)
    wishes = list(_wishes(finished))
    resumed = [explain(finished, wish, address=address) for wish in wishes]
    few = len(told)
    for checkpoint in kept:
        checkpoint.path.unlink()
    told.clear()
    assert [explain(finished, wish, address=address) for wish in wishes] == resumed
    assert few < 0.5 * len(told)


def _wishes(finished: RunDirectory) -> Iterator[ExplainQuery]:
    attempts = [entry for entry in finished.decisions() if attempt_of(entry)]
    for entry in attempts[len(attempts) // 2 :: 80]:
        yield ExplainQuery(pod=entry.observed.object.uid, attempt=attempt_of(entry))
    yield ExplainQuery(pod=attempts[-1].observed.object.uid)
