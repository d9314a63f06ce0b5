"""Pods, nodes and priority classes answer about themselves."""

from __future__ import annotations

import pytest

from services.kube.node import LABEL_REGION, LABEL_REGION_BETA, LABEL_ZONE, Node
from services.kube.pod import SYSTEM_CLASSES, SYSTEM_PREFIX, Condition, Pod, PodPhase, PodSpec


@pytest.mark.parametrize(
    ("phase", "terminal"),
    [(PodPhase.PENDING, False), (PodPhase.SUCCEEDED, True), (PodPhase.FAILED, True)],
)
def test_a_finished_pod_is_terminal(phase: PodPhase, terminal: bool) -> None:
    """Terminal pods free their node; terminating ones do not yet."""
    pod = Pod(uid="u", namespace="n", name="p", spec=PodSpec(), phase=phase, deletion_ns=1)
    assert pod.is_terminal is terminal
    assert pod.is_terminating


def test_a_condition_is_found_by_type() -> None:
    """The first one counts; none is None."""
    ready = Condition(type="Ready", status="True")
    pod = Pod(uid="u", namespace="n", name="p", spec=PodSpec(priority=3), conditions=(ready,))
    assert (pod.key, pod.priority) == ("n/p", 3)
    assert pod.condition("Ready") is ready
    assert pod.condition("PodScheduled") is None


def test_a_zone_key_is_region_and_zone() -> None:
    """The beta label stands before the other; without both there is no zone."""
    assert Node(name="n").zone_key == ""
    labels = {LABEL_REGION: "r", LABEL_ZONE: "z"}
    assert Node(name="n", labels=labels).zone_key == "r:\x00:z"
    assert Node(name="n", labels={**labels, LABEL_REGION_BETA: "b"}).zone_key == "b:\x00:z"


def test_the_system_classes_have_the_reserved_prefix() -> None:
    """Node-critical stands above cluster-critical."""
    cluster, node = SYSTEM_CLASSES
    assert cluster.name.startswith(SYSTEM_PREFIX)
    assert (cluster.value, node.value) == (2_000_000_000, 2_000_001_000)
