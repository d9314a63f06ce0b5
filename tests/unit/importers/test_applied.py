"""A manifest of what exists is applied to it, as kubectl apply does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from replay.importers.registry import open_trace
from reprieve.kube.v1beta1.workloads_pb2 import Deployment

_MANIFEST: dict[str, Any] = yaml.safe_load(
    """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {team: a, old: "1"}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: c, image: i, resources: {requests: {cpu: "0.5", memory: 1Gi}}}
      - {name: gone, image: i}
"""
)


def _live() -> dict[str, Any]:
    """Return what an API server has of it: defaults, an autoscaler's replicas, a sidecar."""
    live: dict[str, Any] = json.loads(json.dumps(_MANIFEST))
    live["metadata"] |= {
        "uid": "u",
        "namespace": "default",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(_MANIFEST)},
    }
    live["spec"]["replicas"] = 3
    spec = live["spec"]["template"]["spec"]
    spec |= {"restartPolicy": "Always", "schedulerName": "default-scheduler"}
    spec["terminationGracePeriodSeconds"] = 30
    spec["containers"][0]["resources"]["requests"]["cpu"] = "500m"
    spec["containers"].append({"name": "sidecar", "image": "s"})
    live["status"] = {"observedGeneration": 4, "readyReplicas": 3}
    return live


def _applied(path: Path, live: dict[str, Any], manifest: dict[str, Any]) -> tuple[Any, Any]:
    """Return the Deployment as it was created, and as it is updated."""
    file = path / "m.yaml"
    file.write_text(yaml.safe_dump_all([live, manifest]))
    created, updated = (
        record
        for record in open_trace([file])
        if record.WhichOneof("record") in {"create", "update"}
    )
    return created.create.deployment, updated.update.deployment


def test_the_manifest_that_was_applied_last_changes_nothing(tmp_path: Path) -> None:
    """Defaults, replicas, a sidecar, the status and the text of a quantity stay."""
    before, after = _applied(tmp_path, _live(), _MANIFEST)
    assert after == before
    assert after.spec.replicas == 3
    assert [container.name for container in after.spec.template.spec.containers] == [
        "c",
        "gone",
        "sidecar",
    ]


def test_fields_of_the_manifest_are_set_and_dropped_fields_are_removed(tmp_path: Path) -> None:
    """Only what the last one had is removed: never what something else has set."""
    manifest = json.loads(json.dumps(_MANIFEST))
    manifest["spec"]["replicas"] = 5
    del manifest["metadata"]["labels"]["old"]
    containers = manifest["spec"]["template"]["spec"]["containers"]
    del containers[1]
    containers[0]["resources"]["requests"] = {"cpu": "2"}
    after: Deployment = _applied(tmp_path, _live(), manifest)[1]
    assert (after.spec.replicas, after.metadata.uid) == (5, "u")
    assert dict(after.metadata.labels) == {"team": "a"}
    pod = after.spec.template.spec
    assert [container.name for container in pod.containers] == ["c", "sidecar"]
    assert dict(pod.containers[0].resources.requests) == {"cpu": "2"}
    assert pod.restart_policy == "Always"


def test_without_the_last_manifest_nothing_is_removed(tmp_path: Path) -> None:
    """As for an object that was created by something else, or whose annotation is broken."""
    live, manifest = _live(), json.loads(json.dumps(_MANIFEST))
    live["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": "{broken"
    }
    del manifest["metadata"]["labels"]["old"]
    before, after = _applied(tmp_path, live, manifest)
    assert after == before


def test_a_copy_with_edits_is_applied_without_its_status(tmp_path: Path) -> None:
    """As `kubectl get -o yaml` prints it: the object was as it is, and is changed at the start."""
    live, copy = _live(), _live()
    copy["spec"]["template"]["spec"]["containers"][0]["image"] = "new"
    copy["status"] = {"observedGeneration": 5, "readyReplicas": 1}
    copy["metadata"] |= {"generation": 9, "creationTimestamp": "2026-01-02T00:00:00Z"}
    before, after = _applied(tmp_path, live, copy)
    assert before.spec.template.spec.containers[0].image == "i"
    assert after.spec.template.spec.containers[0].image == "new"
    assert after.status == before.status
    assert after.metadata == before.metadata


def test_a_copy_without_edits_replaces_the_object(tmp_path: Path) -> None:
    """A later list of the same cluster: nothing is applied, and its status is taken."""
    file, copy = tmp_path / "m.yaml", _live()
    copy["status"] = {"observedGeneration": 5, "readyReplicas": 1}
    file.write_text(yaml.safe_dump_all([_live(), copy]))
    records = [record for record in open_trace([file]) if record.HasField("create")]
    assert not any(record.HasField("update") for record in open_trace([file]))
    assert [record.create.deployment.status.ready_replicas for record in records] == [1]


def test_a_copy_of_another_object_of_the_name_replaces_the_object(tmp_path: Path) -> None:
    """With another UID: it was deleted and created again meanwhile."""
    file, copy = tmp_path / "m.yaml", _live()
    copy["spec"]["replicas"], copy["metadata"]["uid"] = 7, "v"
    file.write_text(yaml.safe_dump_all([_live(), copy]))
    records = [record for record in open_trace([file]) if record.HasField("create")]
    assert [record.create.deployment.spec.replicas for record in records] == [7]
