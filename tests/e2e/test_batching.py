"""Batching never changes a decision."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.backends.processes import EmbeddedServices
from replay.generate.workload import GenerateOptions, generate
from replay.results.run.decision_log import one_by_one
from reprieve.scheduler.v1beta1.scheduler_pb2 import RoundOutcomes
from reprieve.scheduler.v1beta1.scheduler_pb2 import SchedulerConfig as Config
from reprieve.trace.v1beta1.trace_pb2 import Record
from services.kube.time import SECOND_NS
from services.scheduler.batch import Batch
from services.scheduler.session import SchedulerSession
from tests.e2e.random_world import RandomWorld
from tests.e2e.replays import run
from tests.e2e.test_scheduler_checkpoints import Talker

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
        record.time_ns -= record.time_ns % BURST_NS
        yield record


@pytest.mark.e2e
@pytest.mark.parametrize("rules", ["v1.34", "v1.16"])
def test_one_pod_an_exchange_or_a_thousand_give_the_same_bytes(
    here: EmbeddedServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: str
) -> None:
    """K=1, K=7 and K=1,000 write one decision log of bursts on a full cluster with budgets."""
    commit, sizes = SchedulerSession._commit, list[int]()

    def noted(session: SchedulerSession, batch: Batch, outcomes: RoundOutcomes) -> Awaitable[int]:
        if batch.entries:
            sizes.append(len(batch.entries))
        return commit(session, batch, outcomes)

    monkeypatch.setattr(SchedulerSession, "_commit", noted)
    logs = []
    for batch_size, mean in ((1, 0.9), (7, 3), (1000, 20)):
        sizes.clear()
        run_path = tmp_path / f"k{batch_size}"
        run(here, bursts(), run_path, seed=3, rules=rules, batch_size=batch_size)
        logs.append((run_path / "decisions.jsonl").read_bytes())
        assert max(sizes) <= batch_size
        assert sum(sizes) / len(sizes) > mean
    assert logs[0] == logs[1] == logs[2]
    observed = [json.loads(line).get("observed", {}) for line in logs[0].splitlines()]
    nominated = [entry["nominated"] for entry in observed if "nominated" in entry]
    assert any(nomination.get("decidedBy") == "1-pdb-violations" for nomination in nominated)
    assert any(
        entry["preempted"].get("violatesBudget") for entry in observed if "preempted" in entry
    )
    assert any("failedScheduling" in entry for entry in observed)
    assert any("scheduled" in entry for entry in observed)


@pytest.mark.e2e
@settings(max_examples=8)
@given(seed=st.integers(0, 2**16), rules=st.sampled_from(["v1.34", "v1.36", "v1.16"]))
def test_pods_that_wait_together_are_refused_as_one_by_one(
    services: EmbeddedServices, here: EmbeddedServices, seed: int, rules: str
) -> None:
    """Each attempt in its order, with its times and words, and what the queue holds after it."""
    sides = [(here, 1), (here, 7), (services, 1000)]
    talkers = [
        Talker(side.addresses["scheduler"], Config(seed=seed, rules=rules, batch_size=size))
        for side, size in sides
    ]
    world = RandomWorld(seed, pods_at_once=6)
    for round_ in world.rounds(30):
        answers = [_outcomes(talker.tell(round_)) for talker in talkers]
        first, *others = ([*one_by_one(answer)] for answer in answers)
        assert all(other == first for other in others)
        world.decided(answers[-1])
        states = [talker.state() for talker in talkers]
        assert all(state == states[0] for state in states[1:])
    for talker in talkers:
        talker.close()


@pytest.mark.e2e
@pytest.mark.parametrize("rules", ["v1.34", "v1.36", "v1.16"])
def test_pods_that_wait_together_are_refused_in_one_outcome(
    here: EmbeddedServices, rules: str
) -> None:
    """So the worlds of the property above have such pods; a world of few pods need not."""
    talker = Talker(here.addresses["scheduler"], Config(seed=1, rules=rules, batch_size=1000))
    world, longest = RandomWorld(1, pods_at_once=6), 0
    for round_ in world.rounds(30):
        outcomes = _outcomes(talker.tell(round_))
        world.decided(outcomes)
        longest = max([longest, *(len(outcome.refusals.uids) for outcome in outcomes.outcomes)])
    talker.close()
    assert longest > 4


def _outcomes(said: bytes) -> RoundOutcomes:
    return RoundOutcomes.FromString(said)
