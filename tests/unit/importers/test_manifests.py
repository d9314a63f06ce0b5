"""Tests of manifests and plain lists."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from replay.importers.options import ImportOptions
from replay.importers.registry import open_trace, recognise
from replay.trace.errors import TraceError
from reprieve.trace.v1alpha1.trace_pb2 import Record
from tests.unit.importers.builders import issues, kinds, make_object, make_pod

_POD = """apiVersion: v1
kind: Pod
metadata:
  name: {}
spec:
  containers:
  - name: c
    resources:
      requests: {{cpu: 5, memory: 1Gi}}
"""
_NODE = """apiVersion: v1
kind: Node
metadata:
  name: n
status:
  capacity: {cpu: 6}
"""


def _imported(path: Path, text: str, **options: int) -> list[Record]:
    file = path / "m.yaml"
    file.write_text(text)
    return list(open_trace([file], options=ImportOptions(**options)))  # type: ignore[arg-type]  # ints only


def test_documents_come_in_their_order_with_identities(tmp_path: Path) -> None:
    """A bare `cpu: 5` is a quantity; namespace and UID are filled in."""
    text = "---\n".join([_POD.format("b"), _POD.format("a")])
    records = _imported(tmp_path, text)
    pods = [record.pod_create.pod for record in records if record.HasField("pod_create")]
    assert [pod.metadata.name for pod in pods] == ["b", "a"]
    assert pods[0].metadata.namespace == "default"
    assert pods[0].metadata.uid
    assert pods[0].metadata.uid != pods[1].metadata.uid
    assert pods[0].spec.containers[0].resources.requests["cpu"] == "5"
    assert pods == [
        record.pod_create.pod
        for record in _imported(tmp_path, text)
        if record.HasField("pod_create")
    ]


def test_a_shape_that_comes_again_becomes_a_template(tmp_path: Path) -> None:
    """From the second pod on."""
    text = "---\n".join(_POD.format(name) for name in ("a", "b", "c"))
    records = _imported(tmp_path, text)
    assert kinds(records) == ["header", "pod_create", "template", "pod_create", "pod_create"]
    assert [each.pod_create.template_id for each in records[3:]] == [1, 1]
    assert not records[3].pod_create.pod.HasField("spec")
    assert records[2].template.pod.spec == records[1].pod_create.pod.spec


def test_the_cluster_stands_before_what_is_asked_of_it(tmp_path: Path) -> None:
    """Workloads are spaced, nodes and placed pods are there from the beginning."""
    placed = _POD.format("placed") + "  nodeName: n\n"
    text = "---\n".join([_POD.format("a"), _NODE, placed, _POD.format("b")])
    records = _imported(tmp_path, text, every_ns=10)
    assert [(each.at_ns, kind) for each, kind in zip(records, kinds(records), strict=True)] == [
        (0, "header"),
        (0, "create node"),
        (0, "pod_create"),
        (0, "template"),
        (0, "pod_create"),
        (10, "pod_create"),
    ]
    assert records[2].pod_create.pod.spec.node_name == "n"


def test_lists_are_read_whatever_prints_them(tmp_path: Path) -> None:
    """`kubectl get -o json`, -o yaml, and a raw list whose items have no kind."""
    pod = make_pod("p", 1)
    bare = {name: pod[name] for name in ("metadata", "spec", "status")}
    for number, raw in enumerate(
        [
            {"apiVersion": "v1", "kind": "List", "items": [pod]},
            {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [bare]},
        ]
    ):
        file = tmp_path / f"{number}.json.gz"
        file.write_bytes(gzip.compress(json.dumps(raw, indent=2).encode()))
        assert recognise(file) == "manifests"
        assert kinds(open_trace([file])) == ["header", "pod_create"]


def test_ended_pods_and_kinds_that_are_not_carried_are_left_out_and_told(tmp_path: Path) -> None:
    """Counted, not dropped silently; an API group decides, not the kind's name alone."""
    raw = [
        make_pod("done", 1, phase="Succeeded"),
        {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "s"}},
        {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {}},
    ]
    file = tmp_path / "l.json"
    file.write_text(json.dumps({"kind": "List", "items": raw}))
    found = Counter(each.kind for each in issues(open_trace([file])))
    assert found == {"ended-pod": 1, "unknown-kind": 2}


def test_a_class_within_a_container_is_told(tmp_path: Path) -> None:
    """The seed's own Deployment has it there, where Kubernetes ignores it."""
    raw = make_object(
        "Deployment",
        "d",
        1,
        spec={
            "template": {
                "spec": {
                    "containers": [{"name": "c", "priorityClassName": "high-priority"}],
                    "priorityClassName": "right",
                }
            },
            "nodeSelector": {},
        },
    )
    file = tmp_path / "d.json"
    file.write_text(json.dumps(raw))
    told = [each.message for each in issues(open_trace([file]))]
    assert len(told) == 2
    assert "spec.nodeSelector" in told[0]
    assert "spec.template.spec.containers[0].priorityClassName" in told[1]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: Pod\napiVersion: v1\nmetadata: {}\n", r"m\.yaml, line 1: Pod: metadata\.name"),
        ("kind: Pod\n---\n- a\n", r"line 2: is no Kubernetes object"),
        ("kind: Pod\n---\na: b: c\n", r"line 3: is no YAML"),
        (_POD.format("a") + "  priority: high\n", r"line 1: Pod: spec\.priority"),
    ],
)
def test_a_broken_manifest_is_refused_with_its_line(
    tmp_path: Path, text: str, problem: str
) -> None:
    """And with the field."""
    with pytest.raises(TraceError, match=problem):
        _imported(tmp_path, text)
