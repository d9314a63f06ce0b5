"""What `compare` says first of a cluster that was changed: a workload or pod, and the cause.

The nodes have 4 CPUs each and pods that serve 3, so that no two of them fit on one node.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.commands import reprieve
from tests.kubectl_objects import (
    Raw,
    budget,
    deployment,
    node,
    pod_template,
    priority_class,
    run_on,
    stop,
    waiting_pod,
    write_list,
)

pytestmark = pytest.mark.e2e
_SIZE = {"cpu": "4", "memory": "8Gi", "pods": "110"}


def test_a_pod_of_a_dropped_node_that_fits_elsewhere_moves(tmp_path: Path) -> None:
    """`stray` fits nowhere in both runs: its attempts, the first different decision, say nothing.

    The pod without a controller needs 1 CPU: worker-2 has 4, worker-1 is gone.
    """
    shell = run_on(_pod("shell", "1"), "worker-1")
    lines = _headline(tmp_path, [*_nodes(2), shell, _pod("stray", "8")], "--drop-nodes worker-1")
    assert lines[:5] == [
        "Runs diverge at 0s, in pod shop/shell:",
        "A has shop/shell on worker-1",
        "B bound shop/shell to worker-2",
        "B has no node worker-1.",
        "Only B has --drop-nodes worker-1.",
    ]


def test_a_pod_of_a_dropped_node_that_fits_nowhere_waits(tmp_path: Path) -> None:
    """worker-2 has 1 CPU left of 4, the pod needs 3, and both have the priority 0."""
    pods = [run_on(_pod(f"shell-{number}", "3"), f"worker-{number}") for number in (1, 2)]
    lines = _headline(tmp_path, _nodes(2) + pods, "--drop-nodes worker-1")
    assert lines[:4] == [
        "Runs diverge at 0s, in pod shop/shell-1:",
        "A has shop/shell-1 on worker-1",
        "B found no node for shop/shell-1 (0/1 nodes are available: 1 Insufficient cpu)",
        "B has no node worker-1.",
    ]


def test_a_deployments_pod_that_fits_elsewhere_moves_and_is_never_missed(tmp_path: Path) -> None:
    """Two of three nodes are taken: the pod of worker-1 runs on worker-3 from the beginning on."""
    items = [*_nodes(3), *_deployment("web", "worker-1", "worker-2")]
    lines = _headline(tmp_path, items, "--drop-nodes worker-1")
    assert lines[1:4] == [
        "A has shop/web-3d9f7c5b6-bcdfg on worker-1",
        "B bound shop/web-3d9f7c5b6-bcdfg to worker-3",
        "B has no node worker-1.",
    ]


def test_a_deployment_whose_pod_fits_nowhere_lacks_a_replica(tmp_path: Path) -> None:
    """Both nodes were full; with a budget of both pods the workload is below it, too."""
    items = [*_nodes(2), *_deployment("web", "worker-1", "worker-2")]
    lines = _headline(tmp_path, items, "--drop-nodes worker-1")
    assert lines[:5] == [
        "Runs diverge at 0s, in the ready pods of Deployment shop/web:",
        "A has 2 of 2",
        "B has 1 of 2, below desired from 0s for 10m, to the end",
        (
            "B found no node for shop/web-3d9f7c5b6-bcdfg "
            "(0/1 nodes are available: 1 Insufficient cpu)."
        ),
        "B has no node worker-1.",
    ]
    guarded = [*items, budget("web", 2, 0, minAvailable=2)]
    effect = _compared(tmp_path, guarded, "--drop-nodes worker-1")["divergence"]["effect"]
    assert effect["kind"] == "below budget"
    assert effect["b"].startswith("has 1 of 2, below its budget")


def test_the_victim_of_a_pod_that_lost_its_node_is_named_with_it(tmp_path: Path) -> None:
    """`web` (1000) lost worker-1, and preempts `report` (0) on worker-2, which fits nowhere then.

    So it is not `web` that lacks a replica at the end, but `report`.
    """
    items = [
        *_nodes(2),
        *_deployment("web", "worker-1", priority=1000),
        *_deployment("report", "worker-2"),
        priority_class("high", 1000),
    ]
    divergence = _compared(tmp_path, items, "--drop-nodes worker-1")["divergence"]
    effect, reasons = divergence["effect"], divergence["flipped_by"]
    assert (effect["kind"], effect["subject"]) == (
        "unavailable",
        "the ready pods of Deployment shop/report",
    )
    assert effect["a"] == "has 1 of 1"
    assert effect["b"].startswith("has 0 of 1, below desired from 0s")
    assert reasons[:3] == [
        "B preempted shop/report-6d9f7c5b6-bcdfg for shop/web-3d9f7c5b6-bcdfg.",
        "shop/web-3d9f7c5b6-bcdfg has worker-1 in A and no node in B at this time.",
        "B has no node worker-1.",
    ]


def test_a_replica_that_both_runs_lack_first_is_missed_since_only_one_lacks_it(
    tmp_path: Path,
) -> None:
    """`urgent` (1000) preempts `report` (0) in both runs: it must run on worker-1, which is full.

    After 20 s `old` has gone from worker-2, and in A the next report runs there. In B the node is
    cordoned: that, and not the preemption, is what differs.
    """
    urgent = waiting_pod("urgent", pod_template({"app": "urgent"}, "3"), None, 1000)
    urgent["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "worker-1"}
    old = waiting_pod("old", pod_template({"app": "old"}, "3"), None, 1000)
    items = [
        *_nodes(2),
        *_deployment("report", "worker-1"),
        stop(run_on(old, "worker-2"), 20),
        urgent,
    ]
    lines = _headline(tmp_path, items, "--drain worker-2")
    assert lines[:3] == [
        "Runs diverge at 20s, in the ready pods of Deployment shop/report:",
        "A has 1 of 1, below desired from 0s for 20s",
        "B has 0 of 1, below desired from 0s for 10m, to the end",
    ]
    assert lines[3].startswith("B found no node for shop/report-6d9f7c5b6-")
    assert "Node worker-2 is cordoned only in B." in lines
    assert not any("preempted" in line for line in lines)


def test_a_replica_that_waited_for_a_node_runs_on_a_clone(tmp_path: Path) -> None:
    """One of two replicas waits for want of CPUs, and the clone of the only node is empty."""
    items = [*_nodes(1), *_deployment("web", "worker-1", "")]
    lines = _headline(tmp_path, items, "--scale-nodes +1")
    clone = lines[4].removeprefix("A has no node ").removesuffix(".")
    assert clone.startswith("worker-1-")
    assert lines[:4] == [
        "Runs diverge at 0s, in the ready pods of Deployment shop/web:",
        "A has 1 of 2, below desired from 0s for 10m, to the end",
        "B has 2 of 2",
        (
            "A found no node for shop/web-3d9f7c5b6-hjklm "
            "(0/1 nodes are available: 1 Insufficient cpu)."
        ),
    ]


def test_a_failed_node_costs_a_deployment_a_replica(tmp_path: Path) -> None:
    """The node is Unknown after 50 s, the pod is deleted 5 min later, and its successor waits.

    From then on nothing is ready but worker-2's: below desired from 50 s on.
    """
    items = [*_nodes(2), *_deployment("web", "worker-1", "worker-2")]
    lines = _headline(tmp_path, items, "--fail worker-1")
    assert lines[:5] == [
        "Runs diverge at 50s, in the ready pods of Deployment shop/web:",
        "A has 2 of 2",
        "B has 1 of 2, below desired from 50s for 9m10s, to the end",
        (
            "B has shop/web-3d9f7c5b6-bcdfg on worker-1, not ready; "
            "A has shop/web-3d9f7c5b6-bcdfg on worker-1."
        ),
        "Condition Ready of node worker-1 is True in A and Unknown in B.",
    ]


def test_a_drained_node_is_the_cause_of_a_pod_that_was_removed(tmp_path: Path) -> None:
    """The pod's grace period is 30 s; its successor is bound at the beginning of that."""
    items = [*_nodes(2), *_deployment("web", "worker-1")]
    lines = _headline(tmp_path, items, "--drain worker-1")
    assert lines[:3] == [
        "Runs diverge at 30s, in pod shop/web-3d9f7c5b6-bcdfg:",
        "A has shop/web-3d9f7c5b6-bcdfg on worker-1",
        "B removed shop/web-3d9f7c5b6-bcdfg (drained)",
    ]
    assert "Node worker-1 is cordoned only in B." in lines
    assert "Only B has --drain worker-1." in lines


def test_an_applied_release_takes_a_bystanders_replica(tmp_path: Path) -> None:
    """The release (1000) is new, needs 3 CPUs, and worker-1 is full with `report` (0)."""
    release, *_ = _deployment("web", "", priority=1000)
    write_list(tmp_path / "release.yaml", [release])
    items = [*_nodes(1), *_deployment("report", "worker-1"), priority_class("high", 1000)]
    divergence = _compared(tmp_path, items, "--apply release.yaml")["divergence"]
    assert divergence["effect"]["subject"] == "the ready pods of Deployment shop/report"
    preempted, *reasons = divergence["flipped_by"]
    assert preempted.startswith("B preempted shop/report-6d9f7c5b6-bcdfg for shop/web-")
    assert "Only B has Deployment shop/web at this time." in reasons


def test_a_bound_node_that_nobody_used_is_no_effect_on_anything(tmp_path: Path) -> None:
    """The only difference is one of messages, so that the decisions are identical."""
    shell = run_on(_pod("shell", "1"), "worker-1")
    assert _headline(tmp_path, [*_nodes(2), shell], "--drop-nodes worker-2") == [
        "All decisions are identical."
    ]


@pytest.mark.parametrize("option", ["--drain worker-1", "--fail worker-1"])
def test_a_pod_that_is_deleted_and_not_made_again_is_affected(tmp_path: Path, option: str) -> None:
    """A pod without a controller: gone after a drain; after a failure it terminates to the end.

    Its tolerations of 300 s begin when its node is unreachable: 50 s and a look every 5 s.
    """
    shell = run_on(_pod("shell", "1"), "worker-1")
    (group,) = _compared(tmp_path, [*_nodes(2), shell], option)["groups"]
    assert group["counts"] == {"deleted more often": 1}
    assert group["samples"] == {"deleted more often": ["shop/shell"]}


def test_a_preempted_pod_that_terminates_at_the_end_is_not_counted_twice(tmp_path: Path) -> None:
    """The victim's grace period is an hour, and the run ends after ten minutes."""
    shell = _pod("shell", "3")
    shell["spec"]["terminationGracePeriodSeconds"] = 3600
    release, *_ = _deployment("web", "", priority=1000)
    write_list(tmp_path / "release.yaml", [release])
    items = [*_nodes(1), run_on(shell, "worker-1"), priority_class("high", 1000)]
    groups = _compared(tmp_path, items, "--apply release.yaml")["groups"]
    counts = {group["priority_class"]: group["counts"] for group in groups}
    assert counts == {"": {"preempted more often": 1}, "high": {"only in B": 1}}


def _nodes(count: int) -> list[Raw]:
    return [node(f"worker-{number}", _SIZE) for number in range(1, count + 1)]


def _pod(name: str, cpu: str) -> Raw:
    return waiting_pod(name, pod_template({"app": name}, cpu), None)


def _deployment(name: str, *places: str, priority: int = 0) -> list[Raw]:
    """Return a Deployment whose pods of 3 CPUs run on these nodes; "" for one that waits."""
    template = pod_template({"app": name}, "3", class_name="high" if priority else "")
    made, replica_set, pods = deployment(name, len(places), template, priority=priority)
    for pod, place in zip(pods, places, strict=True):
        if place:
            run_on(pod, place)
    return [made, replica_set, *pods]


def _run(tmp_path: Path, items: list[Raw], options: str, *more: str) -> str:
    write_list(tmp_path / "list.yaml", items)
    tail = ("--run", "x", "--force", "--", "--until", "10m", "--spans", "off", "--no-report")
    done = reprieve(tmp_path, "compare", "list.yaml", "--b", options, *more, *tail, COLUMNS="300")
    return done.stdout


def _compared(tmp_path: Path, items: list[Raw], options: str) -> dict[str, Any]:
    divergence: dict[str, Any] = json.loads(_run(tmp_path, items, options, "-o", "json"))
    return divergence


def _headline(tmp_path: Path, items: list[Raw], options: str) -> list[str]:
    """Return the lines of the first difference, of `compare`'s text."""
    text = _run(tmp_path, items, options)
    first = text.index("Runs diverge") if "Runs diverge" in text else text.index("All decisions")
    return [line.strip() for line in text[first:].split("\n\n")[0].splitlines()]
