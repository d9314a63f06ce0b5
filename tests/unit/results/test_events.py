"""Events that a cluster records about decisions, aggregated and expired as upstream."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
import yaml

from replay.results.kubectl.events import KEPT_NS, KubeEvents, event_of
from replay.results.kubectl.get import GetQuery, get
from reprieve.trace.v1beta1 import trace_pb2
from tests.unit.results import messages
from tests.unit.results.small_run import NODE, small_run


def _printed(tmp_path: Path, **asked: object) -> str:
    pieces: list[str] = []
    query = GetQuery(**{"resource": "events", **asked})  # type: ignore[arg-type] # keywords of one test
    path = tmp_path / "run"
    get(small_run(path), query, pieces.append)
    return "".join(pieces)


def test_a_list_has_kubectls_columns(tmp_path: Path) -> None:
    """The latest last, with ages at the moment."""
    lines = _printed(tmp_path, offset_ns=12 * 10**9).splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["LAST", "SEEN", "TYPE", "REASON"],
        ["4s", "Warning", "FailedScheduling", "pod/high"],
        ["4s", "Normal", "Preempted", "pod/low"],
        ["2s", "Warning", "FailedScheduling", "pod/high"],
        ["1s", "Normal", "Scheduled", "pod/high"],
        ["1s", "Normal", "Started", "pod/high"],
    ]
    assert lines[3].endswith('running Bind plugin "DefaultBinder": nodes "gone" not found')
    assert lines[4].endswith(f"Successfully assigned default/high to {NODE}")


def test_a_failed_attempt_has_its_event_although_its_status_is_refused() -> None:
    """The scheduler records the Event first; the refused deletion of a victim has none."""
    decision = messages.failed("p", "no nodes")
    decision.refused = "pod p is already assigned to node 'n'"
    event = event_of(decision)
    assert event is not None
    assert (event.type, event.reason, event.message) == ("Warning", "FailedScheduling", "no nodes")
    victim = messages.preempted("v", "p")
    victim.refused = "pod v is on m, not on n"
    assert event_of(victim) is None


def test_wide_adds_the_source_and_the_count(tmp_path: Path) -> None:
    """In the places where kubectl has them."""
    header, first, *_ = _printed(tmp_path, output="wide").splitlines()
    columns = "LAST SEEN TYPE REASON OBJECT SUBOBJECT SOURCE MESSAGE FIRST SEEN COUNT NAME"
    assert " ".join(header.split()) == columns
    assert "default-scheduler" in first
    assert first.split()[-2:] == ["1", "high.0000000000000001"]


def test_json_and_yaml_hold_whole_events(tmp_path: Path) -> None:
    """A list as one List, a watch one after the other."""
    (_, preempted, *_) = orjson.loads(_printed(tmp_path, output="json"))["items"]
    assert preempted["involvedObject"]["name"] == "low"
    assert preempted["message"] == f"Preempted by pod uid-high on node {NODE}"
    assert preempted["lastTimestamp"] == "2019-10-24T08:00:08Z"
    watched = yaml.safe_load_all(_printed(tmp_path / "2", output="yaml", watch=True))
    assert [line["reason"] for line in watched if line][:2] == ["FailedScheduling", "Preempted"]


def test_a_watch_begins_with_the_list_at_a_moment(tmp_path: Path) -> None:
    """Then each Event comes as it happens."""
    rows = _printed(tmp_path, watch=True, offset_ns=11 * 10**9).splitlines()[1:]
    assert [row.split()[2] for row in rows] == [
        *("FailedScheduling", "Preempted", "FailedScheduling", "Scheduled", "Started"),
        "Evicted",
    ]


def test_another_namespace_has_no_events(tmp_path: Path) -> None:
    """And so no header either."""
    assert _printed(tmp_path, namespace="other") == ""


def test_equal_events_are_counted_and_kept_for_an_hour() -> None:
    """From the last time on; then the next one is a new Event."""
    standing = KubeEvents()
    hour_s = KEPT_NS // 10**9
    for at_s in (0, 60):
        standing.take(messages.failed("p", "no room", at_s))
    now_ns = messages.START_NS + 60 * 10**9
    (event,) = standing.standing(now_ns + KEPT_NS)
    assert (event.count, event.last_ns - event.first_ns) == (2, 60 * 10**9)
    assert standing.standing(now_ns + KEPT_NS + 1) == []
    again = standing.take(messages.failed("p", "no room", 61 + hour_s))
    assert again is not None
    assert again.count == 1


@pytest.mark.parametrize(
    ("type_", "status", "reason"),
    [
        ("MemoryPressure", "True", "NodeHasInsufficientMemory"),
        ("DiskPressure", "False", "NodeHasNoDiskPressure"),
        ("PIDPressure", "True", "NodeHasInsufficientPID"),
    ],
)
def test_a_nodes_condition_has_the_kubelets_message(type_: str, status: str, reason: str) -> None:
    """In the namespace default."""
    decision = trace_pb2.Decision()
    decision.observed.object.kind, decision.observed.object.name = "Node", "n"
    decision.observed.condition_changed.type = type_
    decision.observed.condition_changed.status = status
    event = event_of(decision)
    assert event is not None
    assert (event.reason, event.namespace) == (reason, "default")
    assert event.message == f"Node n status is now: {reason}"


def test_a_created_pod_gives_a_controllers_event() -> None:
    """The message of a StatefulSet has another wording."""
    decision = messages.decision("web-0")
    decision.observed.created.owner.kind, decision.observed.created.owner.name = (
        "StatefulSet",
        "web",
    )
    event = event_of(decision)
    assert event is not None
    assert (event.kind, event.object_name, event.component) == (
        *("StatefulSet", "web"),
        "statefulset-controller",
    )
    assert event.message == "create Pod web-0 in StatefulSet web successful"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("ReplicaSet", 'Error creating: pods "web-0" is forbidden: no'),
        (
            "StatefulSet",
            'create Pod web-0 in StatefulSet web failed error: pods "web-0" is forbidden: no',
        ),
    ],
)
def test_a_refused_pod_gives_a_controllers_event(kind: str, text: str) -> None:
    """With the API server's message; a pod of the trace has no controller that would report."""
    decision = messages.decision("web-0")
    decision.observed.refused.message = 'pods "web-0" is forbidden: no'
    assert event_of(decision) is None
    decision.observed.refused.owner.kind, decision.observed.refused.owner.name = kind, "web"
    event = event_of(decision)
    assert event is not None
    assert (event.type, event.reason, event.object_name) == ("Warning", "FailedCreate", "web")
    assert event.message == text
