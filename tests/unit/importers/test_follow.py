"""A recording that is followed up to a moment begins there, with what had been decided by then."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.errors import TraceError
from replay.importers.records import ImportOptions, Moment
from replay.importers.registry import open_trace
from reprieve.trace.v1beta1.trace_pb2 import Record
from tests.unit.importers.builders import (
    T0_S,
    Raw,
    S,
    imported,
    issues,
    line,
    make_object,
    make_pod,
    make_replica_set,
    observed,
)

_NODE = line(0, "ADDED", make_object("Node", "n", 1, spec={}, status={}))
_VICTIM = ("DisruptionTarget", "True", "PreemptionByScheduler")
_STOPS: Raw = {"deletionTimestamp": "2026-01-01T00:00:39Z", "deletionGracePeriodSeconds": 30}


def _followed(path: Path, moment: Moment, *lines: bytes) -> list[Record]:
    return imported(path, _NODE, *lines, options=ImportOptions(follow_until=moment))


def _after(seconds: int) -> Moment:
    return Moment(text=f"{seconds}s", since_start_ns=seconds * S)


def _two_pods() -> list[bytes]:
    """Return lines on which `early` is bound at 5 s and `late` at 20 s."""
    return [
        line(2, "ADDED", make_pod("early", 2)),
        line(5, "MODIFIED", make_pod("early", 3, node="n")),
        line(8, "ADDED", make_pod("late", 4)),
        line(20, "MODIFIED", make_pod("late", 5, node="n")),
    ]


def test_pods_bound_by_then_exist_on_their_nodes_and_the_rest_are_pending(tmp_path: Path) -> None:
    """The trace begins at the moment; a binding after it is an observation as ever."""
    records = _followed(tmp_path, _after(10), *_two_pods())
    created = [record.pod_create.pod for record in records if record.HasField("pod_create")]
    assert [(pod.metadata.name, pod.spec.node_name) for pod in created] == [
        ("early", "n"),
        ("late", ""),
    ]
    assert records[0].header.start_time_ns == (T0_S + 10) * S
    assert min(record.time_ns for record in records) == (T0_S + 10) * S
    assert [entry.object.name for entry in observed(records, "scheduled")] == ["late"]


def test_a_moment_may_be_a_time_of_the_clock(tmp_path: Path) -> None:
    """It is the same as so long after the beginning."""
    at = Moment(text="2026-01-01T00:00:10Z", at_ns=(T0_S + 10) * S)
    records = _followed(tmp_path, at, *_two_pods())
    assert records[0].header.start_time_ns == (T0_S + 10) * S
    assert records[0].header.options["follow_until"] == "2026-01-01T00:00:10Z"


def test_pods_that_exist_as_recorded_are_counted(tmp_path: Path) -> None:
    """The run's notes and `validate` show it; it stands first, wherever a replay stops."""
    records = _followed(tmp_path, _after(10), *_two_pods())
    (message,) = (issue.message for issue in issues(records) if issue.kind == "followed")
    assert records[1].issue.message == message
    assert "until 2026-01-01T00:00:10.000Z" in message
    assert "1 bindings, 0 preemptions, 0 evictions by kubelets stand" in message


def test_a_pod_that_had_gone_by_then_is_not_there(tmp_path: Path) -> None:
    """Nor is it deleted: nobody knows it."""
    gone = make_pod("gone", 3, node="n")
    records = _followed(
        tmp_path,
        _after(10),
        line(2, "ADDED", make_pod("gone", 2, node="n")),
        line(4, "DELETED", gone),
        *_two_pods(),
    )
    assert "gone" not in {record.pod_create.pod.metadata.name for record in records}
    assert not any(record.HasField("delete") for record in records)


def test_a_victim_that_was_terminating_stops_when_it_did(tmp_path: Path) -> None:
    """It was asked to stop at 9 s and took 6 s, wherever the recording is cut between."""
    victim = make_pod("p", 4, node="n", phase="Running", conditions=[_VICTIM], metadata=_STOPS)
    ended = make_pod("p", 5, node="n", phase="Failed", conditions=[_VICTIM], metadata=_STOPS)
    records = _followed(
        tmp_path,
        _after(10),
        line(1, "ADDED", make_pod("p", 2, node="n")),
        line(2, "MODIFIED", make_pod("p", 3, node="n", phase="Running")),
        line(9, "MODIFIED", victim),
        line(15, "MODIFIED", ended),
    )
    create = next(record.pod_create for record in records if record.HasField("pod_create"))
    assert create.pod.metadata.HasField("deletion_timestamp")
    assert create.life.shutdown_duration_ns == 6 * S


def test_pods_that_a_controller_made_by_then_exist_and_later_ones_are_made_again(
    tmp_path: Path,
) -> None:
    """The replay's controller makes the second one only."""
    owner = make_replica_set(2, 2)
    new: Raw = {"creationTimestamp": "2026-01-01T00:00:12Z"}
    records = _followed(
        tmp_path,
        _after(10),
        line(1, "ADDED", owner),
        line(2, "ADDED", make_pod("rs-a", 3, owner=owner)),
        line(12, "ADDED", make_pod("rs-b", 4, owner=owner, metadata=new)),
    )
    assert [e.pod_create.pod.metadata.name for e in records if e.HasField("pod_create")] == ["rs-a"]
    made = [record.controller_pod for record in records if record.HasField("controller_pod")]
    assert [(pod.name, pod.ordinal) for pod in made] == [("rs-b", 1)]


@pytest.mark.parametrize(
    ("moment", "problem"),
    [
        (_after(21), "the recording ends after 20.0s, at 2026-01-01T00:00:20.000Z"),
        (Moment(text="2025-12-31", at_ns=(T0_S - 1) * S), "begins only at 2026-01-01T00:00:00"),
    ],
)
def test_a_moment_that_is_not_in_the_recording_is_refused(
    tmp_path: Path, moment: Moment, problem: str
) -> None:
    """The refusal says when the recording begins or ends."""
    with pytest.raises(TraceError, match=problem):
        _followed(tmp_path, moment, *_two_pods())


def test_a_trace_without_outcomes_is_refused(tmp_path: Path) -> None:
    """Nothing could be followed; the formats that have outcomes are named."""
    manifest = tmp_path / "pods.yaml"
    manifest.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: []}\n")
    with pytest.raises(TraceError, match="manifests has no recorded states; give a recording"):
        list(open_trace([manifest], options=ImportOptions(follow_until=_after(1))))
