"""Pods and ReplicaSets that their controllers adopt or release, in a cluster in mid-life."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml

from tests.e2e.commands import reprieve
from tests.kubectl_objects import SHOP
from tests.living_cluster import Raw, living_cluster, named, write_list

pytestmark = pytest.mark.e2e
WEB = "web-3d9f7c5b6"


def replayed(folder: Path, items: list[Raw], *options: str) -> str:
    """Replay a cluster, with further files and options; return what the command writes."""
    write_list(folder / "cluster.yaml", items)
    done = reprieve(folder, "replay", "cluster.yaml", *options, "--run", "run", "--spans", "off")
    return done.stdout + done.stderr


def shown(folder: Path, *arguments: str) -> list[list[str]]:
    """Return the rows of `reprieve get`, without their header, as cells."""
    done = reprieve(folder, "get", *arguments, "run", "-n", SHOP)
    return [line.split() for line in done.stdout.splitlines()[1:]]


def described(folder: Path, pod: str) -> str:
    """Return what `reprieve describe` shows of a pod."""
    return reprieve(folder, "describe", "pod", pod, "run", "-n", SHOP).stdout


def test_a_quarantined_pod_is_replaced_and_keeps_running(tmp_path: Path) -> None:
    """As with `kubectl label pod web-... app-`: five pods, of which four are the Deployment's.

    The budget of web selects app=web: it counts four pods, and not the quarantined one.
    """
    items = living_cluster()
    pod = _pods_of(items, WEB)[0]
    del pod["metadata"]["labels"]["app"]
    replayed(tmp_path, items)
    name = pod["metadata"]["name"]
    pods = [row for row in shown(tmp_path, "pods") if row[0].startswith(WEB)]
    assert [row[2] for row in pods] == ["Running"] * 5
    assert "Controlled By" not in described(tmp_path, name)
    others = [row[0] for row in pods if row[0] != name]
    assert all(f"ReplicaSet/{WEB}" in described(tmp_path, other) for other in others)
    assert [row[1] for row in shown(tmp_path, "deployments") if row[0] == "web"] == ["4/4"]
    (budget,) = [row for row in shown(tmp_path, "pdb") if row[0] == "web"]
    assert budget[3] == "1"


def test_a_bare_pod_of_a_replica_sets_labels_takes_the_place_of_another(tmp_path: Path) -> None:
    """Of five pods that the selector matches one goes: the one that is pending."""
    items = living_cluster()
    bare = copy.deepcopy(_pods_of(items, WEB)[0])
    bare["metadata"] = {"name": "bare", "namespace": SHOP, "labels": bare["metadata"]["labels"]}
    del bare["spec"]["nodeName"], bare["status"]
    replayed(tmp_path, [*items, bare])
    names = {row[0] for row in shown(tmp_path, "pods")}
    assert "bare" not in names
    assert len([name for name in names if name.startswith(WEB)]) == 4


@pytest.mark.parametrize("image", ["", "registry.example/web:2"])
def test_a_deployment_deleted_with_cascade_orphan_and_applied_again_adopts_its_pods(
    tmp_path: Path, image: str
) -> None:
    """As it was, nothing is created; with a new image the adopted ReplicaSet is rolled out."""
    items = living_cluster()
    former = named(items, "Deployment", "web")
    items.remove(former)
    del named(items, "ReplicaSet", WEB)["metadata"]["ownerReferences"]
    spec = copy.deepcopy(former["spec"])
    for defaulted in ("restartPolicy", "schedulerName", "terminationGracePeriodSeconds"):
        spec["template"]["spec"].pop(defaulted)
    if image:
        spec["template"]["spec"]["containers"][0]["image"] = image
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": SHOP},
        "spec": spec,
    }
    (tmp_path / "web.yaml").write_text(yaml.safe_dump(manifest))
    replayed(tmp_path, items, "web.yaml")
    sets = {row[0]: row[1] for row in shown(tmp_path, "replicasets") if row[0].startswith("web-")}
    pods = [row[0] for row in shown(tmp_path, "pods") if row[0].startswith("web-")]
    assert len(pods) == 4
    if image:
        assert len(sets) == 2
        assert sets[WEB] == "0"
        assert not any(name.startswith(WEB) for name in pods)
    else:
        assert sets == {WEB: "4"}
        assert all(name.startswith(WEB) for name in pods)


def test_orphans_of_a_deployment_and_its_replica_set_are_adopted(tmp_path: Path) -> None:
    """The template's hash, which is in their labels, makes the new ReplicaSet select them."""
    items = living_cluster()
    former = named(items, "Deployment", "web")
    items.remove(former)
    items.remove(named(items, "ReplicaSet", WEB))
    for pod in _pods_of(items, WEB):
        del pod["metadata"]["ownerReferences"]
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": SHOP},
        "spec": former["spec"],
    }
    (tmp_path / "web.yaml").write_text(yaml.safe_dump(manifest))
    before = {pod["metadata"]["name"] for pod in _pods_of(items, WEB)}
    text = replayed(tmp_path, items, "web.yaml")
    assert {row[0] for row in shown(tmp_path, "pods") if row[0].startswith("web-")} == before
    assert [row[1] for row in shown(tmp_path, "deployments") if row[0] == "web"] == ["4/4"]
    assert "adopted" in text


def test_a_drained_node_gives_up_an_adopted_pod_as_any_of_its_controller(tmp_path: Path) -> None:
    """The StatefulSet was deleted with --cascade=orphan; with it applied again, db-0 comes back."""
    items = living_cluster()
    items.remove(database := named(items, "StatefulSet", "db"))
    for number in range(3):
        del named(items, "Pod", f"db-{number}")["metadata"]["ownerReferences"]
    node = named(items, "Pod", "db-0")["spec"]["nodeName"]
    output = replayed(tmp_path, items, "--drain", node)
    assert f"{SHOP}/db-0" in output[output.index("evicted pods without a controller") :]
    assert "db-0" not in {row[0] for row in shown(tmp_path, "pods")}
    meta = {"name": "db", "namespace": SHOP}
    manifest = {**database, "metadata": meta}
    manifest.pop("status")
    (tmp_path / "db.yaml").write_text(yaml.safe_dump(manifest))
    output = replayed(tmp_path, items, "db.yaml", "--drain", node, "--force")
    unmanaged = output.partition("evicted pods without a controller")[2]
    assert "db-0" not in unmanaged
    assert "db-0" in {row[0] for row in shown(tmp_path, "pods")}


def _pods_of(items: list[Raw], prefix: str) -> list[Raw]:
    return [
        item
        for item in items
        if item["kind"] == "Pod" and item["metadata"]["name"].startswith(prefix)
    ]
