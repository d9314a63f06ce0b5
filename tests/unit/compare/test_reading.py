"""Decisions inferred from a recording, their positions, and the victims of each preemption."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.compare.reading import read_recording
from replay.compare.recorded import DecisionKind
from replay.errors import TraceError
from tests.unit.compare.builders import FIT, node, pod, preempted_event, recording, victim
from tests.unit.importers.builders import Raw, line

HELPLESS = f"{FIT} preemption: 0/1 nodes are available: 1 Preemption is not helpful."


def test_a_binding_a_refusal_and_a_preemption_are_decisions(tmp_path: Path) -> None:
    """Each follows from the change that wrote it."""
    recorded = recording(
        tmp_path,
        node("n", 1),
        line(3, "ADDED", pod("a", 2)),
        line(4, "MODIFIED", pod("a", 3, node="n")),
        line(5, "ADDED", pod("b", 4)),
        line(6, "MODIFIED", pod("b", 5, refused=HELPLESS)),
        line(7, "MODIFIED", pod("b", 6, refused=FIT, status={"nominatedNodeName": "n"})),
    )
    decisions = [
        (entry.kind, entry.pod.name, entry.node, entry.position) for entry in recorded.decisions
    ]
    assert decisions == [
        (DecisionKind.BIND, "a", "n", 2),
        (DecisionKind.FAILURE, "b", "", 4),
        (DecisionKind.PREEMPTION, "b", "n", 5),
    ]


def test_a_gated_pod_and_one_of_another_scheduler_are_not_decided_about(tmp_path: Path) -> None:
    """The scheduler never tried the first pod, and the second belongs to another scheduler."""
    gated = pod("gated", 2, conditions=[("PodScheduled", "False", "SchedulingGated")])
    other = pod("other", 3)
    other["spec"]["schedulerName"] = "other"
    bound = pod("other", 4, node="n")
    bound["spec"]["schedulerName"] = "other"
    lines = (
        node("n", 1),
        line(3, "ADDED", gated),
        line(3, "ADDED", other),
        line(4, "MODIFIED", bound),
    )
    assert recording(tmp_path, *lines).decisions == []
    ours = recording(tmp_path, *lines, scheduler_names=["other"])
    assert [entry.pod.name for entry in ours.decisions] == ["other"]


def test_an_attempt_that_says_nothing_of_preemption_and_stays_nominated_preempted_again(
    tmp_path: Path,
) -> None:
    """Its nomination does not change; only the message shows it."""
    nominated = {"nominatedNodeName": "n"}
    recorded = recording(
        tmp_path,
        node("n", 1),
        line(3, "ADDED", pod("b", 2)),
        line(4, "MODIFIED", pod("b", 3, refused=FIT, status=nominated)),
        line(5, "MODIFIED", pod("b", 4, refused=FIT.replace("cpu", "memory"), status=nominated)),
    )
    assert [entry.kind for entry in recorded.decisions] == [
        DecisionKind.PREEMPTION,
        DecisionKind.PREEMPTION,
    ]


@pytest.mark.parametrize("told", [True, False])
def test_a_decision_precedes_the_first_change_of_its_victims(tmp_path: Path, told: bool) -> None:
    """Whether an Event names the preemptor, or the node alone does."""
    recorded = recording(
        tmp_path,
        node("n", 1),
        line(3, "ADDED", pod("low", 2)),
        line(3, "MODIFIED", pod("low", 3, node="n")),
        line(4, "ADDED", pod("high", 4)),
        line(5, "MODIFIED", victim("low", 5, "n")),
        line(5, "MODIFIED", pod("high", 6, refused=FIT, status={"nominatedNodeName": "n"})),
        events=[preempted_event("low", "high", "n")] if told else (),
    )
    last = recorded.decisions[-1]
    assert (last.position, last.written, last.victims) == (4, 5, ("default/low",))


def test_where_events_are_recorded_a_nomination_without_any_had_no_victim(tmp_path: Path) -> None:
    """Without Events its victims are not known."""
    lines = (
        node("n", 1),
        line(4, "ADDED", pod("high", 4)),
        line(5, "MODIFIED", pod("high", 6, refused=FIT, status={"nominatedNodeName": "n"})),
    )
    assert recording(tmp_path, *lines).decisions[0].victims is None
    other = [preempted_event("somebody", "else", "m")]
    assert recording(tmp_path, *lines, events=other).decisions[0].victims == ()


def test_the_logs_order_lets_a_binding_stand_before_what_was_decided_later(tmp_path: Path) -> None:
    """`b` was decided first, and so before `a` was written."""
    lines = (
        node("n", 1),
        line(3, "ADDED", pod("a", 2)),
        line(3, "ADDED", pod("b", 3)),
        line(4, "MODIFIED", pod("a", 4, node="n")),
        line(4, "MODIFIED", pod("b", 5, node="n")),
    )
    plain = recording(tmp_path, *lines)
    assert [(entry.pod.name, entry.position) for entry in plain.decisions] == [("a", 3), ("b", 4)]
    log: list[Raw] = [
        {"pod": "default/b", "node": "n", "feasible": 1},
        {"pod": "default/a", "node": "n"},
    ]
    ordered = recording(tmp_path, *lines, log=log)
    assert ordered.has_order
    assert [(entry.pod.name, entry.position) for entry in ordered.decisions] == [("b", 3), ("a", 3)]


def test_a_trace_that_is_not_a_recording_is_refused(tmp_path: Path) -> None:
    """It does not have the states in which decisions were made."""
    manifest = tmp_path / "pods.yaml"
    manifest.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: []}\n")
    with pytest.raises(TraceError, match="give the recording"):
        read_recording([manifest], format_name=None, scheduler_names=["default-scheduler"])


def test_a_resize_in_place_matters_by_spec_and_by_status(tmp_path: Path) -> None:
    """What is in force follows from both; a container's restart count does not matter."""
    running: Raw = {"phase": "Running"}
    container: Raw = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    resized = {**container, "resources": {"requests": {"cpu": "2"}}}
    deferred = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
    statuses: list[tuple[str, Raw]] = [
        ("1", {**running, "containerStatuses": [container]}),
        ("1", {**running, "containerStatuses": [{**container, "restartCount": 1}]}),
        ("2", {**running, "containerStatuses": [container]}),
        ("2", {**running, "containerStatuses": [container], "conditions": [deferred]}),
        ("2", {**running, "containerStatuses": [resized]}),
        ("2", {**running, "containerStatuses": [resized], "allocatedResources": {"cpu": "2"}}),
    ]
    lines = [
        line(
            3 + place,
            "MODIFIED" if place else "ADDED",
            pod("p", 2 + place, node="n", cpu=cpu, status=status),
        )
        for place, (cpu, status) in enumerate(statuses)
    ]
    recorded = recording(tmp_path, node("n", 1), *lines)
    assert [event.matters for event in recorded.events[1:]] == [True, False, True, True, True, True]
