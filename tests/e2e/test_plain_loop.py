"""The loop is right alone: without look-ahead it makes the same decisions, in more messages."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.generate.workload import GenerateOptions, generate
from replay.runner import FinishedReplay
from replay.world.loop.replay import Replay
from replay.world.models import Models
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import SECOND_NS
from tests.e2e.replays import DEMOS, run, trace
from tests.e2e.test_windows import MS, workload

pytestmark = pytest.mark.e2e
WORKLOAD = GenerateOptions(
    seed=11,
    nodes=10,
    pods=200,
    deployments=4,
    budgets=8,
    window_ns=90 * SECOND_NS,
    service_ns=60 * SECOND_NS,
)


def run_plainly(
    services: EmbeddedServices,
    records: Iterable[trace_pb2.Record],
    folder: Path,
    models: Models,
    rules: str,
) -> FinishedReplay:
    """Replay records without look-ahead."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Replay, "send_through", lambda *_: None)
        return run(services, records, folder, seed=2, models=models, rules=rules)


def compared(
    services: EmbeddedServices,
    records: list[trace_pb2.Record],
    tmp_path: Path,
    models: Models | None = None,
    rules: str = "v1.34",
) -> tuple[FinishedReplay, FinishedReplay]:
    """Replay records with and without look-ahead, and compare the decision logs."""
    models = models or Models()
    ahead = run(services, records, tmp_path / "ahead", seed=2, models=models, rules=rules)
    plain = run_plainly(services, records, tmp_path / "plain", models, rules)
    log, same = ((tmp_path / name / "decisions.jsonl").read_bytes() for name in ("ahead", "plain"))
    assert log == same
    assert log
    return ahead, plain


@pytest.mark.parametrize("rules", ["v1.34", "v1.16"])
def test_events_that_wait_change_no_decision(
    here: EmbeddedServices, tmp_path: Path, rules: str
) -> None:
    """In a cluster with Deployments, budgets and pods that wait."""
    ahead, plain = compared(here, list(generate(WORKLOAD)), tmp_path, rules=rules)
    assert ahead.summary.decided.failed_attempts > 0
    assert ahead.summary.rounds < 0.8 * plain.summary.rounds


@pytest.mark.parametrize("seed", range(8))
def test_rounds_that_are_sent_ahead_change_no_decision(
    here: EmbeddedServices, tmp_path: Path, seed: int
) -> None:
    """Where pods come one by one, with everything among them that ends a window."""
    ahead, plain = compared(here, workload(seed), tmp_path)
    assert ahead.summary.messages < plain.summary.messages


@pytest.mark.parametrize("seed", range(2))
def test_cycles_and_bindings_that_take_time_are_the_plain_loops_own(
    here: EmbeddedServices, tmp_path: Path, seed: int
) -> None:
    """Events that come during a cycle are sent at its end, with look-ahead or without."""
    models = Models(cycle_cost_ns=5 * MS, bind_cost_ns=20 * MS)
    compared(here, workload(seed), tmp_path, models)


@pytest.mark.parametrize("name", ["nginx-preemption.jsonl", "eviction-loop.jsonl"])
def test_demos_have_the_same_decisions_without_look_ahead(
    here: EmbeddedServices, tmp_path: Path, name: str
) -> None:
    """Preemption with nominations, and evictions from nodes under pressure."""
    compared(here, trace([DEMOS / name]), tmp_path)
