"""Times of frames without a receive time come from their objects, and are counted."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from reprieve.trace.v1beta1.trace_pb2 import Record
from tests.unit.importers.builders import (
    T0,
    T0_S,
    Raw,
    S,
    deletes,
    imported,
    issues,
    line,
    make_pod,
    observed,
)

_AT_7 = "2026-01-01T00:00:07Z"
_AT_9 = "2026-01-01T00:00:09Z"


def _guesses(records: list[Record]) -> dict[str, int]:
    return {issue.message: issue.count for issue in issues(records) if issue.kind == "guessed-time"}


def _pod(version: int, *, created: str = T0, bound: str = "", **metadata: object) -> Raw:
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": bound}
    status: Raw = {"conditions": [condition]} if bound else {}
    own: Raw = {"creationTimestamp": created, **metadata}
    return make_pod("p", version, node="n" if bound else "", status=status, metadata=own)


def _at(records: list[Record], field: str) -> list[float]:
    return [record.time_ns / S - T0_S for record in records if record.HasField(field)]  # type: ignore[arg-type]  # a name


def test_a_creation_a_binding_and_a_deletion_have_the_objects_own_times(tmp_path: Path) -> None:
    """Created at 0 s, PodScheduled at 7 s, and asked at 9 s to be gone 30 s later."""
    stops: Raw = {"deletionTimestamp": "2026-01-01T00:00:39Z", "deletionGracePeriodSeconds": 30}
    records = imported(
        tmp_path,
        line(None, "ADDED", _pod(2)),
        line(None, "MODIFIED", _pod(3, bound=_AT_7)),
        line(None, "MODIFIED", _pod(4, bound=_AT_7, **stops)),
    )
    assert _at(records, "pod_create") == [0]
    assert [entry.scheduled.waited_duration_ns for entry in observed(records, "scheduled")] == [
        7 * S
    ]
    assert _at(records, "delete") == [9]
    assert len(deletes(records)) == 1
    assert sum(_guesses(records).values()) == 3


def test_a_frame_whose_object_has_no_time_has_that_of_the_one_before_it(tmp_path: Path) -> None:
    """It is no moment of 1970, neither at the beginning nor later."""
    records = imported(
        tmp_path,
        line(None, "ADDED", make_pod("early", 1, metadata={"creationTimestamp": None})),
        line(None, "ADDED", _pod(2, created=_AT_7)),
        line(None, "MODIFIED", _pod(3, created=_AT_7, bound=_AT_9)),
        line(None, "ADDED", make_pod("late", 4, metadata={"creationTimestamp": None})),
    )
    assert records[0].header.start_time_ns == (T0_S + 7) * S
    assert _at(records, "pod_create") == [0 + 7, 7, 9]
    assert [count for text, count in _guesses(records).items() if "has no time" in text] == [2]


def test_a_grace_period_that_is_not_a_number_is_not_a_time(tmp_path: Path) -> None:
    """The deletion is then taken to have been requested when it was due."""
    stops: Raw = {"deletionTimestamp": _AT_9, "deletionGracePeriodSeconds": "soon"}
    records = imported(
        tmp_path,
        line(None, "ADDED", _pod(2)),
        line(None, "MODIFIED", _pod(3, bound=_AT_7)),
        line(None, "DELETED", _pod(4, bound=_AT_7, **stops)),
    )
    assert max(record.time_ns for record in records) == (T0_S + 9) * S


def test_frames_that_were_received_at_a_time_are_not_guesses(tmp_path: Path) -> None:
    """Their arrival is their time, whatever times the object has."""
    records = imported(tmp_path, line(1, "ADDED", _pod(2)), line(8, "MODIFIED", _pod(3, bound=T0)))
    assert _guesses(records) == {}


@pytest.mark.parametrize(
    ("times", "expected", "taken"),
    [
        ({"stageTimestamp": _AT_9}, 9, ""),
        ({"requestReceivedTimestamp": _AT_7}, 7, "requestReceivedTimestamp"),
        ({}, 0, "the latest of its object"),
    ],
)
def test_an_audit_entry_without_a_time_of_its_stage_is_counted(
    tmp_path: Path, times: Raw, expected: int, taken: str
) -> None:
    """The request's time is taken, or a time in the object."""
    entry = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "stage": "ResponseComplete",
        "verb": "create",
        "objectRef": {"resource": "pods", "namespace": "default"},
        "responseStatus": {"code": 201},
        "responseObject": _pod(2),
        **times,
    }
    records = imported(tmp_path, orjson.dumps(entry))
    assert _at(records, "pod_create") == [expected]
    assert all(taken in text for text in _guesses(records))
    assert len(_guesses(records)) == bool(taken)
