"""A release applied to a full cluster, by the command that a person would try first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from replay.results.run.directory import RunDirectory
from tests.e2e.commands import reprieve
from tests.living_cluster import NODES, TAKEN_NS, Raw, living_cluster, named, write_list

pytestmark = pytest.mark.e2e
NODE = NODES[0]


def full_cluster() -> list[Raw]:
    """Return one node of 4 CPUs with 1.5 left: web has 4 pods of 0.5, report 2 of 0.25.

    The pods of web have the class frontend (1000), those of report none (0).
    """
    items = [
        obj
        for obj in living_cluster()
        if obj["metadata"]["name"].startswith(("web", "report", "frontend", NODE))
        and obj["kind"] != "PodDisruptionBudget"
    ]
    for item in items:
        spec = item.get("spec", {})
        if item["kind"] == "Pod":
            spec["nodeName"] = NODE
        if item["metadata"]["name"].startswith("report"):
            pod = spec if item["kind"] == "Pod" else spec["template"]["spec"]
            pod["containers"][0]["resources"]["requests"]["cpu"] = "250m"
    return items


def release(folder: Path, **spec: Any) -> None:
    """Write cluster.yaml, and release/web.yaml: web with another image."""
    items = full_cluster()
    write_list(folder / "cluster.yaml", items)
    web = named(items, "Deployment", "web")
    manifest = {key: web[key] for key in ("apiVersion", "kind", "spec")}
    manifest["metadata"] = {"name": "web", "namespace": "shop"}
    manifest["spec"].update(spec)
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/web:2"
    (folder / "release").mkdir()
    (folder / "release" / "web.yaml").write_text(yaml.safe_dump(manifest))


def replayed(folder: Path, *options: str) -> dict[str, Any]:
    """Return the figures of the release's replay."""
    command = ("replay", "cluster.yaml", "release/", "--run", "run", "--spans", "off", *options)
    reprieve(folder, *command)
    summary: dict[str, Any] = json.loads((folder / "run" / "summary.json").read_bytes())
    return summary


def images(folder: Path, *options: str) -> list[str]:
    """Return the images of the pods of web that are Running, sorted."""
    shown = reprieve(folder, "get", "pods", "run", "-n", "shop", "-o", "json", *options).stdout
    return sorted(
        item["spec"]["containers"][0]["image"].rpartition(":")[2]
        for item in json.loads(shown)["items"]
        if item["metadata"]["name"].startswith("web")
        and "deletionTimestamp" not in item["metadata"]
    )


def progressing(folder: Path, *options: str) -> tuple[str, str]:
    """Return status and reason of web's condition Progressing."""
    shown = reprieve(
        folder, "get", "deployment", "web", "run", "-o", "json", "-n", "shop", *options
    )
    (web,) = [json.loads(shown.stdout)]
    conditions = {condition["type"]: condition for condition in web["status"]["conditions"]}
    assert conditions["Available"]["status"] == "True"
    return conditions["Progressing"]["status"], conditions["Progressing"]["reason"]


def test_a_release_preempts_no_bystander_that_a_rolling_update_would_not_touch(
    tmp_path: Path,
) -> None:
    """Of 4 replicas 1 may be more and 1 less: 2 new pods (1 CPU) at 0 s fit into 1.5 CPUs.

    At 30 s they are ready, the pod that was deleted has gone (1 CPU is left), 2 old ones go and 2
    new ones fit. All 4 at once (2 CPUs) would have preempted pods of report.
    """
    release(tmp_path)
    summary = replayed(tmp_path, "--model", "ready-delay=30s")
    assert summary["decided"].get("preempted", 0) == 0
    assert images(tmp_path, "--at", "0s") == ["1", "1", "1", "2", "2"]
    assert images(tmp_path, "--at", "30s") == ["1", "2", "2", "2", "2"]
    assert images(tmp_path, "--at", "60s") == ["2", "2", "2", "2"]
    assert progressing(tmp_path, "--at", "59s") == ("True", "ReplicaSetUpdated")
    assert progressing(tmp_path, "--at", "60s") == ("True", "NewReplicaSetAvailable")


def test_a_release_that_replaces_all_at_once_preempts(tmp_path: Path) -> None:
    """A surge of 100 % of 4: 2 CPUs are requested at once, 1.5 are left."""
    release(tmp_path, strategy={"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}})
    assert replayed(tmp_path)["decided"].get("preempted", 0) > 0


def test_a_broken_release_stops_with_most_pods_alive_and_is_named(tmp_path: Path) -> None:
    """Its new pods never become ready; the run ends, and its summary says what is left."""
    release(tmp_path)
    path = tmp_path / "release" / "web.yaml"
    web = yaml.safe_load(path.read_text())
    web["spec"]["template"]["metadata"]["annotations"] = {"reprieve/ready-delay": "never"}
    path.write_text(yaml.safe_dump(web))
    summary = replayed(tmp_path, "--until", "20m")
    assert images(tmp_path) == ["1", "1", "1", "2", "2"]
    assert progressing(tmp_path, "--at", "600s") == ("True", "ReplicaSetUpdated")
    assert progressing(tmp_path, "--at", "601s") == ("False", "ProgressDeadlineExceeded")
    (note,) = [note["text"] for note in summary["notes"] if note["kind"] == "rollout"]
    assert note == (
        "Deployment shop/web is still rolling out at the end: 2 of 4 pods are updated, 3 are of "
        "older templates, 3 are available; its progress deadline was exceeded "
        "(ProgressDeadlineExceeded)"
    )


@pytest.mark.parametrize("release_at_first", [("release/",), ("--apply", "release/")])
def test_a_daemon_set_that_is_released_at_the_beginning_rolls_out_node_by_node(
    tmp_path: Path, release_at_first: tuple[str, ...]
) -> None:
    """One node at a time, whose old pod uses its 30 s; pods are ready once they are bound."""
    items = living_cluster()
    agent = named(items, "DaemonSet", "agent")
    write_list(tmp_path / "cluster.yaml", [agent, *(item for item in items if item is not agent)])
    manifest = {key: agent[key] for key in ("apiVersion", "kind", "spec")}
    manifest["metadata"] = {"name": "agent", "namespace": "kube-system"}
    manifest["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/agent:2"
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "agent.yaml").write_text(yaml.safe_dump(manifest))
    options = (*release_at_first, "--run", "run", "--spans", "off")
    reprieve(tmp_path, "replay", "cluster.yaml", *options)
    ended = [
        (entry.time_ns - TAKEN_NS) // 10**9
        for entry in RunDirectory.open(tmp_path / "run").decisions()
        if entry.observed.HasField("removed") and entry.observed.object.name.startswith("agent-")
    ]
    assert ended == [30 * number for number in range(1, len(NODES) + 1)]
