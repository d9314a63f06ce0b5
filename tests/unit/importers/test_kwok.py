"""Tests of kwok's recordings, and of strategic merge patches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from replay.errors import TraceError
from replay.importers.recording.strategic_merge import merged
from replay.importers.registry import open_trace, recognise
from replay.kube.kinds import to_object
from reprieve.trace.v1beta1.trace_pb2 import Record
from services.rpc.errors import FieldError
from tests.unit.importers.builders import T0_S, Raw, S, issues, kinds, make_object, make_pod


def _patch(at_s: float, resource: str, name: str, method: str, template: Any = None) -> Raw:
    return {
        "apiVersion": "action.kwok.x-k8s.io/v1alpha1",
        "kind": "ResourcePatch",
        "resource": {"version": "v1", "resource": resource},
        "target": {"name": name, **({} if resource == "nodes" else {"namespace": "default"})},
        "durationNanosecond": int(at_s * S),
        "method": method,
        **({} if template is None else {"template": template}),
    }


def _imported(path: Path, *documents: Raw) -> list[Record]:
    file = path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    assert recognise(file) == "kwok"
    return list(open_trace([file]))


def _node() -> Raw:
    return make_object("Node", "node", 1, status={"allocatable": {"cpu": "4"}})


def test_objects_precede_their_changes(tmp_path: Path) -> None:
    """Patches are put on what was last known; times count from the latest that objects tell."""
    bound = {
        "spec": {"nodeName": "node"},
        "status": {"conditions": [{"type": "PodScheduled", "status": "True"}]},
    }
    records = _imported(
        tmp_path,
        _node(),
        _patch(0, "pods", "p", "create", make_pod("p", 0)),
        _patch(1.5, "pods", "p", "patch", bound),
        _patch(4, "pods", "p", "delete"),
        _patch(9, "nodes", "node", "patch", {"spec": {"unschedulable": True}}),
    )
    assert kinds(records) == [
        "header",
        "create node",
        "pod_create",
        "observed scheduled",
        "delete Pod user",
        "observed removed",
        "update node",
        "issue guessed-time",
    ]
    assert [record.time_ns - T0_S * S for record in records[2:5]] == [0, 1.5 * S, 4 * S]
    assert records[-2].update.node.spec.unschedulable
    assert records[-2].update.node.status.allocatable["cpu"] == "4"


def test_the_older_form_of_a_patch_is_read(tmp_path: Path) -> None:
    """The target names the type; flags tell what is done."""
    new = _patch(2, "pods", "p", "create", make_pod("p", 0))
    old = {
        "apiVersion": "kwok.x-k8s.io/internal",
        "kind": "ResourcePatch",
        "target": {"type": new["resource"], **new["target"]},
        "durationNanosecond": 2 * S,
        "create": True,
        "patch": new["template"],
    }
    assert kinds(_imported(tmp_path, _node(), old))[:3] == ["header", "create node", "pod_create"]


def test_what_is_not_carried_or_not_known_is_named(tmp_path: Path) -> None:
    """Leases, secrets, and patches of what was never shown."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    records = _imported(
        tmp_path,
        secret,
        _node(),
        _patch(0, "leases", "l", "patch", {}),
        _patch(1, "pods", "never", "patch", {"spec": {}}),
    )
    issues_found = [issue.kind for issue in issues(records)]
    assert issues_found == ["guessed-time", "unread-kind", "unread-kind", "unknown-object"]


def test_a_patch_without_a_method_is_refused(tmp_path: Path) -> None:
    """With its line."""
    with pytest.raises(TraceError, match="ResourcePatch: expected durationNanosecond and method"):
        _imported(tmp_path, _node(), _patch(0, "pods", "p", "replace"))


_OLD: Raw = {
    "a": 1,
    "b": {"c": 2, "d": 3},
    "conditions": [{"type": "A", "status": "False", "reason": "R"}, {"type": "B"}],
    "tolerations": [{"key": "k"}],
    "finalizers": ["x", "y"],
}


@pytest.mark.parametrize(
    ("patch", "changed"),
    [
        ({"a": None, "b": {"c": 4}}, {"a": None, "b": {"c": 4, "d": 3}}),
        ({"tolerations": [{"key": "l"}]}, {"tolerations": [{"key": "l"}]}),
        ({"finalizers": ["y", "z"]}, {"finalizers": ["x", "y", "z"]}),
        ({"$deleteFromPrimitiveList/finalizers": ["x"]}, {"finalizers": ["y"]}),
        (
            {"conditions": [{"type": "A", "status": "True"}, {"type": "C"}]},
            {
                "conditions": [
                    {"type": "A", "status": "True", "reason": "R"},
                    {"type": "B"},
                    {"type": "C"},
                ]
            },
        ),
        ({"conditions": [{"type": "A", "$patch": "delete"}]}, {"conditions": [{"type": "B"}]}),
        ({"conditions": [{"$patch": "replace"}, {"type": "D"}]}, {"conditions": [{"type": "D"}]}),
        (
            {
                "$setElementOrder/conditions": [{"type": "B"}, {"type": "A"}],
                "conditions": [{"type": "B", "status": "True"}],
            },
            {
                "conditions": [
                    {"type": "B", "status": "True"},
                    {"type": "A", "status": "False", "reason": "R"},
                ]
            },
        ),
        ({"b": {"$patch": "replace", "e": 5}}, {"b": {"e": 5}}),
        ({"b": {"$retainKeys": ["d"]}}, {"b": {"d": 3}}),
    ],
)
def test_a_patch_merges_by_key_or_replaces(patch: Raw, changed: Raw) -> None:
    """Lists with a merge key are merged by it, others replaced; null takes away."""
    expected = {key: value for key, value in {**_OLD, **changed}.items() if value is not None}
    assert merged(_OLD, patch) == expected


def test_a_patch_may_have_keys_that_are_not_texts(tmp_path: Path) -> None:
    """As YAML allows: no field has such a key."""
    spec = {7: 1, "unschedulable": True}
    patch = _patch(1, "nodes", "node", "patch", {5: "x", "spec": spec})
    records = _imported(tmp_path, _node(), patch)
    (updated,) = [record.update.node for record in records if record.HasField("update")]
    assert updated.spec.unschedulable


@pytest.mark.parametrize("kind", [{"a": 1}, None, 5, "Nothing"])
def test_an_object_of_another_kind_is_refused(kind: object) -> None:
    """By the reader of each, where a patch has changed what it was."""
    with pytest.raises(FieldError, match="kind"):
        to_object({"kind": kind})


def test_ports_are_merged_by_what_they_have() -> None:
    """A container's by containerPort, a service's by port."""
    old = {"ports": [{"port": 80, "name": "a"}]}
    assert merged(old, {"ports": [{"port": 80, "targetPort": 8080}]}) == {
        "ports": [{"port": 80, "name": "a", "targetPort": 8080}]
    }
