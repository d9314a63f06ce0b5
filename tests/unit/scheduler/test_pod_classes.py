"""Pods by class, counts that follow them, and topology domains."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.framework.runtime.framework import Framework
from services.framework.snapshot import pod_classes
from services.framework.snapshot.node_indexes import NO_DOMAIN
from services.framework.snapshot.pod_classes import PodClass
from services.framework.snapshot.snapshot import Snapshot
from services.kube.node import LABEL_ZONE
from services.kube.selector import PodAffinity
from tests.builders import make_node
from tests.cycles import filter_verdicts
from tests.unit.scheduler.constraints import ZONES, judged, placed, pod, term, two_zones


def web_on(snapshot: Snapshot) -> dict[str, int]:
    """Count the web pods of each node by class counts."""
    class_counts = snapshot.class_counts.of(
        "web", lambda other: int(other.labels.get("app") == "web")
    )
    class_counts.sync()
    return {name: int(class_counts.counts[snapshot.row(name) or 0]) for name in ZONES}


def test_class_counts_follow_pods_and_start_with_those_that_are_there() -> None:
    """Whoever comes, goes, moves or changes its labels."""
    snapshot = two_zones()
    web = placed(snapshot, pod("w", "web"), "a1")
    class_counts = snapshot.class_counts.of(
        "web", lambda other: int(other.labels.get("app") == "web")
    )
    class_counts.sync()
    assert web_on(snapshot) == {"a1": 1, "a2": 0, "b1": 0, "b2": 0}
    placed(snapshot, pod("v", "web"), "b1")
    placed(snapshot, web, "a2")
    assert web_on(snapshot) == {"a1": 0, "a2": 1, "b1": 1, "b2": 0}
    placed(snapshot, replace(web, labels={}), "a2")
    snapshot.remove_pod(pod("v").uid)
    assert set(web_on(snapshot).values()) == {0}


def test_equal_questions_share_their_counts_while_someone_holds_it() -> None:
    """And it goes with the last holder."""

    def nothing(other: PodClass) -> int:
        return len(other.labels) * 0

    class_counts = two_zones().class_counts
    held = class_counts.of("a", nothing)
    assert class_counts.of("a", nothing) is held
    assert class_counts.of("b", nothing) is not held


def test_classes_without_pods_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers change, and no count does."""
    monkeypatch.setattr(pod_classes, "_CLASSES_MAX", 3)
    snapshot = two_zones()
    hermit = PodAffinity(required=(term(),))
    placed(snapshot, pod("hermit", "db", away=hermit), "b1")
    framework = Framework(snapshot)
    pending = pod("p", "web")
    for number in range(30):
        assert filter_verdicts(framework, pending).refuser[:4].any()
        passing = placed(snapshot, pod("x", "web", labels={"n": str(number)}), "a1")
        assert web_on(snapshot)["a1"] == 1
        snapshot.remove_pod(passing.uid)
    assert snapshot.pod_classes.generation > 0
    assert len(snapshot.pod_classes.classes) < 10
    assert judged(snapshot, pending).feasible == ("a1", "a2")
    assert (filter_verdicts(framework, pending).refuser[:4] > 0).tolist() == [
        False,
        False,
        True,
        True,
    ]


def test_changes_that_no_count_has_read_can_be_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts again then."""
    monkeypatch.setattr(pod_classes, "_LOGGED", 4)
    snapshot = two_zones()
    assert set(web_on(snapshot).values()) == {0}
    for number in range(9):
        placed(snapshot, pod(f"w{number}", "web"), "b2")
    assert web_on(snapshot)["b2"] == 9


def test_domains_follow_nodes_and_their_labels() -> None:
    """A node without the label has none, nor has one that is gone."""
    snapshot = two_zones()
    domains = snapshot.topologies.domains(LABEL_ZONE)
    domains.sync()
    rows = {name: snapshot.row(name) or 0 for name in ZONES}
    assert domains.of_row[rows["a1"]] == domains.of_row[rows["a2"]]
    assert domains.of_row[rows["a1"]] != domains.of_row[rows["b1"]]
    snapshot.set_node(make_node("a2").obj())
    snapshot.remove_node("b1")
    domains.sync()
    assert domains.of_row[rows["a2"]] == domains.of_row[rows["b1"]] == NO_DOMAIN


def test_domains_are_renumbered_when_most_numbers_are_unused() -> None:
    """As hosts come and go."""
    snapshot = two_zones()
    domains = snapshot.topologies.domains("host")
    for number in range(200):
        snapshot.set_node(make_node("passing").label("host", str(number)).obj())
        domains.sync()
    assert domains.size < 100
