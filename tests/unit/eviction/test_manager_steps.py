"""A manager's steps: grace, transition, reclaim, staleness, and one pod at a time."""

from __future__ import annotations

import orjson
import pytest

from services.eviction.core.manager import Manager, StepOrderError
from services.eviction.core.observations import (
    ContainerUsage,
    FsStats,
    FsUsage,
    MemoryStats,
    NodeSummary,
    PodUsage,
    VolumeUsage,
    observe,
)
from services.eviction.core.pod import EvictionPod, EvictionVolume
from services.eviction.core.results import NeedReclaim, StepResult
from services.eviction.core.signals import ConditionType
from services.eviction.core.state import ManagerSnapshot
from services.kube.kubelet import EvictionConfig, Mode
from services.kube.pod import Condition
from services.kube.quantity import parse
from services.kube.time import SECOND_NS
from services.typed import Reading, write
from tests.builders import make_pod

GI = 1 << 30
S = SECOND_NS
HARD = EvictionConfig(hard={"memory.available": "1Gi"}, local_storage_isolation=False)
SOFT = EvictionConfig(
    soft={"memory.available": "1Gi"},
    soft_grace={"memory.available": "30s"},
    max_pod_grace_s=60,
    local_storage_isolation=False,
)
DISK = EvictionConfig(
    hard={"nodefs.available": "10Gi"},
    min_reclaim={"nodefs.available": "5Gi"},
    local_storage_isolation=False,
)


def _pod(name: str, priority: int = 0, termination_grace_s: int | None = None) -> EvictionPod:
    made = make_pod(name).uid(name).priority(priority).grace_period(termination_grace_s)
    return made.container("c").eviction()


def _memory(available_gi: float, time_ns: int | None = None) -> NodeSummary:
    available = int(available_gi * GI)
    return NodeSummary(
        memory=MemoryStats(
            available_bytes=available, working_set_bytes=8 * GI - available, time_ns=time_ns
        ),
        pods={
            name: PodUsage(
                memory_working_set_bytes=GI,
                containers=(ContainerUsage(name="c", memory_working_set_bytes=GI),),
            )
            for name in ("a", "b")
        },
    )


def _nodefs(available_gi: int) -> NodeSummary:
    return NodeSummary(nodefs=FsStats(available_bytes=available_gi * GI, capacity_bytes=100 * GI))


def _step(
    manager: Manager, at_s: int, summary: NodeSummary | None, *pods: EvictionPod
) -> StepResult:
    result = manager.synchronize(now_ns=at_s * S, summary=summary, pods=pods)
    assert isinstance(result, StepResult)
    return result


def _evicted(result: StepResult) -> list[str]:
    return [eviction.name for eviction in result.evictions]


def test_a_hard_threshold_evicts_one_pod_a_step_at_once() -> None:
    """The next step is due when the pod is cleaned up, at most 30 s later."""
    manager = Manager(HARD)
    result = _step(manager, 0, _memory(0.5), _pod("a"), _pod("b"))
    assert _evicted(result) == ["a"]
    assert result.next_step_ns == 30 * S
    assert result.evictions[0].grace_period_s == 1
    assert result.evictions[0].message == (
        "The node was low on resource: memory. Threshold quantity: 1Gi, available: 512Mi. "
        "Container c was using 1Gi, request is 0, has larger consumption of memory. "
    )
    assert _evicted(_step(manager, 5, _memory(0.5), _pod("b"))) == ["b"]


def test_v1_27_grants_no_second_to_a_hard_eviction() -> None:
    """The immediate grace is 0 s there and 1 s in v1.32."""
    config = EvictionConfig(
        hard={"memory.available": "1Gi"}, mode=Mode.V1_27, local_storage_isolation=False
    )
    result = _step(Manager(config), 0, _memory(0.5), _pod("a"))
    assert result.evictions[0].grace_period_s == 0


def test_a_soft_threshold_waits_for_its_grace_while_the_condition_shows_at_once() -> None:
    """The eviction then grants the shorter of the maximum and the pod's own grace."""
    manager = Manager(SOFT)
    early = _step(manager, 0, _memory(0.5), _pod("a", termination_grace_s=20))
    assert (_evicted(early), early.conditions_held) == ([], (ConditionType.MEMORY_PRESSURE,))
    assert early.next_step_ns == 10 * S
    late = _step(manager, 30, _memory(0.5), _pod("a", termination_grace_s=20))
    assert [eviction.grace_period_s for eviction in late.evictions] == [20]


def test_relief_during_the_grace_period_restarts_it() -> None:
    """The first observation is forgotten as soon as the threshold is no longer met."""
    manager = Manager(SOFT)
    _step(manager, 0, _memory(0.5), _pod("a"))
    _step(manager, 20, _memory(2), _pod("a"))
    result = _step(manager, 40, _memory(0.5), _pod("a"))
    assert _evicted(result) == []
    assert list(result.first_observed_ns.values()) == [40 * S]


def test_a_condition_outlasts_its_last_observation_by_less_than_the_period() -> None:
    """Exactly at the end of the transition period, the condition is false."""
    manager = Manager(HARD)
    _step(manager, 0, _memory(0.5))
    assert _step(manager, 299, _memory(2)).conditions_held == (ConditionType.MEMORY_PRESSURE,)
    over = _step(manager, 300, _memory(2))
    assert over.conditions_held == ()
    assert over.conditions[0] == Condition(
        type="MemoryPressure",
        status="False",
        reason="KubeletHasSufficientMemory",
        message="kubelet has sufficient memory available",
    )


def test_a_stale_observation_keeps_the_condition_but_evicts_no_pod() -> None:
    """The same measurement never kills twice."""
    manager = Manager(HARD)
    assert _evicted(_step(manager, 0, _memory(0.5, time_ns=0), _pod("a"))) == ["a"]
    again = _step(manager, 10, _memory(0.5, time_ns=0), _pod("a"))
    assert (_evicted(again), len(again.thresholds_met)) == ([], 1)
    assert _evicted(_step(manager, 20, _memory(0.5, time_ns=15 * S), _pod("a"))) == ["a"]


def test_a_collection_that_frees_enough_spares_the_pod() -> None:
    """Enough is the threshold and its minimum reclaim."""
    manager = Manager(DISK)
    asked = manager.synchronize(now_ns=0, summary=_nodefs(5), pods=[_pod("a")])
    assert isinstance(asked, NeedReclaim)
    assert (asked.containers, asked.images) == (True, True)
    result = manager.resume(_nodefs(15))
    assert (_evicted(result), result.ranking) == ([], ())
    assert [event.message for event in result.events] == ["Attempting to reclaim ephemeral-storage"]


@pytest.mark.parametrize("after", [_nodefs(14), None])
def test_a_collection_that_frees_too_little_does_not(after: NodeSummary | None) -> None:
    """Nor does one after which nothing can be observed."""
    manager = Manager(DISK)
    manager.synchronize(now_ns=0, summary=_nodefs(5), pods=[_pod("a")])
    assert _evicted(manager.resume(after)) == ["a"]


def test_a_step_that_waits_can_be_checkpointed_and_resumed_elsewhere() -> None:
    """The outcome travels as JSON."""
    manager = Manager(DISK)
    manager.synchronize(now_ns=0, summary=_nodefs(5), pods=[_pod("a"), _pod("b")])
    other = Manager(DISK)
    written = write(manager.snapshot())
    other.restore(Reading().read(ManagerSnapshot, orjson.loads(written)))
    assert other.is_waiting
    assert other.resume(_nodefs(5)) == manager.resume(_nodefs(5))


def test_steps_and_resumes_must_alternate() -> None:
    """A second step during a collection, or a resume without one, is a broken request."""
    manager = Manager(DISK)
    with pytest.raises(StepOrderError):
        manager.resume(None)
    manager.synchronize(now_ns=0, summary=_nodefs(5), pods=[])
    with pytest.raises(StepOrderError):
        manager.synchronize(now_ns=0, summary=_nodefs(5), pods=[])


def test_minimum_reclaim_holds_a_threshold_until_it_is_free_again() -> None:
    """Above the value alone the threshold is still met."""
    manager = Manager(DISK)
    manager.synchronize(now_ns=0, summary=_nodefs(5), pods=[])
    manager.resume(_nodefs(5))
    manager.synchronize(now_ns=10 * S, summary=_nodefs(12), pods=[])
    assert len(manager.resume(_nodefs(12)).thresholds_met) == 1
    assert _step(manager, 20, _nodefs(15)).thresholds_met == ()


def test_a_failed_look_at_the_file_systems_ends_the_step_with_an_error() -> None:
    """It matters until they have been inspected once."""
    manager = Manager(HARD)
    failed = manager.synchronize(
        now_ns=0, summary=_memory(0.5), pods=[_pod("a")], disk_info_error="no runtime"
    )
    assert isinstance(failed, StepResult)
    assert failed.error == "eviction manager: failed to get HasDedicatedImageFs: no runtime"
    assert (failed.evictions, failed.changed) == ((), False)
    _step(manager, 10, _memory(2))
    later = manager.synchronize(
        now_ns=20 * S, summary=_memory(0.5), pods=[_pod("a")], disk_info_error="no runtime"
    )
    assert isinstance(later, StepResult)
    assert _evicted(later) == ["a"]


def test_containerfs_is_watched_from_the_second_step_on() -> None:
    """Its thresholds are those of the file system that it shares."""
    manager = Manager(EvictionConfig(hard={"nodefs.available": "10%"}))
    summary = NodeSummary(
        nodefs=FsStats(available_bytes=50 * GI, capacity_bytes=100 * GI),
        containerfs=FsStats(available_bytes=5 * GI, capacity_bytes=100 * GI),
    )
    assert _step(manager, 0, summary).thresholds_met == ()
    asked = manager.synchronize(now_ns=10 * S, summary=summary, pods=[])
    assert isinstance(asked, NeedReclaim)
    assert asked.signal.value == "containerfs.available"


def test_all_pods_above_a_local_storage_limit_go_in_one_step_and_instead_of_a_threshold() -> None:
    """Memory-backed volumes count too, a size limit of 0 does not; critical pods are spared."""

    def pod(name: str, size_limit: str, priority: int = 0, medium: str = "") -> EvictionPod:
        volume = EvictionVolume(
            name="v", kind="emptyDir", medium=medium, size_limit=parse(size_limit)
        )
        return EvictionPod(
            uid=name, namespace="default", name=name, priority=priority, volumes=(volume,)
        )

    usage = PodUsage(volumes=(VolumeUsage(name="v", usage=FsUsage(used_bytes=2 * GI)),))
    pods = [
        pod("disk", "1Gi"),
        pod("memory", "1Gi", medium="Memory"),
        pod("zero", "0"),
        pod("critical", "1Gi", priority=2_000_000_000),
        pod("within", "2Gi"),
    ]
    summary = NodeSummary(
        memory=MemoryStats(available_bytes=0, working_set_bytes=GI),
        pods={pod.uid: usage for pod in pods},
    )
    manager = Manager(EvictionConfig(hard={"memory.available": "1Gi"}))
    result = _step(manager, 0, summary, *pods)
    assert _evicted(result) == ["disk", "memory"]
    assert result.evictions[0].message == 'Usage of EmptyDir volume "v" exceeds the limit "1Gi". '
    assert (result.evictions[0].condition, result.events) == (None, ())


def test_a_critical_pod_at_the_head_of_the_ranking_is_passed_over() -> None:
    """It is ranked, but the next pod is evicted; without another pod, none is."""
    static = EvictionPod(
        uid="static",
        namespace="kube-system",
        name="static",
        annotations={"kubernetes.io/config.source": "file"},
    )
    result = _step(Manager(HARD), 0, _memory(0.5), static, _pod("a", 10))
    assert [pod.name for pod in result.ranking] == ["static", "a"]
    assert _evicted(result) == ["a"]
    assert _step(Manager(HARD), 0, _memory(0.5), static).next_step_ns == 10 * S


def test_a_step_over_a_calm_node_changes_nothing_and_may_be_skipped() -> None:
    """A skipped step still notes when things were measured."""
    ran, skipped = Manager(HARD), Manager(HARD)
    for manager in (ran, skipped):
        assert _step(manager, 0, _memory(2, time_ns=0)).changed
        assert manager.state.is_at_rest
    calm = _memory(2, time_ns=10 * S)
    assert not _step(ran, 10, calm).changed
    skipped.skip(observe(calm), now_ns=10 * S)
    assert ran.snapshot() == skipped.snapshot()


def test_a_step_without_statistics_changes_nothing() -> None:
    """Upstream logs and tries again after 10 s."""
    manager = Manager(HARD)
    _step(manager, 0, _memory(0.5))
    result = _step(manager, 10, None, _pod("a"))
    assert (result.changed, result.evictions) == (False, ())
    assert result.conditions_held == (ConditionType.MEMORY_PRESSURE,)


def test_a_restored_run_forgets_thresholds_that_are_configured_no_more() -> None:
    """So a run can be forked with other thresholds."""
    manager = Manager(HARD)
    _step(manager, 0, _memory(0.5))
    other = Manager(SOFT)
    other.restore(manager.snapshot())
    assert other.state.thresholds_met == ()
    assert other.state.conditions == (ConditionType.MEMORY_PRESSURE,)


def test_containerfs_is_observed_once_the_file_systems_are_detected() -> None:
    """Its threshold is that of the file system that it lies on."""
    manager = Manager(EvictionConfig(hard={"nodefs.available": "10%"}))
    assert [threshold.signal.value for threshold in manager.watched_now] == ["nodefs.available"]
    _step(manager, 0, _nodefs(50))
    assert [str(threshold) for threshold in manager.watched_now] == [
        "nodefs.available<10% grace=0s min_reclaim=",
        "containerfs.available<10% grace=0s min_reclaim=",
    ]
