"""Limits on local storage."""

from __future__ import annotations

from services.eviction.core.local_storage import local_storage_evictions, may_be_evicted
from services.eviction.core.observations import ContainerUsage, FsUsage, PodUsage, VolumeUsage
from services.eviction.core.pod import EvictionPod
from services.eviction.core.results import Eviction
from tests.builders import make_pod

GI = 1 << 30


def _pod(storage_limit: str = "", size_limit: str = "", priority: int = 0) -> EvictionPod:
    limits = {"ephemeral-storage": storage_limit} if storage_limit else None
    made = make_pod("p").uid("u").priority(priority).empty_dir("v", size_limit=size_limit)
    return made.container("c", limits=limits).container("d", limits=limits).eviction()


def _usage(total: int, *, rootfs: int = 0, logs: int = 0, volume: int = 0) -> PodUsage:
    return PodUsage(
        ephemeral_storage_bytes=total,
        containers=(
            ContainerUsage(
                name="c", rootfs=FsUsage(used_bytes=rootfs), logs=FsUsage(used_bytes=logs)
            ),
        ),
        volumes=(VolumeUsage(name="v", usage=FsUsage(used_bytes=volume)),),
    )


def _judge(pod: EvictionPod, usage: PodUsage, *, dedicated: bool = False) -> list[Eviction]:
    return list(
        local_storage_evictions(
            [pod], {pod.uid: usage}, imagefs_is_dedicated=dedicated, sidecars=True, grace_period_s=1
        )
    )


def test_exactly_the_limit_is_within_it() -> None:
    """One byte more is not."""
    pod = _pod("1Gi")
    assert _judge(pod, _usage(2 * GI)) == []
    (eviction,) = _judge(pod, _usage(2 * GI + 1))
    assert eviction.message == (
        "Pod ephemeral local storage usage exceeds the total limit of containers 2Gi. "
    )
    assert (eviction.cause, eviction.by_threshold) == ("ephemeralpodfs.limit", False)


def test_a_dedicated_imagefs_leaves_writable_layers_out_of_a_containers_limit() -> None:
    """Only the logs count then."""
    usage = _usage(0, rootfs=GI, logs=1)
    (eviction,) = _judge(_pod("1Gi"), usage)
    assert eviction.message == 'Container c exceeded its local ephemeral storage limit "1Gi". '
    assert _judge(_pod("1Gi"), usage, dedicated=True) == []


def test_an_empty_dir_is_judged_before_the_pod_and_the_pod_before_its_containers() -> None:
    """The first limit that is exceeded is the cause."""
    everything = _usage(9 * GI, rootfs=9 * GI, volume=9 * GI)
    pods = [_pod("1Gi", "1Gi"), _pod("1Gi")]
    causes = [_judge(pod, everything)[0].cause for pod in pods]
    assert causes == ["emptydirfs.limit", "ephemeralpodfs.limit"]


def test_a_pod_without_statistics_is_left_alone() -> None:
    """There is nothing to hold against it."""
    assert (
        local_storage_evictions(
            [_pod("1")], {}, imagefs_is_dedicated=False, sidecars=True, grace_period_s=1
        )
        == ()
    )


def test_only_limited_pods_that_are_not_critical_may_be_evicted() -> None:
    """Whatever their usage is."""
    assert may_be_evicted(_pod("1Gi"))
    assert may_be_evicted(_pod(size_limit="1Gi"))
    assert not may_be_evicted(_pod())
    assert not may_be_evicted(_pod("1Gi", priority=2_000_000_000))
