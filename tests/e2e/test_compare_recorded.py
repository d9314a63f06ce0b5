"""`--compare-recorded`: recorded decisions, judged by a real scheduler service."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.compare.comparison import Comparison
from replay.compare.findings import Outcome, Report
from replay.compare.reading import read_recording
from replay.compare.recorded import Kind
from replay.compare.run import CompareSettings, compare_recorded
from replay.compare.scheduler import JudgingScheduler
from reprieve.scheduler.v1alpha1 import scheduler_pb2
from tests.e2e.replays import SHARED
from tests.e2e.test_cli import REFUSED, reprieve
from tests.unit.compare.builders import FIT, node, pod, preempted_event, victim, write
from tests.unit.importers.builders import line

pytestmark = pytest.mark.e2e
DIFFERS = 1
RECORDINGS = SHARED / "traces" / "recordings"
FIRST = 400
NOMINATED = {"status": {"nominatedNodeName": "n"}}
recorded = pytest.mark.skipif(
    not RECORDINGS.is_dir(), reason="no ../shared/traces beside the project"
)


@pytest.fixture
def judge(services: EmbeddedServices) -> Iterator[JudgingScheduler]:
    """Open a session by the rules of v1.36, which the recordings are of."""
    config = scheduler_pb2.SchedulerConfig(rules="v1.36")
    session = JudgingScheduler(services.processes["scheduler"].address, config)
    yield session
    session.close()


def compared(services: EmbeddedServices, path: Path) -> Report:
    """Compare a recording."""
    address = services.processes["scheduler"].address
    settings = CompareSettings(paths=(path,), scheduler_address=address)
    return compare_recorded(settings, lambda _count, _total: None)


def test_a_binding_a_preemption_and_a_refusal_agree(tmp_path: Path) -> None:
    """A node of 2 cpu: `low` takes it, `high` preempts it, `never` can do nothing."""
    never = f"{FIT} preemption: 0/1 nodes are available: 1 No preemption victims found for "
    write(
        tmp_path,
        node("n", 1),
        line(3, "ADDED", pod("low", 2, cpu="2")),
        line(3, "MODIFIED", pod("low", 3, cpu="2", node="n")),
        line(5, "ADDED", pod("late", 4, cpu="2")),
        line(6, "MODIFIED", pod("late", 5, cpu="2", refused=f"{never}incoming pod.")),
        line(7, "ADDED", pod("high", 6, cpu="2", priority=9)),
        line(8, "MODIFIED", victim("low", 7, "n")),
        line(8, "MODIFIED", pod("high", 8, cpu="2", priority=9, refused=FIT, **NOMINATED)),
        events=[preempted_event("low", "high", "n")],
    )
    done = reprieve(tmp_path, "replay", ".", "--compare-recorded", "-o", "json")
    assert done.returncode == 0
    told = json.loads(done.stdout)["decisions"]
    assert {kind: counts["agrees"] for kind, counts in told.items()} == {
        "bind": 1,
        "preemption": 1,
        "failure": 1,
    }


def test_a_binding_to_a_node_without_room_differs(tmp_path: Path) -> None:
    """The command ends with 1 and tells what was expected and what came."""
    write(
        tmp_path,
        node("n", 1),
        node("m", 2, cpu="8"),
        line(3, "ADDED", pod("big", 3, cpu="4")),
        line(4, "MODIFIED", pod("big", 4, cpu="4", node="n")),
    )
    done = reprieve(tmp_path, "replay", ".", "--compare-recorded", code=DIFFERS)
    assert "expected bound to n" in done.stdout
    assert "got      bound to m" in done.stdout
    assert "1 differ, 0 not judged" in done.stdout
    assert "1 recorded decisions differ" in done.stderr


def test_a_run_directory_is_refused(tmp_path: Path) -> None:
    """Nothing is played, so nothing is left."""
    write(tmp_path, node("n", 1))
    done = reprieve(tmp_path, "replay", ".", "--compare-recorded", "--run", "r", code=REFUSED)
    assert "--compare-recorded plays nothing" in done.stderr


@recorded
@pytest.mark.parametrize(
    ("name", "binds", "preemptions"), [("a", 3, 1), ("c", 13, 6), ("e", 34, 10)]
)
def test_every_binding_and_preemption_of_a_recording_agrees(
    services: EmbeddedServices, name: str, binds: int, preemptions: int
) -> None:
    """A refusal may be explained: it was written before its scheduler had seen the last change."""
    report = compared(services, RECORDINGS / name)
    assert report.outcomes[Kind.BIND, Outcome.AGREES] == binds
    assert report.outcomes[Kind.PREEMPTION, Outcome.AGREES] == preemptions
    assert report.of(Outcome.DIFFERS) == 0
    assert report.of(Outcome.NOT_JUDGED) == 0


@recorded
def test_the_first_decisions_of_a_busy_cluster_agree_or_are_explained(
    judge: JudgingScheduler,
) -> None:
    """Recording b2: bursts of bindings, of which the log's order is not always the decisions'."""
    recording = read_recording([RECORDINGS / "b2"], format_name=None, scheduler_names=judge.names)
    report = Report(rules="v1.36", kubernetes_version="v1.36.2", order="", notes=[])
    report.add(itertools.islice(Comparison(recording, judge).findings(), FIRST))
    assert report.of(Outcome.DIFFERS) == 0
    assert report.sole[Outcome.AGREES] > 0.9 * sum(report.sole.values()) > 50
