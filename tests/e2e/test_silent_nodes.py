"""Nodes that do not answer, in a cluster in mid-life, asked by the commands that people try."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from tests.e2e.commands import reprieve
from tests.kubectl_objects import TAKEN, Raw, ago, named, write_list
from tests.living_cluster import NODES, living_cluster

pytestmark = pytest.mark.e2e

UNREACHABLE = "node.kubernetes.io/unreachable"


def lose(items: list[Raw], name: str) -> None:
    """Let a node be Unknown for 109 s, its NoExecute taint 104 s old, as a cluster shows it."""
    node = named(items, "Node", name)
    for condition in node["status"]["conditions"]:
        condition.update(
            status="Unknown",
            reason="NodeStatusUnknown",
            lastHeartbeatTime=ago(seconds=160),
            lastTransitionTime=ago(seconds=109),
        )
    node["spec"].setdefault("taints", []).extend(
        {"key": UNREACHABLE, "effect": effect, "timeAdded": ago(seconds=seconds)}
        for effect, seconds in (("NoSchedule", 109), ("NoExecute", 104))
    )
    for pod in items:
        if pod["kind"] == "Pod" and pod["spec"].get("nodeName") == name:
            for condition in pod["status"]["conditions"]:
                if condition["type"] == "Ready":
                    condition.update(status="False", lastTransitionTime=ago(seconds=109))


def rows(folder: Path, *arguments: str) -> dict[str, list[str]]:
    """Return the rows of `reprieve get` by the object's name."""
    lines = reprieve(folder, "get", *arguments).stdout.splitlines()[1:]
    cells = [line.split() for line in lines]
    at = 0 if arguments[0] == "nodes" else 1
    return {row[at]: row for row in cells}


def replayed(folder: Path, items: list[Raw], minutes: str) -> str:
    """Replay a list and return what is printed."""
    write_list(folder / "cluster.yaml", items)
    shown = reprieve(
        folder, "replay", "cluster.yaml", "--run", "run", "--in-process", "--until", minutes
    )
    return " ".join(shown.stdout.split())


def test_pods_of_a_node_that_is_unknown_terminate_and_stay(tmp_path: Path) -> None:
    """worker-1 runs web, db-0, report and a daemon: 196 s of the tolerations of 300 s are left.

    The Deployments' pods are replaced then, elsewhere; db-0 is not, and the daemon tolerates all.
    """
    items = living_cluster()
    lose(items, NODES[0])
    replayed(tmp_path, items, "195s")
    before = rows(tmp_path, "pods", "run")
    assert {before[name][3] for name in before if name != "too-big"} == {"Running"}
    items = living_cluster()
    lose(items, NODES[0])
    (tmp_path / "later").mkdir()
    notes = replayed(tmp_path / "later", items, "20m")
    after = rows(tmp_path / "later", "pods", "run")
    terminating = sorted(name for name, row in after.items() if row[3] == "Terminating")
    assert terminating == ["db-0", "report-6d9f7c5b6-bcdfg", "web-3d9f7c5b6-bcdfg"]
    assert sum(name.startswith("web-") for name in after) == 5
    assert rows(tmp_path / "later", "nodes", "run")["worker-1"][1] == "NotReady"
    assert "pods terminate on node worker-1, whose kubelet does not act" in notes


def test_a_pod_that_terminates_on_a_silent_node_is_not_finished_by_its_deadline(
    tmp_path: Path,
) -> None:
    """old-shell's deletionTimestamp is 20 s after the snapshot, on worker-6."""
    items = living_cluster()
    lose(items, NODES[5])
    replayed(tmp_path, items, "10m")
    assert rows(tmp_path, "pods", "run")["old-shell"][3] == "Terminating"


def test_a_pod_with_a_finalizer_keeps_its_name_in_a_snapshot(tmp_path: Path) -> None:
    """db-1 has ended and terminates: the StatefulSet, of which it is one, makes no second db-1."""
    items = living_cluster()
    pod = named(items, "Pod", "db-1")
    pod["metadata"]["finalizers"] = ["backup.example/copy"]
    pod["metadata"]["deletionGracePeriodSeconds"] = 0
    gone = TAKEN - timedelta(minutes=3)
    pod["metadata"]["deletionTimestamp"] = f"{gone:%Y-%m-%dT%H:%M:%SZ}"
    pod["status"]["phase"] = "Failed"
    for condition in pod["status"]["conditions"]:
        condition["status"] = "False" if condition["type"] == "Ready" else condition["status"]
    replayed(tmp_path, items, "10m")
    assert rows(tmp_path, "pods", "run")["db-1"][-1] == "2d"


def test_partial_disruption_of_a_small_cluster_stops_evictions_and_is_noted(tmp_path: Path) -> None:
    """Four of six nodes are 67 %: no NoExecute taint, and no pod is deleted in an hour."""
    items = living_cluster()
    for name in NODES[:4]:
        named(items, "Node", name)["metadata"]["annotations"] = {"reprieve/fail-at": "1m"}
    notes = replayed(tmp_path, items, "1h")
    pods = rows(tmp_path, "pods", "run")
    assert "Terminating" not in {row[3] for row in pods.values()}
    assert "4 of 6 nodes of the cluster, which has no zones, are not ready" in notes
    states = {name: row[1] for name, row in rows(tmp_path, "nodes", "run").items()}
    assert [states[name] for name in NODES[:5]] == ["NotReady"] * 4 + ["Ready"]


def test_a_jobs_pods_that_terminate_on_a_silent_node_are_its_failures(tmp_path: Path) -> None:
    """Two run on worker-5: each is a failure when its deletion is requested, and is replaced.

    One has succeeded before; backoffLimit 6 is not reached.
    """
    items = living_cluster()
    lose(items, NODES[4])
    replayed(tmp_path, items, "20m")
    shown = reprieve(tmp_path, "get", "jobs", "import", "run", "-n", "shop", "-o", "json").stdout
    status = json.loads(shown)["status"]
    figures = {name: status.get(name) for name in ("active", "failed", "succeeded", "terminating")}
    assert figures == {"active": 2, "failed": 2, "succeeded": 1, "terminating": 2}
