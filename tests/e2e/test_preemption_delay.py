"""Preemption whose deletions take time, as from v1.33 on: known answers, reasoned by hand.

Each node has room for one pod. `low` runs on n1 and takes a second to stop.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.explain.waits import DELETIONS, ROOM, waits_of
from replay.runner import FinishedReplay
from replay.world.models import Models, with_values
from reprieve.trace.v1beta1 import trace_pb2
from tests.e2e.replays import run
from tests.e2e.test_budgets import bursts
from tests.e2e.test_plain_loop import compared
from tests.unit.world.builders import (
    S,
    create,
    create_pod,
    delete,
    make_budget,
    make_node,
    make_pod,
)

pytestmark = pytest.mark.e2e
DELAYED = with_values(Models(), ["preemption-delay=5s"])
Entry = tuple[int, str, str, str]
"""Seconds, what, the pod, and a node or the pod that preempts."""


def node(name: str) -> trace_pb2.Record:
    """Return the record of a node with room for one pod."""
    return create(make_node(name, "1Gi"))


def running(name: str, on: str, *, priority: int = 0, owner: str = "") -> trace_pb2.Record:
    """Return the record of a pod that runs and takes a second to stop."""
    labels = {"app": owner} if owner else None
    return create_pod(
        make_pod(name, node=on, priority=priority, labels=labels, grace_s=1, ready=True)
    )


def coming(name: str, *, priority: int = 1000) -> trace_pb2.Record:
    """Return the record of a pod that needs a node."""
    return create_pod(make_pod(name, priority=priority, grace_s=0))


def at(seconds: int, record: trace_pb2.Record) -> trace_pb2.Record:
    """Return a record of that time."""
    record.time_ns = seconds * S
    return record


def played(
    here: EmbeddedServices,
    folder: Path,
    records: Iterable[trace_pb2.Record],
    models: Models = DELAYED,
    batch_size: int = 0,
) -> FinishedReplay:
    """Replay records."""
    header = trace_pb2.Record(header=trace_pb2.Header(format_version=2))
    return run(here, [header, *records], folder / "run", models=models, batch_size=batch_size)


def entries(finished: FinishedReplay) -> list[Entry]:
    """Return the nominations, deletions and bindings of a run, in order."""
    log: list[Entry] = []
    for decision in finished.run.decisions():
        seconds, observed = decision.time_ns // S, decision.observed
        name = observed.object.name
        match observed.WhichOneof("observed"):
            case "nominated":
                log.append((seconds, "nominated", name, observed.nominated.node_name))
            case "preempted":
                log.append((seconds, "preempted", name, observed.preempted.by.name))
            case "scheduled" if not decision.refused:
                log.append((seconds, "scheduled", name, observed.scheduled.node_name))
    return log


@pytest.mark.parametrize("batch_size", [1, 256])
def test_room_elsewhere_does_not_wake_a_preemptor_before_its_victims(
    here: EmbeddedServices, tmp_path: Path, batch_size: int
) -> None:
    """n2 gets room after two seconds; the gate holds until the deletion at 5 s, which ends at 6."""
    records = [
        *(node("n1"), node("n2")),
        running("low", "n1"),
        running("other", "n2", priority=2000),
        coming("urgent"),
        at(2, delete("Pod", "other", grace_s=0)),
    ]
    finished = played(here, tmp_path, records, batch_size=batch_size)
    assert entries(finished) == [
        (0, "nominated", "urgent", "n1"),
        (5, "preempted", "low", "urgent"),
        (6, "scheduled", "urgent", "n1"),
    ]
    ((part, following),) = [pod.parts for pod in waits_of(finished.run, "urgent").pods]
    assert (part.cause, part.length_ns, part.details) == (DELETIONS, 5 * S, (("n1", 1),))
    assert (following.cause, following.length_ns) == (ROOM, S)


def test_without_a_delay_victims_are_deleted_with_the_decision(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """And the wait is for their end alone."""
    records = [node("n1"), running("low", "n1"), coming("urgent")]
    none = with_values(DELAYED, ["preemption-delay=0s"])
    assert none == Models()
    finished = played(here, tmp_path, records, none)
    assert entries(finished) == [
        (0, "nominated", "urgent", "n1"),
        (0, "preempted", "low", "urgent"),
        (1, "scheduled", "urgent", "n1"),
    ]
    assert [part.cause for part in waits_of(finished.run, "urgent").pods[0].parts] == [ROOM]


def test_a_pod_of_higher_priority_takes_the_room_and_preempts_the_same_victim(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """`low` is not terminating yet when `top` is tried; its second deletion finds that it is."""
    records = [
        node("n1"),
        running("low", "n1"),
        coming("urgent"),
        at(1, coming("top", priority=2000)),
    ]
    assert entries(played(here, tmp_path, records)) == [
        (0, "nominated", "urgent", "n1"),
        (1, "nominated", "top", "n1"),
        (5, "preempted", "low", "urgent"),
        (6, "nominated", "urgent", ""),
        (6, "scheduled", "top", "n1"),
    ]


def test_victims_are_deleted_although_their_preemptor_has_gone(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """As upstream does, which does not follow the preemptor meanwhile."""
    records = [
        node("n1"),
        running("low", "n1"),
        coming("urgent"),
        at(2, delete("Pod", "urgent", grace_s=0)),
    ]
    assert entries(played(here, tmp_path, records)) == [
        (0, "nominated", "urgent", "n1"),
        (5, "preempted", "low", "urgent"),
    ]


def test_a_victim_that_has_gone_meanwhile_leaves_its_room(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """The preemptor is gated at its end; when the gate opens no event is left that moves it.

    Upstream's pod waits for another event, too: the flush of pods that have been unschedulable for
    five minutes leaves gated ones. Here a later pod's end is that event.
    """
    records = [
        *(node("n1"), node("n2")),
        running("low", "n1"),
        running("other", "n2", priority=2000),
        coming("urgent"),
        at(2, delete("Pod", "low", grace_s=0)),
        at(9, delete("Pod", "other", grace_s=0)),
    ]
    assert entries(played(here, tmp_path, records)) == [
        (0, "nominated", "urgent", "n1"),
        (9, "scheduled", "urgent", "n1"),
    ]


@pytest.mark.parametrize(("model", "violations"), [("5s", [0, 0]), ("off", [0, 1])])
def test_preemptors_whose_deletions_are_under_way_read_an_unused_budget(
    here: EmbeddedServices, tmp_path: Path, model: str, violations: list[int]
) -> None:
    """One of two web pods may go; with a delay each of the preemptors counts on that."""
    records = [
        *(node("n1"), node("n2")),
        create(make_budget(min_available=1)),
        running("web-1", "n1", owner="web"),
        running("web-2", "n2", owner="web"),
        *(coming("urgent-1"), coming("urgent-2")),
    ]
    models = with_values(Models(), [f"preemption-delay={model}"])
    finished = played(here, tmp_path, records, models)
    noted = [note["kind"] for note in finished.run.summary()["notes"]]
    assert noted.count("preemption-delay") == (model != "off")
    decisions = list(finished.run.decisions())
    nominated = [decision.observed.nominated for decision in decisions]
    assert [
        nomination.budget_violations for nomination in nominated if nomination.node_name
    ] == violations
    preempted = [
        entry.observed.preempted for entry in decisions if entry.observed.HasField("preempted")
    ]
    assert [preemption.violates_budget for preemption in preempted] == [False, True]


@pytest.mark.parametrize("seed", range(4))
def test_events_that_wait_change_no_decision(
    here: EmbeddedServices, tmp_path: Path, seed: int
) -> None:
    """The plain loop is right with preemptions under way, and budgets that are late."""
    texts = [f"preemption-delay={3 + 4 * (seed % 2)}s", f"budget-delay={seed % 3}s"]
    models = with_values(Models(), texts)
    ahead, _ = compared(here, list(bursts(seed)), tmp_path, models)
    log = (tmp_path / "ahead" / "decisions.jsonl").read_bytes()
    run(here, bursts(seed), tmp_path / "one", seed=2, models=models, batch_size=1)
    assert (tmp_path / "one" / "decisions.jsonl").read_bytes() == log
    assert ahead.summary.decided.preemptors
