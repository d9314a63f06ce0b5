"""The amounts at which the kernel notifies."""

from __future__ import annotations

from services.eviction.core.manager import Manager
from services.eviction.core.observations import FsStats, MemoryStats, NodeSummary
from services.eviction.core.results import StepResult
from services.eviction.core.signals import Signal
from services.eviction.core.thresholds import Notifications
from services.kube.kubelet import EvictionConfig
from services.kube.time import SECOND_NS

GI = 1 << 30
S = SECOND_NS
ASKED = EvictionConfig(
    hard={"memory.available": "10%", "nodefs.available": "1Gi"},
    soft={"memory.available": "2Gi"},
    soft_grace={"memory.available": "1m"},
    enforce_node_allocatable=("pods",),
    kernel_memcg_notification=True,
)


def memory(capacity_gi: int, *, allocatable: bool = False) -> NodeSummary:
    """Return a node of which nothing is used."""
    stats = MemoryStats(available_bytes=capacity_gi * GI, working_set_bytes=0)
    return NodeSummary(
        memory=stats,
        allocatable_memory=stats if allocatable else None,
        nodefs=FsStats(available_bytes=9 * GI, capacity_bytes=9 * GI),
    )


def asked(manager: Manager, at_s: int, summary: NodeSummary | None) -> dict[Signal, list[int]]:
    """Take a step and return the amounts in GiB by signal."""
    result = manager.synchronize(now_ns=at_s * S, summary=summary, pods=())
    assert isinstance(result, StepResult)
    found: dict[Signal, list[int]] = {}
    for signal, amount in result.notify_at:
        found.setdefault(signal, []).append(amount // GI)
    return found


def test_each_threshold_on_memory_requests_its_own_notification() -> None:
    """Hard, soft and allocatable thresholds, in order; disks have no notifications."""
    assert asked(Manager(ASKED), 0, memory(10, allocatable=True)) == {
        Signal.MEMORY_AVAILABLE: [1, 2],
        Signal.ALLOCATABLE_MEMORY_AVAILABLE: [1],
    }


def test_without_the_setting_no_notification_is_requested() -> None:
    """It is off by default."""
    off = EvictionConfig(hard={"memory.available": "1Gi"})
    assert asked(Manager(off), 0, memory(10)) == {}


def test_amounts_follow_the_capacity_every_10_s() -> None:
    """A step in between, such as one after a notification, does not change them."""
    manager = Manager(ASKED)
    assert asked(manager, 0, None) == {}
    assert asked(manager, 3, memory(10)) == {Signal.MEMORY_AVAILABLE: [1, 2]}
    assert asked(manager, 12, memory(30)) == {Signal.MEMORY_AVAILABLE: [1, 2]}
    assert asked(manager, 13, memory(30)) == {Signal.MEMORY_AVAILABLE: [3, 2]}


def test_a_signal_that_is_not_observed_keeps_its_amounts() -> None:
    """An incomplete summary leaves its notifier as it was."""
    manager = Manager(ASKED)
    asked(manager, 0, memory(10, allocatable=True))
    assert asked(manager, 10, memory(30)) == {
        Signal.MEMORY_AVAILABLE: [3, 2],
        Signal.ALLOCATABLE_MEMORY_AVAILABLE: [1],
    }


def test_a_skipped_step_requests_notifications_too() -> None:
    """What it observes counts as any step's."""
    manager = Manager(ASKED)
    asked(manager, 0, memory(10))
    result = manager.skip({}, now_ns=20 * S)
    assert result.notify_at == manager.state.notifications.amounts
    assert manager.state.notifications.updated_ns == 20 * S


def test_a_checkpoint_holds_the_requested_notifications() -> None:
    """And when."""
    manager, other = Manager(ASKED), Manager(ASKED)
    asked(manager, 5, memory(10))
    other.restore(manager.snapshot())
    assert other.state.notifications == manager.state.notifications != Notifications()
