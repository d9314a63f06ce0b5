"""The snapshot's bookkeeping."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from services.framework.runtime.framework import Framework
from services.framework.snapshot.snapshot import Snapshot
from services.kube.pod import Pod, PodPhase
from tests.builders import make_budget, make_node, make_pod
from tests.cycles import evaluate


@pytest.fixture
def snapshot() -> Snapshot:
    """Give a snapshot with one node "n" of 4 CPUs."""
    made = Snapshot()
    made.set_node(make_node("n").capacity(cpu="4", memory="8Gi").obj())
    return made


def used(snapshot: Snapshot, name: str) -> tuple[list[int], list[int], int]:
    """Return requested, non-zero requested and the number of pods of a node."""
    row, columns = snapshot.row(name), snapshot.columns
    assert row is not None
    requested, non_zero = columns.requested[row], columns.non_zero_requested[row]
    return requested.tolist(), non_zero.tolist(), int(columns.pod_count[row])


def keys(snapshot: Snapshot, name: str) -> list[str]:
    """Return the names of the pods on a node."""
    row = snapshot.row(name)
    assert row is not None
    return [pod.name for pod in snapshot.pods_on(row)]


def on(name: str, node: str = "n", cpu: str = "1") -> Pod:
    """Return an assigned pod."""
    return make_pod(name).req(cpu=cpu).node(node).obj()


def test_forgetting_an_assumed_pod_leaves_no_trace(snapshot: Snapshot) -> None:
    """Numbers, order and marks are as before."""
    snapshot.set_pod(on("a"))
    before = used(snapshot, "n")
    pod = make_pod("b").req(cpu="2").obj()
    snapshot.assume(pod, "n")
    assert snapshot.is_assumed(pod.uid)
    assert used(snapshot, "n")[0][0] == 3000
    snapshot.forget(pod.uid)
    assert used(snapshot, "n") == before
    assert keys(snapshot, "n") == ["a"]
    assert snapshot.pod(pod.uid) is None


def test_a_confirmed_pod_counts_once_and_where_it_was_bound(snapshot: Snapshot) -> None:
    """Even where the binding went to another node than assumed."""
    snapshot.set_node(make_node("m").capacity(cpu="4").obj())
    pod = make_pod("a").req(cpu="1").obj()
    snapshot.assume(pod, "n")
    snapshot.set_pod(replace(pod, node_name="m"))
    assert not snapshot.is_assumed(pod.uid)
    assert (keys(snapshot, "n"), keys(snapshot, "m")) == ([], ["a"])
    assert used(snapshot, "n")[2] == 0


def test_the_last_pod_moves_into_the_gap_of_one_that_goes(snapshot: Snapshot) -> None:
    """Upstream's order, which ties between victims follow."""
    for name in "abcd":
        snapshot.set_pod(on(name))
    snapshot.remove_pod(on("b").uid)
    assert keys(snapshot, "n") == ["a", "d", "c"]
    snapshot.set_pod(on("a"))
    assert keys(snapshot, "n") == ["c", "d", "a"]


def test_a_finished_pod_frees_its_node(snapshot: Snapshot) -> None:
    """A terminal phase removes it."""
    snapshot.set_pod(on("a"))
    snapshot.set_pod(replace(on("a"), phase=PodPhase.SUCCEEDED))
    assert keys(snapshot, "n") == []


def test_a_pod_may_come_before_its_node_and_outlive_it() -> None:
    """Its row is not a node, yet keeps account."""
    snapshot = Snapshot()
    snapshot.set_pod(on("a", "late"))
    assert snapshot.row("late") is None
    assert snapshot.node_count == 0
    snapshot.set_node(make_node("late").capacity(cpu="4").obj())
    assert used(snapshot, "late")[0][0] == 1000
    snapshot.remove_node("late")
    assert snapshot.row("late") is None
    snapshot.set_node(make_node("late").capacity(cpu="4").obj())
    assert keys(snapshot, "late") == ["a"]


def test_a_row_is_used_again_when_node_and_pods_have_gone(snapshot: Snapshot) -> None:
    """A new node inherits nothing."""
    row = snapshot.row("n")
    snapshot.set_pod(on("a"))
    snapshot.remove_node("n")
    snapshot.remove_pod(on("a").uid)
    snapshot.set_node(make_node("m").capacity(cpu="1").obj())
    assert snapshot.row("m") == row
    assert used(snapshot, "m") == ([0, 0, 0], [0, 0], 0)


def test_rows_and_resources_grow_as_they_are_needed(snapshot: Snapshot) -> None:
    """Past the first capacity, and with resources never seen before."""
    for i in range(100):
        snapshot.set_node(
            make_node(f"x{i}").capacity({"cpu": "1", f"example.com/r{i % 3}": 2}).obj()
        )
    row = snapshot.row("x99")
    assert row is not None
    column = snapshot.columns.resource("example.com/r0")
    assert snapshot.columns.allocatable[row, column] == 2
    assert snapshot.node_count == 101
    assert used(snapshot, "n")[0] == [0] * 6


def test_new_resources_copy_the_columns_once(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that brings thousands would hold the service up for seconds otherwise."""
    copied: list[int] = []
    hstack = np.hstack

    def counted(columns: list[Any]) -> Any:
        copied.append(len(columns))
        return hstack(columns)

    monkeypatch.setattr(np, "hstack", counted)
    snapshot.set_node(make_node("x").capacity({f"example.com/r{i}": 1 for i in range(50)}).obj())
    assert len(snapshot.columns.resources) > 50
    assert len(copied) == 2  # allocatable and requested


def test_pods_of_unknown_nodes_may_make_the_rows_grow(snapshot: Snapshot) -> None:
    """Verdicts that were cached before follow."""
    framework = Framework(snapshot)
    assert evaluate(framework, make_pod().obj()).feasible == ("n",)
    for i in range(100):
        snapshot.set_pod(on(f"p{i}", f"unknown{i}"))
        assert evaluate(framework, make_pod().obj()).feasible == ("n",)


def test_a_heartbeat_changes_nothing_for_the_caches(snapshot: Snapshot) -> None:
    """Only what plugins read counts as a change."""
    before = snapshot.node_log.end
    snapshot.set_node(
        make_node("n").capacity(cpu="4", memory="8Gi").condition("Ready", "False").obj()
    )
    assert snapshot.node_log.end == before
    row = snapshot.row("n")
    assert row is not None
    assert snapshot.node(row).conditions[0].status == "False"


def test_nodes_are_listed_zone_by_zone() -> None:
    """Upstream's node list."""
    snapshot = Snapshot()
    for name, zone in [("a1", "a"), ("a2", "a"), ("b1", "b")]:
        snapshot.set_node(make_node(name).zone(zone).obj())
    assert [snapshot.name(row) for row in snapshot.listed_rows()] == ["a1", "b1", "a2"]
    snapshot.remove_node("a1")
    assert [snapshot.name(row) for row in snapshot.listed_rows()] == ["a2", "b1"]


def test_budgets_are_kept_by_name(snapshot: Snapshot) -> None:
    """Set replaces, remove removes."""
    snapshot.set_budget(make_budget("b").allowed(1).obj())
    snapshot.set_budget(make_budget("b").allowed(2).obj())
    assert [budget.disruptions_allowed for budget in snapshot.budgets.values()] == [2]
    snapshot.remove_budget("default", "b")
    snapshot.remove_budget("default", "b")
    assert not snapshot.budgets


def test_nominations_keep_their_order_and_move_to_the_end() -> None:
    """A second nomination replaces the first."""
    nominations = Snapshot().nominations
    a, b = make_pod("a").priority(5).obj(), make_pod("b").obj()
    nominations.put(a, "n")
    nominations.put(b, "n")
    nominations.put(a, "n")
    assert [pod.name for pod in nominations.on("n")] == ["b", "a"]
    assert [pod.name for pod in nominations.counted("n", make_pod("c").priority(1).obj())] == ["a"]
    assert nominations.counted("n", a) == ()
    nominations.put(a, "m")
    assert (nominations.node_of(a.uid), len(nominations)) == ("m", 2)
    nominations.drop(b.uid)
    assert nominations.node_names() == ("m",)


def test_an_image_has_the_largest_size_that_a_node_reports() -> None:
    """Whichever came first; it is forgotten with its last node."""
    snapshot = Snapshot()
    snapshot.set_node(make_node("a").image(100, "x:1").obj())
    snapshot.set_node(make_node("b").image(200, "x:1").obj())
    state = snapshot.images.state("x:1")
    assert state is not None
    assert (state.size_bytes, len(state.rows)) == (200, 2)
    snapshot.remove_node("b")
    assert state.size_bytes == 100
    snapshot.remove_node("a")
    assert snapshot.images.state("x:1") is None


def test_a_status_moves_a_pod_to_the_end_and_changes_no_verdict(snapshot: Snapshot) -> None:
    """The node_pods is notified; cached verdicts are not."""
    pod = on("a")
    snapshot.assume(replace(pod, node_name=""), "n")
    snapshot.set_pod(on("b"))
    before, verdicts, rows = used(snapshot, "n"), snapshot.pod_log.end, snapshot.row_log.end
    started = replace(pod, start_time_ns=7)
    snapshot.set_pod(started)
    assert (used(snapshot, "n"), snapshot.pod_log.end) == (before, verdicts)
    assert snapshot.row_log.end > rows
    assert keys(snapshot, "n") == ["b", "a"]
    assert snapshot.pod(pod.uid) is started
    assert not snapshot.is_assumed(pod.uid)


@pytest.mark.parametrize(
    "change",
    [{"labels": {"app": "x"}}, {"deletion_ns": 1}, {"node_name": "m"}, {"phase": PodPhase.FAILED}],
)
def test_what_a_verdict_may_follow_from_is_noted(
    snapshot: Snapshot, change: dict[str, Any]
) -> None:
    """Labels, a deletion, another node, the end."""
    snapshot.set_node(make_node("m").capacity(cpu="4").obj())
    pod = on("a")
    snapshot.set_pod(pod)
    noted = snapshot.pod_log.end
    snapshot.set_pod(replace(pod, **change))
    assert snapshot.pod_log.end > noted
