"""Generated clusters with devices: nothing is given twice, and no shortcut changes a decision."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.backends.processes import EmbeddedServices
from replay.results.run.directory import RunDirectory
from replay.world.models import Models
from services.kube.devices import ResourceClaim
from services.kube.quantity import parse
from services.kube.time import SECOND_NS
from services.scheduler.core.queueing.steps import Move
from services.scheduler.core.session.scheduler import Scheduler
from tests import device_objects as k8s
from tests.device_workload import MEMORY, workload
from tests.e2e.replays import run
from tests.e2e.test_plain_loop import run_plainly

pytestmark = pytest.mark.e2e


def check(finished: RunDirectory) -> int:
    """Check every state of a run's claims; return how many devices were allocated at most."""
    most = 0
    for claims in k8s.claims_over_time(finished):
        given = k8s.allocated(claims)
        assert set(given.values()) <= {1}, given
        parts: Counter[str] = Counter()
        for device in given:
            pool, name = device.split("/")
            if name.startswith("part-"):
                parts[pool] += (10, 10, 20, 40)[int(name.removeprefix("part-"))]
        assert all(size <= MEMORY for size in parts.values()), parts
        limit = parse(f"{MEMORY}Gi").nano
        assert all(amount <= limit for amount in k8s.consumed(claims).values())
        for claim in claims.values():
            assert claim.status.HasField("allocation") or not claim.status.reserved_for
        most = max(most, len(given) + len(k8s.consumed(claims)))
    return most


@settings(max_examples=25)
@given(seed=st.integers(0, 2**16), rules=st.sampled_from(["v1.34", "v1.36"]))
def test_no_device_is_given_twice_and_no_counter_is_exceeded(
    here: EmbeddedServices, tmp_path_factory: pytest.TempPathFactory, seed: int, rules: str
) -> None:
    """Whatever is batched, and with and without look-ahead: the same decisions, none too many."""
    folder = tmp_path_factory.mktemp("runs")
    # v1.34 has shared capacities off, and then an error where a request names one.
    records = workload(folder, seed, shared=rules == "v1.36")
    finished = run(here, records, folder / "run", seed=2, rules=rules)
    check(finished.run)
    run(here, records, folder / "single", seed=2, rules=rules, batch_size=1)
    run_plainly(here, records, folder / "plain", Models(), rules)
    logs = [(folder / name / "decisions.jsonl").read_bytes() for name in ("run", "single", "plain")]
    assert logs[0] == logs[1]
    # A plain run has another seed for its ties.
    assert len(logs[2].splitlines()) > 0


def test_the_generated_clusters_use_devices_of_every_kind(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """Whole ones, parts and shares, several at a time."""
    used: set[str] = set()
    for seed in range(4):
        finished = run(here, workload(tmp_path, seed), tmp_path / str(seed), rules="v1.36")
        assert check(finished.run) > 1
        for claims in k8s.claims_over_time(finished.run):
            used |= {name.split("/")[1].split("-")[0] for name in k8s.allocated(claims)}
            used |= {name.split("/")[1] for name, _ in k8s.consumed(claims)}
    assert used == {"gpu", "part", "shared"}


def test_a_queue_that_hears_of_every_claim_moves_the_same_pods(
    here: EmbeddedServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler withholds an event of a claim unless a pod that uses it may move."""
    hears = Scheduler.may_move_pods
    heard: list[bool] = []

    def sent(scheduler: Scheduler, move: Move) -> bool:
        if isinstance(move.new, ResourceClaim):
            heard.append(hears(scheduler, move))
        return True

    for seed in range(8):
        records = workload(tmp_path, seed)
        run(here, records, tmp_path / f"spared-{seed}", rules="v1.36")
        with monkeypatch.context() as patch:
            patch.setattr(Scheduler, "may_move_pods", sent)
            run(here, records, tmp_path / f"all-{seed}", rules="v1.36")
        logs = [
            (tmp_path / f"{name}-{seed}" / "decisions.jsonl").read_bytes()
            for name in ("spared", "all")
        ]
        assert logs[0] == logs[1]
    assert set(heard) == {True, False}


@pytest.mark.parametrize("cost", [0, SECOND_NS])
def test_bindings_that_take_time_give_nothing_twice(
    here: EmbeddedServices, tmp_path: Path, cost: int
) -> None:
    """A claim changes while the binding that allocates it is under way."""
    models = Models(bind_cost_ns=2 * SECOND_NS, cycle_cost_ns=cost)
    for seed in range(4):
        records = workload(tmp_path, seed)
        finished = run(here, records, tmp_path / str(seed), rules="v1.36", models=models)
        check(finished.run)
