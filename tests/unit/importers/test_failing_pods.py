"""Pods of a list that cannot run are named: what a replay makes in their place runs."""

from __future__ import annotations

from pathlib import Path

from replay.importers.registry import open_trace
from tests.living_cluster import Raw, living_cluster, named, write_list
from tests.unit.importers.builders import issues


def _waits(pod: Raw, reason: str) -> None:
    for status in pod["status"]["containerStatuses"]:
        status["ready"], status["state"] = False, {"waiting": {"reason": reason}}


def _notes(tmp_path: Path, items: list[Raw]) -> list[tuple[str, int]]:
    records = list(open_trace([write_list(tmp_path / "list.yaml", items)]))
    return [
        (issue.message.partition(":")[0], issue.count)
        for issue in issues(records)
        if issue.kind == "failing-pods"
    ]


def test_failing_pods_are_named_by_workload_and_reason(tmp_path: Path) -> None:
    """Two of a Deployment crash, one of a StatefulSet has no image; a pod that starts is fine."""
    items = living_cluster()
    for name in ("web-3d9f7c5b6-bcdfg", "web-3d9f7c5b6-hjklm"):
        _waits(named(items, "Pod", name), "CrashLoopBackOff")
    _waits(named(items, "Pod", "db-1"), "ImagePullBackOff")
    _waits(named(items, "Pod", "db-2"), "ContainerCreating")
    assert _notes(tmp_path, items) == [
        ("a pod of Deployment shop/web waits with CrashLoopBackOff", 2),
        ("a pod of StatefulSet shop/db waits with ImagePullBackOff", 1),
    ]


def test_a_failing_pod_that_nothing_replaces_is_not_named(tmp_path: Path) -> None:
    """`old-shell` has no controller."""
    items = living_cluster()
    _waits(named(items, "Pod", "old-shell"), "CrashLoopBackOff")
    assert _notes(tmp_path, items) == []
