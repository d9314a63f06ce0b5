"""Which pods a node under pressure still takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.eviction.core.pod import EvictionPod
from services.eviction.core.signals import ConditionType
from services.eviction.core.state import admit
from services.kube.taints import TaintEffect, Toleration
from tests.builders import make_pod

MEMORY = (ConditionType.MEMORY_PRESSURE,)
BOTH = (ConditionType.DISK_PRESSURE, ConditionType.MEMORY_PRESSURE)
MEMORY_TAINT = "node.kubernetes.io/memory-pressure"


def _pod(*tolerations: Toleration, memory: str = "0", priority: int = 0) -> EvictionPod:
    made = make_pod("p").priority(priority).req(memory=memory).eviction()
    return replace(made, tolerations=tolerations)


def test_without_pressure_every_pod_is_taken() -> None:
    """No condition, no question."""
    assert admit(_pod(), ()).admit


def test_memory_pressure_refuses_best_effort_pods_alone() -> None:
    """A pod that requests memory is admitted."""
    refused = admit(_pod(), MEMORY)
    assert not refused.admit
    assert (refused.reason, refused.message) == (
        "Evicted",
        "The node had condition: [MemoryPressure]. ",
    )
    assert admit(_pod(memory="1Gi"), MEMORY).admit


def test_the_qos_class_in_a_pods_status_precedes_its_requests() -> None:
    """The kubelet uses the stored class, and computes it only if it is absent."""
    assert admit(replace(_pod(), qos_class="Burstable"), MEMORY).admit
    assert not admit(replace(_pod(memory="1Gi"), qos_class="BestEffort"), MEMORY).admit


@pytest.mark.parametrize(
    ("effect", "expected"),
    [(None, True), (TaintEffect.NO_SCHEDULE, True), (TaintEffect.NO_EXECUTE, False)],
)
def test_a_toleration_of_memory_pressure_must_cover_no_schedule(
    effect: TaintEffect | None, *, expected: bool
) -> None:
    """The taint that the kubelet has in mind has that effect."""
    toleration = Toleration(key=MEMORY_TAINT, operator="Exists", effect=effect)
    assert admit(_pod(toleration), MEMORY).admit is expected


def test_any_other_pressure_refuses_all_but_critical_pods() -> None:
    """Neither requests nor tolerations help."""
    anything = Toleration(operator="Exists")
    refused = admit(_pod(anything, memory="1Gi"), BOTH)
    assert refused.message == "The node had condition: [DiskPressure MemoryPressure]. "
    assert admit(_pod(priority=2_000_000_000), BOTH).admit
