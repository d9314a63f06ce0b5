"""A pod that reaches a node under pressure past its taint: the kubelet decides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replay.backends.processes import EmbeddedServices
from reprieve.trace.v1beta1 import trace_pb2
from tests.e2e.commands import reprieve
from tests.e2e.replays import run
from tests.e2e.test_pressure import S, container, records

pytestmark = pytest.mark.e2e


def bound(at_s: int, name: str) -> trace_pb2.Record:
    """Return the creation of a pod that names node "n1" itself, as a DaemonSet's once did."""
    record = trace_pb2.Record(time_ns=at_s * S)
    record.pod_create.pod.metadata.name = name
    record.pod_create.pod.spec.node_name = "n1"
    if name.startswith("burstable"):
        container(record.pod_create.pod.spec)
    else:
        record.pod_create.pod.spec.containers.add(name="c")
    return record


def test_memory_pressure_refuses_best_effort_pods_and_no_others(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """Until the condition goes, in the kubelet's words."""
    trace_records = [*records(), bound(100, "bare"), bound(101, "burstable"), bound(400, "after")]
    for sequence, record in enumerate(trace_records, 1):
        record.sequence = sequence
    cluster = run(here, trace_records, tmp_path / "run").replay.cluster
    statuses = {
        name: cluster.pods[cluster.pod_uids[f"default/{name}"]].message.status
        for name in ("bare", "burstable", "after")
    }
    phases = {name: status.phase for name, status in statuses.items()}
    assert phases == {"bare": "Failed", "burstable": "Running", "after": "Running"}
    refused = statuses["bare"]
    assert refused.reason == "Evicted"
    assert refused.message == "Pod was rejected: The node had condition: [MemoryPressure]. "


OTHER_SYSTEM = """
apiVersion: v1
kind: Node
metadata: {name: node-a, labels: {kubernetes.io/os: linux}}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec: {os: {name: windows}, containers: [{name: c, resources: {requests: {cpu: "1"}}}]}
"""


def test_a_pod_for_windows_fails_on_a_linux_node(tmp_path: Path) -> None:
    """It is bound, for no filter reads the field, and its kubelet rejects it as upstream's does."""
    (tmp_path / "cluster.yaml").write_text(OTHER_SYSTEM)
    done = reprieve(tmp_path, "replay", "cluster.yaml", "--run", "run")
    assert "PodOSNotSupported" in done.stdout
    shown = json.loads(reprieve(tmp_path, "get", "pod", "web", "run", "-o", "json").stdout)
    assert shown["spec"]["os"] == {"name": "windows"}
    status = shown["status"]
    assert (status["phase"], status["reason"], status["message"]) == (
        "Failed",
        "PodOSNotSupported",
        "Pod was rejected: Failed to admit pod as the OS field doesn't match node OS",
    )


REPLACED = """
apiVersion: v1
kind: Node
metadata: {name: node-a}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: v1
kind: Pod
metadata: {name: bare, namespace: default}
spec: {nodeName: node-a, os: {name: windows}, containers: [{name: c}]}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {os: {name: windows}, containers: [{name: c, resources: {requests: {cpu: "1"}}}]}
"""


def test_a_rejected_pod_is_explained_by_its_kubelet_and_what_follows(tmp_path: Path) -> None:
    """Whether a controller made it or it came with its node; the rejection is said once."""
    (tmp_path / "cluster.yaml").write_text(REPLACED)
    reprieve(tmp_path, "replay", "cluster.yaml", "--run", "run", "--until", "30s")
    bare = reprieve(tmp_path, "explain", "run", "bare").stdout
    assert "default/bare was created with node node-a" in bare
    assert "by the kubelet of node-a: PodOSNotSupported" in bare
    assert "the pod has failed for good, and nothing replaces it" in bare
    entries = [json.loads(line) for line in (tmp_path / "run" / "decisions.jsonl").open()]
    made = [entry["observed"]["object"]["name"] for entry in entries if "made" in entry["observed"]]
    first, second = made[:2]
    explained = reprieve(tmp_path, "explain", "run", first).stdout
    assert "scheduled to node-a" in explained
    assert "by the kubelet of node-a: PodOSNotSupported" in explained
    assert f"the next pod of ReplicaSet default/web is default/{second}, made at" in explained
    assert "its node does not take it" not in explained
