"""Which of two pods is more important: higher priority, then running for longer.

Source: kubernetes v1.34 pkg/scheduler/util/utils.go, MoreImportantPod, GetPodStartTime,
GetEarliestPodStartTime.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from services.kube.pod import Pod


def start_ns(pod: Pod, *, now_ns: int) -> int:
    """Return when the pod started, in ns since the Unix epoch; now where it has not yet."""
    return now_ns if pod.start_time_ns is None else pod.start_time_ns


def most_important_first(pods: Iterable[Pod], *, now_ns: int) -> list[Pod]:
    """Return `pods` in falling importance; equal ones keep their order.

    Upstream's sort is not stable and reads the clock anew for each missing start, so equal pods
    may stand in any order there.
    """
    return sorted(pods, key=lambda pod: (-pod.priority, start_ns(pod, now_ns=now_ns)))


def earliest_start_ns(pods: Sequence[Pod], *, now_ns: int) -> int:
    """Return the earliest start among the pods of the highest priority; there must be one."""
    highest = max(pod.priority for pod in pods)
    return min(start_ns(pod, now_ns=now_ns) for pod in pods if pod.priority == highest)
