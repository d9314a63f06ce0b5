"""A namespace with a quota and a LimitRange: what is created, refused and noted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.commands import reprieve

pytestmark = pytest.mark.e2e

# 16 CPUs, of which the quota allows 3. Existing pods of `api` use 2 of them (two of 1 CPU). Of the
# 8 pods that web's manifest requests each gets a request of 500m from the LimitRange: 2 fit, and 6
# are refused. No HorizontalPodAutoscaler changes that.
CLUSTER = """
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: n1, uid: n1, creationTimestamp: "2026-01-01T00:00:00Z"}
  status:
    capacity: {cpu: "16", memory: 32Gi, pods: "110"}
    conditions: [{type: Ready, status: "True"}]
- apiVersion: v1
  kind: ResourceQuota
  metadata: {name: compute, namespace: shop, uid: q, creationTimestamp: "2026-01-01T00:00:00Z"}
  spec: {hard: {requests.cpu: "3"}}
  status: {hard: {requests.cpu: "3"}, used: {requests.cpu: "2"}}
- apiVersion: v1
  kind: LimitRange
  metadata: {name: bounds, namespace: shop, uid: l, creationTimestamp: "2026-01-01T00:00:00Z"}
  spec: {limits: [{type: Container, defaultRequest: {cpu: 500m}}]}
- apiVersion: apps/v1
  kind: ReplicaSet
  metadata: {name: api, namespace: shop, uid: api, creationTimestamp: "2026-01-01T00:00:00Z"}
  spec:
    replicas: 2
    selector: {matchLabels: {app: api}}
    template:
      metadata: {labels: {app: api}}
      spec: {containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]}
"""
POD = """
- apiVersion: v1
  kind: Pod
  metadata:
    name: api-{0}
    namespace: shop
    uid: api-{0}
    labels: {{app: api}}
    creationTimestamp: "2026-01-01T00:00:00Z"
    ownerReferences:
    - {{apiVersion: apps/v1, kind: ReplicaSet, name: api, uid: api, controller: true}}
  spec:
    nodeName: n1
    containers: [{{name: c, image: i, resources: {{requests: {{cpu: "1"}}}}}}]
  status:
    phase: Running
    startTime: "2026-01-01T00:00:10Z"
    conditions: [{{type: Ready, status: "True", lastTransitionTime: "2026-01-01T00:00:10Z"}}]
"""
MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 8
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec: {scaleTargetRef: {kind: Deployment, name: web}, minReplicas: 2, maxReplicas: 10}
"""


def write_cluster(folder: Path) -> None:
    """Write the cluster's list and the manifest."""
    (folder / "cluster.yaml").write_text(CLUSTER + POD.format(0) + POD.format(1))
    (folder / "web.yaml").write_text(MANIFEST)


def test_a_quota_admits_what_it_has_room_for_and_names_the_rest(tmp_path: Path) -> None:
    """Two of eight; the summary, the Events and the quota say so, and the replay ends."""
    write_cluster(tmp_path)
    reprieve(tmp_path, "replay", "cluster.yaml", "web.yaml", "--run", "r", "--spans", "off")
    quota, deployment = (
        reprieve(tmp_path, "get", kind, "r", "-n", "shop").stdout.splitlines()[1].split()
        for kind in ("quota", "deployments")
    )
    assert quota[1:3] == ["requests.cpu:", "3/3"]
    assert deployment[:2] == ["web", "2/8"]
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    notes = {note["kind"]: note["text"] for note in summary["notes"]}
    assert notes["not-simulated"] == (
        "HorizontalPodAutoscaler shop/web scales Deployment web between 2 and 10: "
        "replicas stay at 8 unless something else sets them"
    )
    reason = "exceeded quota: compute, requested: requests.cpu=500m, used: requests.cpu=3, limited"
    assert "could not create 6 pods" in notes["refused"]
    assert reason in notes["refused"]
    events = reprieve(tmp_path, "get", "events", "r", "-n", "shop").stdout
    assert events.count("FailedCreate") == 1
    assert reason in " ".join(events.split())


def test_compare_and_the_reports_have_the_notes(tmp_path: Path) -> None:
    """Without the manifest nothing is refused; with it the note is B's."""
    write_cluster(tmp_path)
    for name, files in (("a", ["cluster.yaml"]), ("b", ["cluster.yaml", "web.yaml"])):
        reprieve(tmp_path, "replay", *files, "--run", name, "--spans", "off")
    done = reprieve(tmp_path, "compare", "a", "b", "-o", "json", "--html", "ab.html")
    notes = {note["kind"]: (note["a"], note["b"]) for note in json.loads(done.stdout)["notes"]}
    assert notes == {"not-simulated": (0, 1), "refused": (0, 1)}
    table = " ".join(reprieve(tmp_path, "compare", "a", "b").stdout.split())
    assert "A B KIND NOTE 0 1 not-simulated HorizontalPodAutoscaler shop/web scales" in table
    reprieve(tmp_path, "compare", "a", "b", "--summary", "ab.md")
    assert "| Note | A | B |" in (tmp_path / "ab.md").read_text()
    reprieve(tmp_path, "report", "b")
    for page in (tmp_path / "ab.html", tmp_path / "b" / "report.html"):
        assert "exceeded quota: compute" in page.read_text()


def test_a_request_above_its_limit_is_refused_in_the_api_servers_words(tmp_path: Path) -> None:
    """In a manifest nothing is applied; above a LimitRange's default limit no pod is created."""
    resources = "{requests: {cpu: 700m}, limits: {cpu: 500m}}"
    above = MANIFEST.replace("image: i", f"image: i, resources: {resources}")
    (tmp_path / "above.yaml").write_text(above)
    (tmp_path / "request.yaml").write_text(above.replace(", limits: {cpu: 500m}", ""))
    limited = CLUSTER.replace("defaultRequest: {cpu: 500m}", "default: {cpu: 500m}")
    (tmp_path / "cluster.yaml").write_text(limited + POD.format(0) + POD.format(1))
    problem = (
        'spec.containers[0].resources.requests: Invalid value: "700m": '
        "must be less than or equal to cpu limit of 500m"
    )
    for arguments in (("above.yaml",), ("--apply", "above.yaml")):
        done = reprieve(tmp_path, "replay", "cluster.yaml", *arguments, "--run", "a", code=2)
        assert f"web: an API server refuses it: spec.template.{problem}" in done.stderr
        assert not (tmp_path / "a").exists()
    checks = ("--assert", "refused{workload=web} == 8", "--assert", "pending == 8")
    options = ("--apply", "request.yaml", "--run", "b", "--spans", "off", *checks)
    done = reprieve(tmp_path, "replay", "cluster.yaml", *options)
    assert f"is invalid: {problem}" in " ".join(done.stdout.split())
