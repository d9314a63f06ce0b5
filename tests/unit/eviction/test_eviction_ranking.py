"""The order of eviction."""

from __future__ import annotations

from services.eviction.core.observations import (
    ContainerUsage,
    FileSystemLayout,
    FsUsage,
    PodUsage,
    VolumeUsage,
    choose_layout,
)
from services.eviction.core.pod import EvictionPod
from services.eviction.core.ranking import rank
from services.eviction.core.signals import Signal
from tests.builders import make_pod

MI = 1 << 20
SHARED = choose_layout(dedicated_imagefs=False, split_containerfs=False)
DEDICATED = choose_layout(dedicated_imagefs=True, split_containerfs=False)
SPLIT = choose_layout(dedicated_imagefs=True, split_containerfs=True)


def _pod(name: str, priority: int = 0, **requests: str) -> EvictionPod:
    quantities = {key.replace("_", "-"): text for key, text in requests.items()}
    made = make_pod(name).uid(name).priority(priority).empty_dir("scratch")
    return made.container("c", requests=quantities).eviction()


def _order(
    pods: list[EvictionPod],
    usage: dict[str, PodUsage],
    signal: Signal = Signal.MEMORY_AVAILABLE,
    layout: FileSystemLayout = SHARED,
) -> list[str]:
    return [place.name for _, place in rank(pods, usage, signal, layout)]


def _memory(amount_mi: int) -> PodUsage:
    return PodUsage(memory_working_set_bytes=amount_mi * MI)


def _disk(*, rootfs: int = 0, logs: int = 0, volume: int = 0) -> PodUsage:
    return PodUsage(
        containers=(
            ContainerUsage(
                name="c",
                rootfs=FsUsage(used_bytes=rootfs, inodes_used=rootfs),
                logs=FsUsage(used_bytes=logs, inodes_used=logs),
            ),
        ),
        volumes=(
            VolumeUsage(name="scratch", usage=FsUsage(used_bytes=volume, inodes_used=volume)),
        ),
    )


def test_exceeding_its_request_comes_before_priority_and_priority_before_size() -> None:
    """The three criteria for memory, in their order."""
    pods = [
        _pod("below", memory="500Mi"),
        _pod("important", 10, memory="100Mi"),
        _pod("small", memory="100Mi"),
        _pod("big", memory="100Mi"),
    ]
    usage = {
        "below": _memory(400),
        "important": _memory(900),
        "small": _memory(150),
        "big": _memory(300),
    }
    assert _order(pods, usage) == ["big", "small", "important", "below"]


def test_a_pod_without_statistics_goes_first_for_memory_but_only_after_priority_for_pids() -> None:
    """PID ranking looks at the priority before anything else."""
    pods = [_pod("low"), _pod("unknown", 10)]
    usage = {"low": PodUsage(memory_working_set_bytes=MI, processes=5)}
    assert _order(pods, usage) == ["unknown", "low"]
    assert _order(pods, usage, Signal.PID_AVAILABLE) == ["low", "unknown"]


def test_equal_pods_keep_the_order_in_which_the_node_lists_them() -> None:
    """The ranking is stable."""
    pods = [_pod(name) for name in "cab"]
    assert _order(pods, {name: _memory(1) for name in "abc"}) == ["c", "a", "b"]


def test_the_layout_decides_what_counts_on_a_disk() -> None:
    """With a dedicated imagefs writable layers count there, logs and volumes on nodefs."""
    pods = [_pod("layers"), _pod("logs"), _pod("volume")]
    usage = {"layers": _disk(rootfs=9), "logs": _disk(logs=5), "volume": _disk(volume=7)}
    nodefs, imagefs = Signal.NODEFS_AVAILABLE, Signal.IMAGEFS_AVAILABLE
    assert _order(pods, usage, nodefs) == ["layers", "volume", "logs"]
    assert _order(pods, usage, nodefs, DEDICATED) == ["volume", "logs", "layers"]
    assert _order(pods, usage, imagefs, DEDICATED) == ["layers", "logs", "volume"]
    assert _order(pods, usage, nodefs, SPLIT) == ["layers", "volume", "logs"]
    assert _order(pods, usage, imagefs, SPLIT) == ["layers", "logs", "volume"]


def test_inodes_are_ranked_above_a_request_in_bytes() -> None:
    """Upstream subtracts the ephemeral-storage request from a number of inodes."""
    pods = [_pod("asking", ephemeral_storage="1k"), _pod("plain")]
    usage = {"asking": _disk(rootfs=900), "plain": _disk(rootfs=10)}
    assert _order(pods, usage, Signal.NODEFS_INODES_FREE) == ["plain", "asking"]


def test_the_ranking_explains_itself() -> None:
    """Each pod in the ranking has its usage and request."""
    pods = [_pod("p", 3, memory="100Mi")]
    ((_, place),) = rank(pods, {"p": _memory(150)}, Signal.MEMORY_AVAILABLE, SHARED)
    assert (place.usage, place.request) == (150 * MI, 100 * MI)
    assert place.exceeds_request
