"""Tests of kube-scheduler-simulator's records."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from replay.errors import TraceError
from replay.importers.records import Issues
from replay.importers.registry import open_changes, open_trace, recognise
from reprieve.trace.v1beta1.trace_pb2 import Record
from tests.unit.importers.builders import Raw, at, issues, kinds, make_object, make_pod, observed

_NODE = {"status": {"allocatable": {"cpu": "4"}}}


def _line(second: float, event: str, raw: Raw) -> bytes:
    return orjson.dumps({"time": at(second), "event": event, "resource": raw})


def _imported(path: Path, *lines: bytes, end: bytes = b"\n") -> list[Record]:
    file = path / "record.jsonl"
    file.write_bytes(b"\n".join(lines) + end)
    assert recognise(file) == "recorder"
    return list(open_trace([file]))


def _deleted(kind: str, name: str, namespace: str) -> Raw:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


def _run(second: float = 10) -> list[bytes]:
    """Return lines: a node that was there, a pod that comes, is bound, and is deleted."""
    fresh = {"creationTimestamp": at(second)}
    bound = [("PodScheduled", "True", "")]
    return [
        _line(second, "Add", make_object("Node", "node", 1, **_NODE)),
        _line(second, "Add", make_pod("p", 2, metadata=fresh)),
        _line(
            second + 1, "Update", make_pod("p", 3, node="node", conditions=bound, metadata=fresh)
        ),
        _line(second + 5, "Delete", _deleted("Pod", "p", "default")),
        _line(second + 9, "Delete", _deleted("Node", "node", "")),
    ]


def test_events_become_inputs_and_observations(tmp_path: Path) -> None:
    """What is deleted is the last that was seen of it."""
    records = _imported(tmp_path, *_run())
    assert kinds(records) == [
        "header",
        "create node",
        "pod_create",
        "observed scheduled",
        "delete Pod user",
        "observed removed",
        "delete Node user",
    ]
    assert observed(records, "scheduled")[0].scheduled.node_name == "node"


def test_what_was_there_comes_first(tmp_path: Path) -> None:
    """A pod that ran before is listed behind a change of the node that it runs on."""
    running = make_pod("old", 4, node="node", phase="Running")
    lines = [
        _line(10, "Add", make_object("Node", "node", 1, **_NODE)),
        _line(10, "Update", make_object("Node", "node", 5, spec={"unschedulable": True}, **_NODE)),
        _line(11, "Add", running),
    ]
    assert kinds(_imported(tmp_path, *lines)) == [
        "header",
        "create node",
        "pod_create",
        "update node",
    ]


def test_a_last_line_that_is_cut_is_left_out(tmp_path: Path) -> None:
    """And named; one that only lacks its end is read."""
    whole = _imported(tmp_path, *_run(), end=b"")
    assert not list(issues(whole))
    cut = _imported(tmp_path, *_run(), b'{"time": "2026-01-01T00:00:30Z", "ev', end=b"")
    assert [issue.kind for issue in issues(cut)] == ["cut-line"]
    assert kinds(cut)[:-1] == kinds(whole)


def test_what_is_not_carried_or_not_known_is_named(tmp_path: Path) -> None:
    """Other kinds, other lines, deletions of what was never shown."""
    records = _imported(
        tmp_path,
        *_run(),
        _line(30, "Add", {"apiVersion": "x/v1", "kind": "Other", "metadata": {"name": "o"}}),
        _line(31, "Delete", _deleted("Pod", "never", "default")),
        b'{"other": 1}',
    )
    issues_found = [issue.kind for issue in issues(records)]
    assert issues_found == ["unread-kind", "unknown-object", "unknown-line"]


def test_an_event_without_a_time_is_refused(tmp_path: Path) -> None:
    """With its line."""
    line = orjson.dumps({"time": "now", "event": "Add", "resource": make_pod("p", 1)})
    with pytest.raises(TraceError, match=r"record\.jsonl, line 2: expected time"):
        _imported(tmp_path, _run()[0], line)


def test_its_decisions_can_be_compared_with(tmp_path: Path) -> None:
    """The changes are there as they were recorded."""
    _imported(tmp_path, *_run())
    changes = list(open_changes([tmp_path / "record.jsonl"], issues=Issues()))
    assert [change.type.value for change in changes] == [
        "ADDED",
        "ADDED",
        "MODIFIED",
        "DELETED",
        "DELETED",
    ]
