"""`--compare-recorded`: recorded decisions, judged by a real scheduler service."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from replay.compare.comparison import Comparison, ComparisonReport, FindingOutcome
from replay.compare.reading import read_recording
from replay.compare.recorded import DecisionKind
from replay.compare.run import CompareSettings, SchedulerEvaluationSession, compare_recorded
from reprieve.scheduler.v1beta1 import scheduler_pb2
from tests.e2e.commands import REFUSED, reprieve
from tests.e2e.replays import SHARED
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
def judge(here: EmbeddedServices) -> Iterator[SchedulerEvaluationSession]:
    """Open a session by the rules of v1.36, which the recordings are of."""
    config = scheduler_pb2.SchedulerConfig(rules="v1.36")
    session = SchedulerEvaluationSession(here.addresses["scheduler"], config)
    yield session
    session.close()


def compared(here: EmbeddedServices, path: Path) -> ComparisonReport:
    """Compare a recording."""
    address = here.addresses["scheduler"]
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
    output = json.loads(done.stdout)["decisions"]
    assert {kind: counts["agrees"] for kind, counts in output.items()} == {
        "bind": 1,
        "preemption": 1,
        "failure": 1,
        "eviction": 0,
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
    assert "--compare-recorded replays nothing" in done.stderr


def test_a_preemption_that_budgets_would_explain_misses_data(tmp_path: Path) -> None:
    """The rules take `a`, whose priority is lower; its budget is in no recording of pods alone."""
    write(
        tmp_path,
        node("n", 1),
        node("m", 2),
        line(3, "ADDED", pod("a", 3, cpu="2", priority=1)),
        line(3, "MODIFIED", pod("a", 4, cpu="2", priority=1, node="n")),
        line(4, "ADDED", pod("b", 5, cpu="2", priority=5)),
        line(4, "MODIFIED", pod("b", 6, cpu="2", priority=5, node="m")),
        line(7, "ADDED", pod("high", 7, cpu="2", priority=9)),
        line(8, "MODIFIED", victim("b", 8, "m")),
        line(
            8,
            "MODIFIED",
            pod(
                "high",
                9,
                cpu="2",
                priority=9,
                refused="0/2 nodes are available: 2 Insufficient cpu.",
                status={"nominatedNodeName": "m"},
            ),
        ),
    )
    done = reprieve(tmp_path, "replay", ".", "--compare-recorded", "-o", "wide")
    assert "missing data: agrees with disruption budgets" in done.stdout
    assert "protect default/a" in done.stdout


def before_a_nomination(folder: Path, mine: Sequence[bytes], *lines: bytes, cpu: str) -> None:
    """Write a recording in which `old` ends on n, and `first` then preempts on m.

    The scheduler knows its own nomination at once, the end of `old` only by its watch. No state
    that the recording went through is the one in which it decides what comes next.
    """
    refused = "0/2 nodes are available: 2 Insufficient cpu."
    nominated = {"refused": refused, "status": {"nominatedNodeName": "m"}}
    write(
        folder,
        node("n", 1, cpu=cpu),
        node("m", 2),
        *mine,
        line(3, "ADDED", pod("old", 10, priority=20, node="n")),
        line(3, "ADDED", pod("w", 11, cpu="2", node="m")),
        line(3, "ADDED", pod("first", 12, cpu="2", priority=9)),
        line(3, "ADDED", pod("next", 13, cpu=NEXT, priority=5)),
        line(4, "DELETED", pod("old", 14, priority=20, node="n")),
        line(4, "MODIFIED", victim("w", 15, "m")),
        line(4, "MODIFIED", pod("first", 16, cpu="2", priority=9, **nominated)),
        *lines,
        events=[preempted_event("w", "first", "m"), preempted_event("a", "next", "n")],
    )


NEXT = "1500m"


def test_an_end_that_was_not_seen_beside_a_nomination_explains_a_failure(tmp_path: Path) -> None:
    """With `old` gone `next` fits on n; before its end `first` had no nomination."""
    refused = (
        "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: "
        "1 Insufficient cpu, 1 No preemption victims found for incoming pod."
    )
    held = [line(3, "ADDED", pod("held", 4, priority=20, node="n"))]
    failed = line(4, "MODIFIED", pod("next", 17, cpu=NEXT, priority=5, refused=refused))
    before_a_nomination(tmp_path, held, failed, cpu="2500m")
    done = reprieve(tmp_path, "replay", ".", "--compare-recorded", "-o", "json")
    printed = json.loads(done.stdout)["findings"]
    assert [(decision["pod"], decision["reason"]) for decision in printed] == [
        ("default/next", "events not seen yet")
    ]
    assert printed[0]["explanation"] == (
        "agrees where on node n was not seen yet: the removal of Pod default/old "
        "(resourceVersion 14, 0 ms before)"
    )


def test_an_end_that_was_not_seen_beside_a_nomination_explains_a_victim(tmp_path: Path) -> None:
    """With `old` gone `b` would do; before its end `next` would preempt `w` on m."""
    held = [
        line(3, "ADDED", pod("a", 4, cpu="1500m", priority=2, node="n")),
        line(3, "ADDED", pod("b", 5, cpu="500m", priority=1, node="n")),
    ]
    message = {"refused": "0/2 nodes are available: 2 Insufficient cpu.", **NOMINATED}
    chosen = [
        line(4, "MODIFIED", victim("a", 17, "n")),
        line(4, "MODIFIED", pod("next", 18, cpu=NEXT, priority=5, **message)),
    ]
    before_a_nomination(tmp_path, held, *chosen, cpu="3")
    done = reprieve(tmp_path, "replay", ".", "--compare-recorded", "-o", "json")
    printed = json.loads(done.stdout)["findings"]
    assert [(decision["decision"], decision["got"]) for decision in printed] == [
        ("preemption", "nominated to n over default/b")
    ]
    assert "on node n was not seen yet" in printed[0]["explanation"]
    assert "Pod default/old (resourceVersion 14" in printed[0]["explanation"]


def bound_to_the_fuller_node(folder: Path) -> None:
    """Write a recording in which `big` is bound to n though m is the better one."""
    write(
        folder,
        node("n", 1, cpu="4"),
        node("m", 2, cpu="8"),
        line(3, "ADDED", pod("big", 3, cpu="4")),
        line(4, "MODIFIED", pod("big", 4, cpu="4", node="n")),
    )


def test_a_free_run_is_a_second_figure_and_is_left_where_it_is_asked_for(tmp_path: Path) -> None:
    """It takes m, so that none of one binding is the recorded one."""
    bound_to_the_fuller_node(tmp_path)
    options = ("--compare-recorded", "--free-run", "--run", "r", "-o", "json")
    done = reprieve(tmp_path, "replay", "all.jsonl", *options, code=DIFFERS)
    output = json.loads(done.stdout)
    assert output["decisions"]["bind"]["differs"] == 1
    assert output["free_run"]["bindings"]["another node"] == 1
    assert (tmp_path / "r" / "decisions.jsonl").is_file()


def test_a_trace_of_outcomes_without_states_is_compared_with_a_free_run(tmp_path: Path) -> None:
    """The native format keeps what was observed: it informs, and no difference is a failure."""
    bound_to_the_fuller_node(tmp_path)
    reprieve(tmp_path, "convert", "all.jsonl", "-o", "trace.ktr")
    done = reprieve(tmp_path, "replay", "trace.ktr", "--compare-recorded")
    assert "Free run: 0 of 1 recorded bindings (0.0%) to the recorded node" in done.stdout
    assert "DECISION" not in done.stdout


def test_a_trace_without_outcomes_is_refused(tmp_path: Path) -> None:
    """Whether its format never has any, or it happens to have none."""
    write(tmp_path, node("n", 1), line(3, "ADDED", pod("p", 3)))
    (tmp_path / "pod.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n")
    done = reprieve(tmp_path, "replay", "pod.yaml", "--compare-recorded", code=REFUSED)
    assert "no scheduler's decisions" in done.stderr
    reprieve(tmp_path, "convert", "all.jsonl", "-o", "trace.ktr")
    done = reprieve(tmp_path, "replay", "trace.ktr", "--compare-recorded", code=REFUSED)
    assert "has no observed binding, preemption or eviction" in done.stderr


def test_following_a_recording_starts_free_with_what_had_been_bound(tmp_path: Path) -> None:
    """`low` stays on n, where it was bound; `late` is decided again, and the manifest says so."""
    write(
        tmp_path,
        node("n", 1, cpu="4"),
        node("m", 2, cpu="8"),
        line(3, "ADDED", pod("low", 3)),
        line(4, "MODIFIED", pod("low", 4, node="n")),
        line(6, "ADDED", pod("late", 5)),
        line(8, "MODIFIED", pod("late", 6, node="n")),
    )
    options = ("--follow-until", "5s", "--run", "r", "--in-process")
    output = reprieve(tmp_path, "replay", "all.jsonl", *options, reports=True).stdout
    assert "the recording is followed until" in " ".join(output.split())
    decided = [json.loads(line) for line in (tmp_path / "r" / "decisions.jsonl").open()]
    bound = [e["observed"] for e in decided if "scheduled" in e["observed"]]
    assert [(e["object"]["name"], e["scheduled"]["nodeName"]) for e in bound] == [("late", "m")]
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    assert manifest["configuration"]["follow_until"] == "5s"
    assert "the recording until 5s, then simulated" in (tmp_path / "r" / "report.html").read_text()


@recorded
@pytest.mark.parametrize(
    ("name", "binds", "preemptions"), [("a", 3, 1), ("c", 13, 6), ("e", 34, 10)]
)
def test_every_binding_and_preemption_of_a_recording_agrees(
    here: EmbeddedServices, name: str, binds: int, preemptions: int
) -> None:
    """A refusal may be explained: it was written before its scheduler had seen the last change."""
    report = compared(here, RECORDINGS / name)
    assert report.outcomes[DecisionKind.BIND, FindingOutcome.AGREES] == binds
    assert report.outcomes[DecisionKind.PREEMPTION, FindingOutcome.AGREES] == preemptions
    assert report.of(FindingOutcome.DIFFERS) == 0
    assert report.of(FindingOutcome.NOT_JUDGED) == 0


@recorded
def test_the_first_decisions_of_a_busy_cluster_agree_or_are_explained(
    judge: SchedulerEvaluationSession,
) -> None:
    """Recording b2: bursts of bindings, of which the log's order is not always the decisions'."""
    recording = read_recording([RECORDINGS / "b2"], format_name=None, scheduler_names=judge.names)
    report = ComparisonReport(rules="v1.36", kubernetes_version="v1.36.2", order="", notes=[])
    report.add(itertools.islice(Comparison(recording, judge).findings(), FIRST))
    assert report.of(FindingOutcome.DIFFERS) == 0
    assert report.sole[FindingOutcome.AGREES] > 0.9 * sum(report.sole.values()) > 50
