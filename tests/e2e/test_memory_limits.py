"""A leak in a cluster as `kubectl get -o yaml` prints it, with and without limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.commands import reprieve

pytestmark = pytest.mark.e2e

CLUSTER = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: worker-1, creationTimestamp: "2026-03-01T09:00:00Z"}
  spec: {}
  status:
    capacity: {cpu: "4", memory: 4Gi, pods: "110"}
    allocatable: {cpu: "4", memory: 3996Mi, pods: "110"}
    conditions:
    - {type: Ready, status: "True", lastHeartbeatTime: "2026-03-02T09:30:00Z"}
- apiVersion: v1
  kind: Pod
  metadata:
    name: web-0
    namespace: shop
    uid: 6f1d6d6e-0000-4000-8000-000000000001
    creationTimestamp: "2026-03-02T09:00:00Z"
    labels: {app: web}
  spec:
    nodeName: worker-1
    restartPolicy: Always
    containers:
    - name: web
      image: registry.test/web:1
      resources: {requests: {cpu: 100m, memory: 256Mi}%(limits)s}
    - name: log
      image: registry.test/log:1
      resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {memory: 64Mi}}
    initContainers:
    - name: mesh
      image: registry.test/mesh:1
      restartPolicy: Always
      resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {memory: 64Mi}}
  status:
    phase: Running
    qosClass: Burstable
    startTime: "2026-03-02T09:00:00Z"
    conditions:
    - {type: PodScheduled, status: "True", lastTransitionTime: "2026-03-02T09:00:00Z"}
    - {type: Ready, status: "True", lastTransitionTime: "2026-03-02T09:00:05Z"}
    containerStatuses:
    - name: web
      ready: true
      started: true
      restartCount: 2
      state: {running: {startedAt: "2026-03-02T09:00:05Z"}}
      lastState:
        terminated: {exitCode: 137, reason: OOMKilled, finishedAt: "2026-03-02T09:00:04Z"}
    - name: log
      ready: true
      started: true
      restartCount: 0
      state: {running: {startedAt: "2026-03-02T09:00:05Z"}}
    initContainerStatuses:
    - name: mesh
      ready: true
      started: true
      restartCount: 0
      state: {running: {startedAt: "2026-03-02T09:00:04Z"}}
"""
LEAK = ("--usage", "app=web memory.web 200Mi+50Mi/m", "--until", "30m")


def cluster(folder: Path, limits: str) -> Path:
    """Write the cluster; `limits` are those of the container "web"."""
    path = folder / "cluster.yaml"
    path.write_text(CLUSTER % {"limits": limits}, encoding="utf-8")
    return path


def test_a_leak_with_a_limit_is_killed_and_restarted_and_nothing_else(tmp_path: Path) -> None:
    """512Mi are reached in 374.4 s; waits of 0, 10 and 20 s: at 374.4, 748.8, 1133.2, 1527.6 s.

    The snapshot has two restarts, which are not repeated. The other containers go on.
    """
    cluster(tmp_path, ", limits: {memory: 512Mi}")
    checks = ("--assert", "oom_killed == 4", "--assert", "evicted == 0")
    done = reprieve(tmp_path, "replay", "cluster.yaml", "--run", "run", *LEAK, *checks)
    assert "OOM-killed                    4" in done.stdout
    pods = reprieve(tmp_path, "get", "pods", "run", "-A").stdout
    assert " 3/3 " in pods
    assert " 6 (" in pods
    described = reprieve(tmp_path, "describe", "pod", "web-0", "run", "-n", "shop").stdout
    assert "OOMKilled" in described
    assert "137" in described
    sql = (
        "SELECT (at_ns - start_ns) // 100000000 AS tenths, container, limit_of FROM oom_kills, run"
    )
    rows = reprieve(tmp_path, "query", "run", sql, "-o", "csv").stdout.split()[1:]
    tenths = [3744, 7488, 11332, 15276]
    assert rows == [f"{tenth},web,container" for tenth in tenths]


def test_the_same_leak_without_a_limit_is_evicted(tmp_path: Path) -> None:
    """3,996 MiB are left above the threshold: after 76 minutes the node has 100 MiB."""
    cluster(tmp_path, "")
    checks = ("--assert", "oom_killed == 0", "--assert", "evicted == 1")
    usage = ("--usage", "app=web memory.web 200Mi+50Mi/m", "--until", "2h")
    reprieve(tmp_path, "replay", "cluster.yaml", "--run", "run", *usage, *checks)


def test_a_leak_in_a_pod_with_several_containers_names_the_missing_data(tmp_path: Path) -> None:
    """The value is the sum of three containers, each of which has a limit: 640Mi together."""
    cluster(tmp_path, ", limits: {memory: 512Mi}")
    usage = ("--usage", "app=web memory 200Mi+50Mi/m", "--until", "10m")
    done = reprieve(
        tmp_path, "replay", "cluster.yaml", "--run", "run", *usage, "--assert", "oom_killed == 1"
    )
    assert "known as a sum only" in done.stdout


def test_a_container_that_no_pod_has_is_refused(tmp_path: Path) -> None:
    """With those that there are."""
    cluster(tmp_path, "")
    usage = ("--usage", "app=web memory.wed 1Gi")
    done = reprieve(tmp_path, "replay", "cluster.yaml", *usage, code=2)
    assert "the containers of these pods are log, mesh, web" in done.stderr


def test_a_comparison_shows_what_a_higher_limit_changes(tmp_path: Path) -> None:
    """By the figure, and the first decision that differs."""
    low = cluster(tmp_path, ", limits: {memory: 512Mi}")
    low.rename(tmp_path / "low.yaml")
    high = cluster(tmp_path, ", limits: {memory: 1Gi}")
    high.rename(tmp_path / "high.yaml")
    done = reprieve(tmp_path, "compare", "low.yaml", "--b", "high.yaml", "--", *LEAK)
    assert "oom_killed" in done.stdout
    assert "OOM-killed container web of shop/web-0" in done.stdout
