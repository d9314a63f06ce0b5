"""Tests of SimKube's traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack
import orjson
import pytest

from replay.errors import TraceError
from replay.importers.records import ImportOptions
from replay.importers.registry import open_trace, recognise
from reprieve.trace.v1beta1.trace_pb2 import Record
from tests.unit.importers.builders import Raw, S, issues, kinds

_T0 = 1_700_000_000


def _object(kind: str, name: str, spec: Raw | None = None) -> Raw:
    version = {"Pod": "v1", "Deployment": "apps/v1", "Job": "batch/v1"}.get(kind, "x/v1")
    spec = {"containers": [{"name": "c"}]} if spec is None else spec
    metadata = {"name": name, "namespace": "n"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec, "status": {}}


def _event(at_s: int, *applied: Raw, deleted: tuple[Raw, ...] = ()) -> Raw:
    return {"ts": _T0 + at_s, "applied_objs": list(applied), "deleted_objs": list(deleted)}


def _imported(path: Path, *events: Raw, lives: Any = None, **options: Any) -> list[Record]:
    trace: Raw = {
        "version": 2,
        "config": {"trackedObjects": {}},
        "events": list(events),
        "index": {},
        "pod_lifecycles": lives or {},
    }
    file = path / "a.sktrace"
    file.write_bytes(msgpack.packb(trace))
    assert recognise(file) == "simkube"
    return list(open_trace([file], options=ImportOptions(**options)))


def _deployment(replicas: int) -> Raw:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c"}]}}
    return _object("Deployment", "web", {"replicas": replicas, "template": template})


@pytest.mark.parametrize("owner", [5, True, b"x", ("a", "b", "c"), ""])
def test_an_owner_of_lives_may_be_anything(tmp_path: Path, owner: object) -> None:
    """One that is not an object's name has no object."""
    lives = {owner: {1: [{"Running": _T0}]}}
    assert "create deployment" in kinds(_imported(tmp_path, _event(0, _deployment(1)), lives=lives))


def test_objects_are_created_changed_and_deleted(tmp_path: Path) -> None:
    """Applied for the first time, again, and deleted; times are the trace's."""
    records = _imported(
        tmp_path,
        _event(0, _deployment(1)),
        _event(5, _deployment(3)),
        _event(9, deleted=(_deployment(3),)),
    )
    assert kinds(records)[1:] == [
        "create deployment",
        "update deployment",
        "delete Deployment user",
    ]
    assert [record.time_ns // S - _T0 for record in records] == [0, 0, 5, 9]
    assert records[2].update.deployment.metadata.uid == records[1].create.deployment.metadata.uid
    assert records[2].update.deployment.spec.replicas == 3


def test_a_bare_pod_has_its_own_life(tmp_path: Path) -> None:
    """One that still ran at the end would have run longer."""
    lives = {
        ("v1.Pod", "n/done"): {1: [{"Finished": [_T0 + 2, _T0 + 32]}]},
        ("v1.Pod", "n/runs"): {2: [{"Running": _T0 + 4}]},
    }
    records = _imported(
        tmp_path, _event(0, _object("Pod", "done"), _object("Pod", "runs")), lives=lives
    )
    done, runs = (record.pod_create.life for record in records if record.HasField("pod_create"))
    assert (done.service_duration_ns, done.censored) == (30 * S, False)
    assert (runs.service_duration_ns, runs.censored) == (28 * S, True)
    assert records[0].header.window_end_time_ns == (_T0 + 32) * S


def test_lives_of_a_deployments_pods_stand_before_it(tmp_path: Path) -> None:
    """In the order of their start, within the ReplicaSet that will make them."""
    first = [{"Finished": [_T0 + 1, _T0 + 3]}, {"Running": _T0 + 1}]
    lives = {("apps/v1.Deployment", "n/web"): {7: [{"Running": _T0 + 8}], 9: first}}
    records = _imported(tmp_path, _event(0, _deployment(2)), lives=lives)
    expected = [record.controller_pod for record in records if record.HasField("controller_pod")]
    assert [(entry.owner.kind, entry.ordinal) for entry in expected] == [
        ("Deployment", 0),
        ("ReplicaSet", 0),
        ("ReplicaSet", 1),
        ("Deployment", 1),
        ("ReplicaSet", 0),
    ]
    assert expected[1].owner.name == expected[0].name
    assert expected[1].life.service_duration_ns == 2 * S
    assert kinds(records)[-1] == "create deployment"


def test_lives_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    """Of owners that no event applies, and of kinds whose pods have another owner."""
    cron_job = {**_object("CronJob", "c", {}), "apiVersion": "batch/v1"}
    lives = {
        ("batch/v1.CronJob", "n/c"): {1: [{"Running": _T0}]},
        ("apps/v1.Deployment", "n/gone"): {1: [{"Running": _T0}]},
    }
    issues_found = [
        issue.kind for issue in issues(_imported(tmp_path, _event(0, cron_job), lives=lives))
    ]
    assert issues_found == ["unused-lives", "unknown-object"]


def test_what_is_not_carried_is_named(tmp_path: Path) -> None:
    """Custom resources, and deletions of what was never applied."""
    records = _imported(
        tmp_path, _event(0, _object("VolcanoJob", "v"), deleted=(_object("Pod", "p"),))
    )
    assert [issue.kind for issue in issues(records)] == ["unread-kind", "unknown-object"]


def test_nodes_can_be_made_for_it(tmp_path: Path) -> None:
    """A trace has none: by default one whole machine each, or what is requested."""
    options: dict[str, Any] = {"made_nodes": 2, "node_amounts": {"cpu": "8", "x/gpu": "4"}}
    records = _imported(tmp_path, _event(0, _object("Pod", "p")), **options)
    assert kinds(records) == ["header", "create node", "create node", "pod_create"]
    assert [record.sequence for record in records] == [1, 2, 3, 4]
    node = records[1].create.node
    assert dict(node.status.allocatable) == {
        "cpu": "8",
        "memory": str(256 << 30),
        "pods": "110",
        "x/gpu": "4",
    }
    assert records[1].time_ns == records[0].time_ns == _T0 * S


def test_nodes_can_be_taken_from_another_trace(tmp_path: Path) -> None:
    """From the list that kubectl prints; a trace that has none is refused."""
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text("apiVersion: v1\nkind: Node\nmetadata: {name: mine}\n")
    trace = {"nodes_from": nodes}
    records = _imported(tmp_path, _event(0, _object("Pod", "p")), **trace)
    assert kinds(records) == ["header", "create node", "pod_create"]
    assert records[1].create.node.metadata.name == "mine"
    nodes.write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: mine}\n")
    with pytest.raises(TraceError, match=r"nodes\.yaml: creates no node; give --nodes-from"):
        _imported(tmp_path, _event(0, _object("Pod", "p")), **trace)


def test_the_same_in_json_is_read(tmp_path: Path) -> None:
    """SimKube's own examples are."""
    trace = {"version": 2, "config": {"trackedObjects": {}}, "events": [_event(0, _deployment(1))]}
    file = tmp_path / "a.json"
    file.write_bytes(orjson.dumps(trace, option=orjson.OPT_INDENT_2))
    assert recognise(file) == "simkube"
    assert kinds(open_trace([file])) == ["header", "create deployment"]


@pytest.mark.parametrize(
    ("events", "lives", "problem"),
    [
        ([{"applied_objs": []}], None, "an event has no ts"),
        ([_event(0, _object("Pod", ""))], None, "event 1: Pod: metadata.name is missing"),
        (
            [_event(0, _object("Pod", "p", {"containers": 3}))],
            None,
            "event 1: Pod: spec.containers",
        ),
        ([], {("v1.Pod", "n/p"): {1: ["Empty"]}}, "'Empty' is not the life of a pod"),
    ],
)
def test_a_broken_trace_is_refused(
    tmp_path: Path, events: list[Raw], lives: Any, problem: str
) -> None:
    """With the event's number."""
    with pytest.raises(TraceError, match=problem):
        _imported(tmp_path, *events, lives=lives)


def test_a_trace_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    """Nothing of it becomes a replay."""
    _imported(tmp_path, _event(0, _deployment(1)))
    file = tmp_path / "a.sktrace"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(TraceError, match="is not complete MessagePack"):
        list(open_trace([file]))
