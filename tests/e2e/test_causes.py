"""The cause that `compare` names follows from the first difference's own object."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.commands import reprieve
from tests.e2e.test_memory_limits import CLUSTER as LEAKING
from tests.kubectl_objects import (
    Raw,
    deployment,
    kubernetes_object,
    node,
    pod_template,
    run_on,
    waiting_pod,
)
from tests.living_cluster import living_cluster, write_list

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--fail worker-2,at=1m", "Only B has --fail worker-2,at=1m."),
        ("--fail worker-6", "Only B has --fail worker-6."),
        ("--drain worker-2", "Only B has --drain worker-2."),
        ("--set deployment.shop/web.replicas=5", "Deployment shop/web are 4 in A and 5 in B."),
        ("--drop-nodes worker-2", "B has no node worker-2."),
    ],
)
def test_the_cause_is_the_difference_of_the_object(tmp_path: Path, options: str, told: str) -> None:
    """The cluster has no usage, so usage is never the cause: worker-6 holds a terminating pod."""
    write_list(tmp_path / "list.yaml", living_cluster())
    tail = ("--run", "x", "--", "--until", "10m", "--spans", "off")
    done = reprieve(tmp_path, "compare", "list.yaml", "--b", options, *tail)
    assert told in done.stdout
    assert "usage differs" not in done.stdout


def test_the_runs_diverge_at_the_earlier_of_two_first_differences(tmp_path: Path) -> None:
    """B's node is Unknown after 1m50s; A retries a pod then that has waited for 5m30s."""
    write_list(tmp_path / "list.yaml", living_cluster())
    sides = ("--a", "--fail worker-2,at=5m", "--b", "--fail worker-2,at=1m")
    tail = ("--run", "x", "--", "--until", "10m", "--spans", "off")
    lines = _first(reprieve(tmp_path, "compare", "list.yaml", *sides, *tail, COLUMNS="400").stdout)
    assert lines[-1].startswith("The first different decision, at 1m50s, after ")
    assert lines[-1].endswith(
        ": A found no node for shop/too-big at 5m30s, and B set Ready of node worker-2 to Unknown."
    )


def test_a_quota_that_one_run_has_is_the_cause_of_a_refused_pod(tmp_path: Path) -> None:
    """The quota's 3 CPUs are used by the Deployment's first pod, so that its second is refused."""
    hard = {"requests.cpu": "3"}
    quota = kubernetes_object(
        "v1", "ResourceQuota", "compute", spec={"hard": hard}, status={"hard": hard, "used": hard}
    )
    items = [*_nodes(2), *_deployment("worker-1", "")[:-1]]
    lines = _of_lists(tmp_path, items, [*items, quota])
    assert lines[1].startswith("A created shop/web-")
    assert lines[2].startswith("B refused to create shop/web-")
    assert lines[3] == "Only B has ResourceQuota shop/compute."


def test_a_limit_that_one_run_has_is_the_cause_of_an_oom_kill(tmp_path: Path) -> None:
    """200Mi and 50Mi a minute are 512Mi after 6 min 14.4 s; the node has memory for hours."""
    for name, limits in (("a", ""), ("b", ", limits: {memory: 512Mi}")):
        (tmp_path / f"{name}.yaml").write_text(LEAKING % {"limits": limits})
    lines = _of_files(tmp_path, "--usage", "app=web memory.web 200Mi+50Mi/m")
    assert lines[0] == "Runs diverge at 6m14s, after 0 identical decisions:"
    assert lines[2:] == [
        "B OOM-killed container web of shop/web-0",
        "In B container web used 536,870,912 bytes and its limit is 536,870,912.",
        "The memory limit of container web of shop/web-0 is none in A and 512Mi in B.",
    ]


def test_usage_that_one_run_has_is_the_cause_of_pressure(tmp_path: Path) -> None:
    """200Mi and 200Mi a minute are 3,896Mi of 3,996Mi after 18 min 28.8 s; looks are 10 s apart."""
    (tmp_path / "a.yaml").write_text(LEAKING % {"limits": ""})
    usage = "app=web memory 200Mi+200Mi/m"
    lines = _of_options(tmp_path, "a.yaml", "", f"--usage '{usage}'")
    assert lines[2:] == [
        "B set MemoryPressure of node worker-1 to True",
        f"Only B has --usage '{usage}'.",
    ]


def test_a_pod_that_moved_to_a_node_is_the_cause_of_an_eviction_there(tmp_path: Path) -> None:
    """Each pod uses 1Gi and 100Mi a minute of 8Gi: one alone meets the threshold after 70 min.

    Two on one node do after 30 min 20 s: 2 * 4,046Mi are 8,092Mi, which leaves 100Mi.
    """
    pods = [run_on(_pod(f"leak-{number}", "1"), f"worker-{number}") for number in (1, 2)]
    write_list(tmp_path / "a.yaml", [*_nodes(2), *pods])
    usage = ("--usage", "* memory 1Gi+100Mi/m")
    lines = _of_options(tmp_path, "a.yaml", "", "--drop-nodes worker-2", *usage, "--until", "40m")
    assert lines[0].startswith("Runs diverge at 30m")
    assert lines[0].endswith(", in pod shop/leak-1:")
    assert lines[1] == "A has shop/leak-1 on worker-1"
    assert lines[2] == "B evicted shop/leak-1 on worker-1"
    assert "Only in B node worker-1 has shop/leak-2." in lines
    assert "Only B has --drop-nodes worker-2." in lines


def test_a_template_that_one_run_has_is_the_cause_of_a_rollout(tmp_path: Path) -> None:
    """The lists differ in the image alone, and the ReplicaSet is still that of the old one."""
    items = [*_nodes(3), *_deployment("worker-1", "worker-2")]
    write_list(tmp_path / "a.yaml", items)
    changed = _deployment("worker-1", "worker-2")[0]
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.test/web:2"
    write_list(tmp_path / "b.yaml", [*_nodes(3), changed, *items[4:]])
    lines = _of_files(tmp_path)
    assert lines[2].startswith("B created shop/web-")
    assert "The pod template of Deployment shop/web differs." in lines


def test_a_budget_that_one_run_has_is_the_cause_of_a_blocked_drain(tmp_path: Path) -> None:
    """One of one pods must be available: its eviction is refused, and A's is not."""
    write_list(tmp_path / "a.yaml", [*_nodes(2), *_deployment("worker-1")])
    drain = "--drain worker-1"
    lines = _of_options(
        tmp_path, "a.yaml", drain, f"{drain} --set pdb.shop/web.minAvailable=1", "--until", "10m"
    )
    assert lines[1].startswith("A created shop/web-")
    assert lines[2] == (
        "B blocked node worker-1 (budget shop/web refuses shop/web-3d9f7c5b6-bcdfg)"
    )
    assert "Only B has PodDisruptionBudget shop/web." in lines


def _nodes(count: int) -> list[Raw]:
    size = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return [node(f"worker-{number}", size) for number in range(1, count + 1)]


def _pod(name: str, cpu: str) -> Raw:
    return waiting_pod(name, pod_template({"app": name}, cpu), None)


def _deployment(*places: str) -> list[Raw]:
    """Return the Deployment `web`, its ReplicaSet and its pods; "" for one that waits."""
    made, replica_set, pods = deployment("web", len(places), pod_template({"app": "web"}, "3"))
    return [
        *(made, replica_set),
        *(run_on(pod, place) if place else pod for pod, place in zip(pods, places, strict=True)),
    ]


def _of_lists(tmp_path: Path, a: list[Raw], b: list[Raw]) -> list[str]:
    write_list(tmp_path / "a.yaml", a)
    write_list(tmp_path / "b.yaml", b)
    return _of_files(tmp_path)


def _of_files(tmp_path: Path, *options: str) -> list[str]:
    """Return the first difference of the replays of a.yaml and b.yaml."""
    for name in "ab":
        tail = ("--run", name, "--until", "10m", "--spans", "off", "--no-report")
        reprieve(tmp_path, "replay", f"{name}.yaml", *options, *tail)
    return _first(reprieve(tmp_path, "compare", "a", "b", COLUMNS="400").stdout)


def _of_options(tmp_path: Path, path: str, a: str, b: str, *options: str) -> list[str]:
    """Return the first difference of two replays of a list; `options` are of both."""
    tail = ("--run", "x", "--", "--spans", "off", "--no-report", *options)
    chosen = ("--a", a, "--b", b) if a else ("--b", b)
    return _first(reprieve(tmp_path, "compare", path, *chosen, *tail, COLUMNS="400").stdout)


def _first(text: str) -> list[str]:
    whole = text[text.index("Runs diverge") :].split("\n\n", maxsplit=1)[0]
    return [line.strip() for line in whole.splitlines()]
