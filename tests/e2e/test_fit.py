"""How many more pods fit: cluster-capacity's published numbers, a sum over nodes, and by hand.

Source of the numbers: kubernetes-sigs/cluster-capacity README.md ("Demonstration": 52 and 46, and
"Running Cluster Capacity as a Job": 52 on two nodes) and pkg/framework/simulator_test.go,
TestPrediction (its nodes; its limit of 6, and 9 without the limit, three pods a node).
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from replay.cli.errors import REFUSED
from tests.e2e.commands import reprieve
from tests.e2e.replays import ROOT
from tests.kubectl_objects import Raw, node, write_list

pytestmark = pytest.mark.e2e

BAKERY = str(ROOT / "examples" / "clusters" / "bakery.yaml")


def pod(name: str, requests: dict[str, str], **spec: Any) -> Raw:
    """Return a pod with one container."""
    container = {"name": "main", "image": "app:1", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [container], **spec},
    }


def running(name: str, requests: dict[str, str], on: str) -> Raw:
    """Return a pod that runs on a node."""
    made = pod(name, requests, nodeName=on)
    made["metadata"] |= {"namespace": "default", "uid": f"{name}-uid"}
    return made | {"status": {"phase": "Running"}}


def pending(name: str, requests: dict[str, str]) -> Raw:
    """Return a pod without a node."""
    made = pod(name, requests)
    made["metadata"] |= {"namespace": "default", "uid": f"{name}-uid"}
    return made | {"status": {"phase": "Pending"}}


SMALL = {"cpu": "150m", "memory": "100Mi"}
OTHER = {"cpu": "100m", "memory": "5M"}


def fits(folder: Path, items: list[Raw], more: list[Raw], *options: str) -> dict[str, Any]:
    """Return what `fit` answers, as JSON."""
    write_list(folder / "cluster.yaml", items)
    (folder / "more.yaml").write_text(yaml.safe_dump_all(more))
    done = reprieve(
        folder, "fit", "cluster.yaml", "more.yaml", "-o", "json", "--no-explain", *options
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def nodes(count: int, cpu: str, memory: str = "4Gi", pods: str = "110") -> list[Raw]:
    """Return equal nodes, kube-node-1 and so on."""
    amounts = {"cpu": cpu, "memory": memory, "pods": pods}
    return [node(f"kube-node-{number}", amounts) for number in range(1, count + 1)]


def test_cluster_capacity_s_demonstration(tmp_path: Path) -> None:
    """Four nodes with 2 CPUs take 13 pods of 150m each; the text is what kubectl describe shows."""
    answer = fits(tmp_path, nodes(4, "2"), [pod("small-pod", SMALL)])
    fit = answer["fit"]
    assert fit["copies"] == 52
    assert fit["nodes"] == {f"kube-node-{number}": 13 for number in range(1, 5)}
    [stopped] = fit["stopped"]
    assert stopped.startswith("The next one does not: 0/4 nodes are available: 4 Insufficient cpu.")
    assert [one["at"]["copies of small-pod"] for one in answer["tried"]] == [
        f"more.yaml,copies={number}" for number in (0, 51, 52, 53, 54)
    ]


def test_cluster_capacity_s_demonstration_with_six_more_pods_that_run(tmp_path: Path) -> None:
    """Two on the first and third node, one on the others: 11, 12, 11 and 12 are left."""
    places = (1, 1, 2, 3, 3, 4)
    run = [running(f"rc-{at}", SMALL, f"kube-node-{on}") for at, on in enumerate(places)]
    fit = fits(tmp_path, [*nodes(4, "2"), *run], [pod("small-pod", SMALL)])["fit"]
    assert fit["copies"] == 46
    assert fit["nodes"] == {
        "kube-node-2": 12, "kube-node-4": 12, "kube-node-1": 11, "kube-node-3": 11,
    }  # fmt: skip


def test_cluster_capacity_s_job_on_two_nodes(tmp_path: Path) -> None:
    """26 on each of two nodes with 4 CPUs."""
    fit = fits(tmp_path, nodes(2, "4"), [pod("small-pod", SMALL)])["fit"]
    assert (fit["copies"], set(fit["nodes"].values())) == (52, {26})


def test_cluster_capacity_s_prediction_with_its_limit_and_without(tmp_path: Path) -> None:
    """300m, 400m and 1200m for pods of 100m, at most three pods a node."""
    items = [
        node(name, {"cpu": cpu, "memory": memory, "pods": "3"})
        for name, cpu, memory in (
            ("test-node-1", "300m", "1G"), ("test-node-2", "400m", "2G"),
            ("test-node-3", "1200m", "1G"),
        )
    ]  # fmt: skip
    limited = fits(tmp_path, items, [pod("simulated-pod", OTHER)], "--max-limit", "6")
    assert (limited["fit"]["copies"], limited["fit"]["is_limited"]) == (6, True)
    fit = fits(tmp_path, items, [pod("simulated-pod", OTHER)])["fit"]
    assert (fit["copies"], fit["is_limited"]) == (9, False)
    assert "Too many pods" in fit["stopped"][0]


@pytest.mark.parametrize(
    "first",
    [pytest.param(first, marks=[pytest.mark.long] * (first >= 20)) for first in range(0, 50, 10)],
)
def test_generated_clusters_have_the_sum_over_their_nodes(first: int, tmp_path: Path) -> None:
    """Fifty: of each node that the pods may go to, the least of its free amounts by requests.

    Nodes differ in size, some are tainted, some have another label; pods that run take room.
    """
    for case in range(first, first + 10):
        random = Random(case)  # noqa: S311 - chance makes the cases
        items, expected = [], 0
        cpu, memory = random.choice((100, 250, 700)), random.choice((64, 300, 900))
        selects, tolerates = random.random() < 0.3, random.random() < 0.3
        for number in range(random.randrange(1, 6)):
            has = [
                random.randrange(500, 4000),
                random.randrange(512, 4096),
                random.randrange(3, 12),
            ]
            is_fast, is_tainted = random.random() < 0.5, random.random() < 0.3
            amounts = {"cpu": f"{has[0]}m", "memory": f"{has[1]}Mi", "pods": f"{has[2]}"}
            made = node(f"n{number}", amounts, speed="fast" if is_fast else "slow")
            if is_tainted:
                made["spec"]["taints"] = [{"key": "own", "effect": "NoSchedule"}]
            items.append(made)
            for at in range(random.randrange(3)):
                used = [random.randrange(1, 250), random.randrange(1, 250), 1]
                has = [amount - taken for amount, taken in zip(has, used, strict=True)]
                requests = {"cpu": f"{used[0]}m", "memory": f"{used[1]}Mi"}
                items.append(running(f"run-{number}-{at}", requests, f"n{number}"))
            if (is_fast or not selects) and (tolerates or not is_tainted):
                expected += min(has[0] // cpu, has[1] // memory, has[2])
        spec: dict[str, Any] = {"nodeSelector": {"speed": "fast"}} if selects else {}
        if tolerates:
            spec["tolerations"] = [{"key": "own", "operator": "Exists"}]
        more = pod("more", {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}, **spec)
        folder = tmp_path / str(case)
        folder.mkdir()
        fit = fits(folder, items, [more])["fit"]
        assert (fit["copies"], fit["fails_at"]) == (expected, expected + 1), case


def of_bakery(folder: Path, *options: str) -> dict[str, Any]:
    """Return how many pods of class online with 1 CPU fit into pool general of the bakery."""
    (folder / "more.yaml").write_text(
        yaml.safe_dump(
            pod("extra", {"cpu": "1"}, priorityClassName="online", nodeSelector={"pool": "general"})
        )
    )
    done = reprieve(folder, "fit", BAKERY, "more.yaml", "-o", "json", "--no-explain", *options)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_nobody_is_displaced_by_default_and_whom_they_displace_is_counted(tmp_path: Path) -> None:
    """1,400m, 900m, 1,400m and 400m are free: two fit. Three reports (1 CPU each) may be preempted.

    They are all on general-4, so that of its 400m and 3,000m three more pods have 1 CPU each.
    """
    fit = of_bakery(tmp_path)["fit"]
    assert (fit["copies"], fit["nodes"], fit["preempted"]) == (
        2, {"general-1": 1, "general-3": 1}, [],
    )  # fmt: skip
    assert fit["stopped"][0].startswith("The next one preempts back-office/report-")
    fit = of_bakery(tmp_path, "--may-preempt")["fit"]
    assert (fit["copies"], len(fit["preempted"])) == (5, 3)
    assert all(name.startswith("back-office/report-") for name in fit["preempted"])
    assert fit["nodes"] == {"general-4": 3, "general-1": 1, "general-3": 1}


def test_pods_that_wait_already_are_no_copies(tmp_path: Path) -> None:
    """Nor where their Deployment has the name of the pod: of 8 CPUs, 8 copies have one each."""
    items = [*nodes(2, "4"), pending("other", {"cpu": "9"}), pending("web-5d8f9c", {"cpu": "9"})]
    assert fits(tmp_path, items, [pod("web", {"cpu": "1"})])["fit"]["copies"] == 8


def test_a_pod_that_waits_already_under_the_name_of_a_copy_is_named(tmp_path: Path) -> None:
    """A check could not tell it from one; the replay without copies is enough to say so.

    Beside it there is only the baseline, which has no --apply.
    """
    write_list(tmp_path / "cluster.yaml", [*nodes(2, "4"), pending("web-50", {"cpu": "9"})])
    (tmp_path / "more.yaml").write_text(yaml.safe_dump(pod("web", {"cpu": "1"})))
    done = reprieve(tmp_path, "fit", "cluster.yaml", "more.yaml", "--run", "f", code=REFUSED)
    assert done.stderr == (
        "Error: more.yaml: default/web-50 waits for a node already and would count as copies: "
        "give the pod that is copied another name\n"
    )
    assert len(list(tmp_path.glob("f/cells/*/run/manifest.json"))) == 2


@pytest.mark.parametrize(
    ("options", "sentences"),
    [
        (("--max-runs", "1"), ["At least 0 more of web fit."]),
        (("--max-runs", "2"), ["At least 8 more of web fit: 4 on kube-node-1, 4 on kube-node-2."]),
        (
            ("--max-limit", "5"),
            [
                "At least 5 more of web fit: 3 on kube-node-2, 2 on kube-node-1.",
                "The search ends at --max-limit.",
            ],
        ),
    ],
)
def test_what_ends_a_search_before_a_copy_fails_leaves_the_least_number(
    options: tuple[str, ...], sentences: list[str], tmp_path: Path
) -> None:
    """8 copies fit, which are tried second; a budget is not called the limit."""
    answer = fits(tmp_path, nodes(2, "4"), [pod("web", {"cpu": "1"})], *options)
    assert answer["answer"][:-1] == sentences


def test_numbers_that_a_budget_left_out_are_named(tmp_path: Path) -> None:
    """Two nodes have room for 8 copies, which may go to one of them."""
    web = pod("web", {"cpu": "1"}, nodeSelector={"kubernetes.io/hostname": "kube-node-1"})
    answer = fits(tmp_path, nodes(2, "4"), [web], "--max-runs", "2")
    assert answer["answer"][:-1] == [
        "At least 0 more of web fit.",
        "8 do not; numbers between the two were not tried.",
    ]


def test_each_seed_must_fit_the_pods(tmp_path: Path) -> None:
    """A number is a replay for each; they are of one size here."""
    answer = of_bakery(tmp_path, "--seeds", "2")
    assert answer["fit"]["copies"] == 2
    assert {len(one["runs"]) for one in answer["tried"]} == {2}


def test_what_cannot_be_copied_is_refused_with_what_to_give(tmp_path: Path) -> None:
    """A workload makes pods of its own; a trace alone is half of the question."""
    (tmp_path / "web.yaml").write_text(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"
        "spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, "
        "spec: {containers: [{name: c, image: i}]}}}\n"
    )
    done = reprieve(tmp_path, "fit", BAKERY, "web.yaml", code=REFUSED)
    told = "Deployment web makes its own: give a Pod of its template"
    assert done.stderr == f"Error: web.yaml: only pods are copied, and {told}\n"
    done = reprieve(tmp_path, "fit", BAKERY, code=REFUSED)
    assert "give a trace, or a run, and a file with the pods" in done.stderr
