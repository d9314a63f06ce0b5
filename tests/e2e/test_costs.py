"""Cycles and bindings that take simulated time."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.explain.explain import explain
from replay.explain.target import ExplainQuery
from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace
from replay.runner import FinishedReplay
from replay.world.models import Models
from tests.e2e.replays import run

MS = 1_000_000
NODE = """
apiVersion: v1
kind: Node
metadata: {name: 'n'}
status:
  allocatable: {cpu: "4", memory: 4Gi, pods: "10"}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
---"""
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  priorityClassName: {class_name}
  terminationGracePeriodSeconds: 1
  containers:
  - {{name: c, image: x, resources: {{requests: {{cpu: "{cpu}"}}}}}}
---"""


def pod(name: str, cpu: int = 1, class_name: str = '""') -> str:
    """Return a pod's manifest."""
    return POD.format(name=name, cpu=cpu, class_name=class_name)


def play(
    here: EmbeddedServices, folder: Path, text: str, models: Models, *, batch_size: int = 0
) -> FinishedReplay:
    """Replay manifests whose pods come every millisecond."""
    folder.mkdir(exist_ok=True)
    path = folder / "cluster.yaml"
    path.write_text(text, encoding="utf-8")
    records = open_trace([path], options=ImportOptions(every_ns=MS))
    return run(here, records, folder / "run", models=models, batch_size=batch_size)


def scheduled(finished: FinishedReplay) -> dict[str, tuple[float, float]]:
    """Return when each pod was bound, and how long it had waited, in ms."""
    return {
        entry.observed.object.name: (
            entry.time_ns / MS,
            entry.observed.scheduled.waited_duration_ns / MS,
        )
        for entry in finished.run.decisions()
        if entry.observed.HasField("scheduled") and not entry.refused
    }


@pytest.mark.e2e
def test_cycles_come_one_after_the_other_and_bindings_beside_them(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """Pods that come every 1 ms, in cycles of 10 ms, each bound 25 ms later."""
    models = Models(cycle_cost_ns=10 * MS, bind_cost_ns=25 * MS)
    finished = play(here, tmp_path, NODE + pod("a") + pod("b") + pod("c"), models)
    assert scheduled(finished) == {"a": (35, 35), "b": (45, 44), "c": (55, 53)}


@pytest.mark.e2e
def test_a_binding_alone_may_cost(here: EmbeddedServices, tmp_path: Path) -> None:
    """Pods are then decided when they come."""
    models = Models(bind_cost_ns=25 * MS)
    finished = play(here, tmp_path, NODE + pod("a") + pod("b"), models)
    assert scheduled(finished) == {"a": (25, 25), "b": (26, 25)}


@pytest.mark.e2e
@pytest.mark.parametrize("batch_size", [1, 1000])
def test_a_victim_whose_binding_is_under_way_is_removed_and_its_binding_fails(
    here: EmbeddedServices, tmp_path: Path, batch_size: int
) -> None:
    """It has no node at the API server yet, so that no grace period holds it.

    The scheduler frees its room when the binding fails, at 25 ms.
    """
    models = Models(bind_cost_ns=25 * MS)
    text = NODE + pod("a", 3) + pod("big", 2, "high")
    finished = play(here, tmp_path, text, models, batch_size=batch_size)
    assert scheduled(finished) == {"big": (50, 49)}
    log = [
        (entry.time_ns / MS, entry.observed.object.name, entry.observed.WhichOneof("observed"))
        for entry in finished.run.decisions()
    ]
    assert (1, "a", "preempted") in log
    assert (1, "a", "removed") in log
    assert finished.summary.decided.refused == 0


@pytest.mark.e2e
def test_a_decision_with_costs_is_explained_as_it_was_taken(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """Told again, the history leads to it."""
    models = Models(cycle_cost_ns=10 * MS, bind_cost_ns=5 * MS)
    text = NODE + pod("a", 3) + pod("big", 2, "high")
    finished = play(here, tmp_path, text, models)
    for name, attempt in (("a", 1), ("big", 2)):
        explained = explain(finished.run, ExplainQuery(pod=name), top=3)
        assert explained.attempt == attempt
        assert explained.node == "n"


@pytest.mark.e2e
def test_decisions_with_costs_are_the_same_in_batches_of_any_size(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """With a preemption, and pods that find no room and come again."""
    names = "abcdefgh"
    text = NODE + "".join(pod(name) for name in names)
    text += pod("big", 3, "high") + pod("late") + pod("huge", 3, "high")
    logs = []
    for size in (1, 2, 1000):
        models = Models(cycle_cost_ns=3 * MS, bind_cost_ns=2 * MS)
        finished = play(here, tmp_path / str(size), text, models, batch_size=size)
        logs.append((finished.run.path / "decisions.jsonl").read_bytes())
        assert {"big"} <= scheduled(finished).keys()
    assert logs[0] == logs[1] == logs[2]
