"""Tests of audit events that a cloud's log wraps."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
import yaml

from replay.errors import TraceError
from replay.importers.registry import open_trace, recognise
from reprieve.trace.v1beta1.trace_pb2 import Record
from tests.unit.importers.builders import Raw, at, issues, kinds, make_object, make_pod

_NODE = make_object("Node", "node", 1, status={"allocatable": {"cpu": "4"}})


def _entry(second: float, method: str, resource: str, code: int = 0, **payload: Raw) -> Raw:
    return {
        "logName": "projects/p/logs/cloudaudit.googleapis.com%2Factivity",
        "protoPayload": {
            "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
            "authenticationInfo": {"principalEmail": "someone"},
            "methodName": f"io.k8s.{method}",
            "resourceName": resource,
            "status": {"code": code},
            **payload,
        },
        "operation": {"first": True, "last": True},
        "timestamp": at(second),
    }


def _entries() -> list[Raw]:
    """Return entries: a node, and a pod that is bound, runs, and is deleted."""
    pod, path = make_pod("p", 2), "core/v1/namespaces/default/pods/p"
    running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    binding = {"@type": "core.k8s.io/v1.Binding", "target": {"kind": "Node", "name": "node"}}
    patch = {"@type": "k8s.io/Patch", **running}
    return [
        _entry(0, "core.v1.nodes.create", "core/v1/nodes/node", response=_NODE),
        _entry(1, "core.v1.pods.create", path, response={"@type": "core.k8s.io/v1.Pod", **pod}),
        _entry(2, "core.v1.pods.binding.create", f"{path}/binding", request=binding),
        _entry(3, "core.v1.pods.status.patch", f"{path}/status", request=patch),
        _entry(4, "core.v1.pods.status.patch", f"{path}/status", 5, request=patch),
        _entry(9, "core.v1.pods.delete", path, response={"kind": "Status"}),
    ]


def _kinds(path: Path, name: str, content: bytes) -> list[str]:
    file = path / name
    file.write_bytes(content)
    assert recognise(file) == "audit"
    return kinds(open_trace([file]))


_EXPECTED = [
    "header",
    "create node",
    "pod_create",
    "observed scheduled",
    "observed started",
    "delete Pod user",
    "observed removed",
    "issue put-together",
]


def test_googles_entries_are_read_as_the_events_that_they_wrap(tmp_path: Path) -> None:
    """One a line, an array, or YAML; a patch without an answer is put on the last state."""
    entries = _entries()
    lines = b"\n".join(map(orjson.dumps, entries))
    assert _kinds(tmp_path, "lines.json", lines) == _EXPECTED
    array = orjson.dumps(entries, option=orjson.OPT_INDENT_2)
    assert _kinds(tmp_path, "array.json", array) == _EXPECTED
    assert _kinds(tmp_path, "a.yaml", yaml.safe_dump_all(entries).encode()) == _EXPECTED


def test_azures_entries_are_read_as_the_events_that_they_hold(tmp_path: Path) -> None:
    """The event is a text within the entry."""
    event = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "stage": "ResponseComplete",
        "verb": "create",
        "objectRef": {"resource": "nodes", "name": "node"},
        "responseStatus": {"code": 201},
        "responseObject": _NODE,
        "stageTimestamp": at(0),
    }
    entry = {"category": "kube-audit", "properties": {"log": orjson.dumps(event).decode()}}
    assert _kinds(tmp_path, "a.json", orjson.dumps(entry)) == ["header", "create node"]
    wrapped = orjson.dumps({"records": [entry]})
    assert _kinds(tmp_path, "b.json", wrapped) == ["header", "create node"]
    broken = orjson.dumps({"properties": {"log": '{"apiVersion": "audit.k8s.io/v1"'}})
    with pytest.raises(TraceError, match=r"properties\.log is not JSON"):
        _kinds(tmp_path, "c.json", broken)


def test_entries_of_other_logs_are_passed_over(tmp_path: Path) -> None:
    """And what did not come to its end."""
    entries: list[Raw] = [
        {"logName": "kubelet", "jsonPayload": {}},
        _entry(0, "core.v1.nodes.create", "core/v1/nodes/node", response=_NODE),
        {**_entry(1, "core.v1.nodes.delete", "core/v1/nodes/node"), "operation": {"last": False}},
        _entry(2, "core.v1.nodes.list", "core/v1/nodes"),
    ]
    content = b"\n".join(map(orjson.dumps, entries))
    assert _kinds(tmp_path, "a.json", content) == ["header", "create node"]


def test_a_patch_of_a_pod_that_was_not_shown_is_named(tmp_path: Path) -> None:
    """Nothing can be put together."""
    records: list[Record] = []
    file = tmp_path / "a.json"
    file.write_bytes(orjson.dumps(_entries()[3]))
    records += open_trace([file])
    assert [issue.kind for issue in issues(records)] == ["audit-level"]
