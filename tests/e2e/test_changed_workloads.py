"""A cluster in mid-life whose workloads an option changes: replicas, class, budget, release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from replay.backends.processes import EmbeddedServices
from replay.importers.registry import open_trace
from replay.overrides.errors import OverrideError
from replay.overrides.overrides import Overrides
from replay.runner import FinishedReplay
from tests.e2e.replays import run
from tests.kubectl_objects import kubernetes_object
from tests.living_cluster import Raw, living_cluster, named, write_list

pytestmark = pytest.mark.e2e


def played(
    here: EmbeddedServices, folder: Path, items: list[Raw], *more: Path, **options: Any
) -> FinishedReplay:
    """Replay a cluster, and further files, with overrides."""
    folder.mkdir(exist_ok=True)
    path = write_list(folder / "cluster.yaml", items)
    plan = Overrides(**options).plan(lambda: open_trace([path, *more]))
    return run(here, plan.records(0), folder / "run")


def made(finished: FinishedReplay) -> list[str]:
    """Return the controllers of the pods that were created, by name."""
    return [
        entry.observed.created.owner.name
        for entry in finished.run.decisions()
        if entry.observed.HasField("created")
    ]


def priorities(finished: FinishedReplay, prefix: str) -> set[tuple[int, str]]:
    """Return the priorities and policies of the pods whose names begin so."""
    return {
        (pod.message.spec.priority, pod.message.spec.preemption_policy)
        for pod in finished.replay.cluster.pods.values()
        if pod.message.metadata.name.startswith(prefix)
    }


def test_more_replicas_are_pods_beside_those_that_run(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """`web` has four, and `db` three, of which one is the StatefulSet's next number."""
    sets = ("deployment.shop/web.replicas=6", "statefulset.db.replicas=4")
    finished = played(here, tmp_path / "run", living_cluster(), sets=sets)
    assert sorted(made(finished)) == ["db", "web-3d9f7c5b6", "web-3d9f7c5b6"]


@pytest.mark.parametrize(
    ("workload", "prefix"),
    [("deployment.shop/api", "api-"), ("statefulset.db", "db-"), ("daemonset.agent", "agent-")],
)
def test_another_class_is_that_of_the_pods_that_run_and_rolls_nothing_out(
    here: EmbeddedServices, tmp_path: Path, workload: str, prefix: str
) -> None:
    """As if it had always been so; the pods of other workloads keep theirs."""
    sets = (f"{workload}.priorityClassName=nightly",)
    finished = played(here, tmp_path / "run", living_cluster(), sets=sets)
    assert made(finished) == []
    assert priorities(finished, prefix) == {(10, "PreemptLowerPriority")}
    assert priorities(finished, "web-") == {(1000, "PreemptLowerPriority")}


def test_a_workload_may_get_a_class_that_is_made_for_it(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """The trace has no such class."""
    sets = ("deployment.api.priorityClassName=urgent", "priorityClass.urgent.value=77")
    finished = played(here, tmp_path / "run", living_cluster(), sets=sets)
    assert priorities(finished, "api-") == {(77, "PreemptLowerPriority")}


def test_a_budget_is_made_for_the_workload_of_its_name(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """It covers the workload's pods: three of three are healthy, so that one may go."""
    items = living_cluster()
    items.remove(named(items, "PodDisruptionBudget", "api"))
    finished = played(here, tmp_path / "run", items, sets=("pdb.shop/api.minAvailable=2",))
    status = finished.replay.cluster.budgets["shop/api"].status
    assert (status.expected_pods, status.disruptions_allowed) == (3, 1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("deployment.shop/wep.replicas=3", "did you mean shop/web?"),
        ("deployment.web.replicas=many", "write a whole number"),
        ("daemonset.agent.replicas=3", "'replicas' cannot be set; fields of daemonset: priority"),
        ("replicaset.web-3d9f7c5b6.replicas=9", "set deployment.shop/web.replicas"),
        ("deployment.web.priorityClassName=frontent", "did you mean frontend?"),
        ("deployment.web.image=x", "fields of deployment: priorityClassName, replicas"),
        ("pdb.shop/wep.minAvailable=1", "no workload has this name; did you mean shop/web?"),
        ("pdb.shop/other.minAvailable=1", "workloads: kube-system/agent, shop/api, shop/db"),
    ],
)
def test_a_change_of_what_is_not_there_is_refused_with_what_is(
    text: str, problem: str, tmp_path: Path
) -> None:
    """Before anything is started."""
    path = write_list(tmp_path / "cluster.yaml", living_cluster())
    with pytest.raises(OverrideError) as raised:
        Overrides(sets=(text,)).plan(lambda: open_trace([path]))
    assert problem in str(raised.value)


def test_no_second_budget_is_made_for_pods_that_have_one(tmp_path: Path) -> None:
    """The Eviction API evicts no pod with two budgets: the error names the one that is there."""
    items = living_cluster()
    named(items, "PodDisruptionBudget", "web")["metadata"]["name"] = "web-pdb"
    path = write_list(tmp_path / "cluster.yaml", items)
    with pytest.raises(
        OverrideError, match="the budget shop/web-pdb covers the pods of Deployment shop/web"
    ):
        Overrides(sets=("pdb.web.minAvailable=3",)).plan(lambda: open_trace([path]))


def release(folder: Path) -> Path:
    """Write a release: `web` with six replicas, and a new Deployment."""
    web = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": 6},
    }
    template = {
        "metadata": {"labels": {"app": "new"}},
        "spec": {"containers": [{"name": "main", "image": "registry.example/new:1"}]},
    }
    new = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "new", "namespace": "shop"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "new"}}, "template": template},
    }
    folder.mkdir()
    for workload in (web, new):
        (folder / f"{workload['metadata']['name']}.yaml").write_text(yaml.safe_dump(workload))  # type: ignore[index] # a mapping
    return folder


def log(finished: FinishedReplay) -> list[tuple[str, str, str]]:
    """Return the decisions, each with its object and the node."""
    entries = [entry.observed for entry in finished.run.decisions()]
    return [
        (entry.WhichOneof("observed") or "", entry.object.name, entry.scheduled.node_name)
        for entry in entries
    ]


def test_a_release_is_applied_as_further_files_of_the_trace_are(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """The same decisions, whichever way is taken."""
    path = release(tmp_path / "release")
    one = played(here, tmp_path / "one", living_cluster(), path)
    other = played(here, tmp_path / "other", living_cluster(), apply=(str(path),))
    assert log(one) == log(other)
    assert made(other).count("web-3d9f7c5b6") == 2


def test_a_release_may_come_at_a_time(here: EmbeddedServices, tmp_path: Path) -> None:
    """Ten minutes after the list was printed; the notes name what it changes."""
    path = release(tmp_path / "release")
    finished = played(here, tmp_path / "run", living_cluster(), apply=(f"{path},at=10m",))
    begin_ns = finished.run.summary()["start_ns"]
    at_ns = {
        entry.time_ns - begin_ns
        for entry in finished.run.decisions()
        if entry.observed.HasField("created")
    }
    assert at_ns == {600 * 10**9}
    texts = [text for kind, text in finished.replay.journal.notes if kind == "applied"]
    assert [text.partition("at=10m: ")[2] for text in texts] == [
        "Deployment shop/new is created",
        "Deployment shop/web is changed",
    ]


def test_a_release_into_a_namespace_that_does_not_exist_is_noted(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """The trace has its namespaces; one of the release's own counts, too."""
    path = tmp_path / "release.yaml"
    quota = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q, namespace: %s}\nspec: {}\n"
    new = "apiVersion: v1\nkind: Namespace\nmetadata: {name: new}\n"
    path.write_text("---\n".join([new, *(quota % name for name in ("shop", "new", "shpo"))]))
    items = [kubernetes_object("v1", "Namespace", "shop", namespace=""), *living_cluster()]
    finished = played(here, tmp_path / "run", items, apply=(str(path),))
    missing = [text for _, text in finished.replay.journal.notes if "namespace" in text]
    assert [text.partition("yaml: ")[2] for text in missing] == [
        "namespace shpo is not in the trace: kubectl apply fails unless it exists"
    ]


@pytest.mark.parametrize("at", ["", ",at=10m"])
def test_a_release_that_an_api_server_refuses_is_refused_before_the_replay(
    tmp_path: Path, at: str
) -> None:
    """The second document changes the selector of `web`, which is immutable."""
    changed = kubernetes_object("apps/v1", "Deployment", "web", spec={})
    changed["spec"] = {
        "selector": {"matchLabels": {"app": "shop"}},
        "template": {"metadata": {"labels": {"app": "shop"}}},
    }
    scaled = kubernetes_object("apps/v1", "Deployment", "api", spec={"replicas": 5})
    for manifest in (changed, scaled):
        del manifest["metadata"]["creationTimestamp"]
    path = tmp_path / "release.yaml"
    path.write_text(yaml.safe_dump_all([scaled, changed]))
    cluster = write_list(tmp_path / "cluster.yaml", living_cluster())
    overrides = Overrides(apply=(f"{path}{at}",))
    with pytest.raises(OverrideError, match=r"web: an API server refuses it: spec\.selector: "):
        overrides.plan(lambda: open_trace([cluster]))


def test_a_release_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """Also where it holds nothing that a trace carries."""
    with pytest.raises(OverrideError, match="does not exist"):
        Overrides(apply=(str(tmp_path / "none"),))
    path = tmp_path / "config.yaml"
    path.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n")
    with pytest.raises(OverrideError, match="no object in it is one that a trace carries"):
        Overrides(apply=(str(path),))


@pytest.mark.parametrize(
    ("kind", "name", "pods"),
    [("DaemonSet", "agent", 6), ("StatefulSet", "db", 3), ("Deployment", "web", 4)],
)
def test_a_copy_of_a_workload_with_another_image_rolls_out(
    here: EmbeddedServices, tmp_path: Path, kind: str, name: str, pods: int
) -> None:
    """As `kubectl get -o yaml` prints it, with UID and status, edited and applied again."""
    items = living_cluster()
    copy = yaml.safe_load(yaml.safe_dump(named(items, kind, name)))
    copy["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/new:2"
    (tmp_path / "copy.yaml").write_text(yaml.safe_dump(copy))
    finished = played(here, tmp_path / "run", items, tmp_path / "copy.yaml")
    images = [
        pod.message.spec.containers[0].image
        for pod in finished.replay.cluster.pods.values()
        if pod.message.metadata.labels.get("app") == name and pod.is_active
    ]
    assert images == ["registry.example/new:2"] * pods
