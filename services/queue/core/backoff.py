"""Computes the backoff of failed pods, and the ticks at which the queue is flushed.

v1.34 counts refusals and errors separately. If pods may be popped from backoffQ, all pods whose
backoff ends within the same backoff window (one second) are in activeQ's order, and each backs off
to the end of that window. v1.20 counts a pod's attempts; its backoff begins with its last failure.
v1.16 keeps a map by pod name that outlives the pod: a name's count does not increase while its
backoff runs, nor exactly at its expiry, and a name is dropped once the maximum backoff has passed
since its last update.

Upstream flushes backoffs every second and leftovers every 30 seconds. The queue has no timer: it
computes when the next flush would move a pod, and the caller sends the flush as an operation.

Source: kubernetes v1.34 pkg/scheduler/backend/queue/backoff_queue.go; scheduling_queue.go, Run;
v1.20 internal/queue/scheduling_queue.go, Run, unschedulableQTimeInterval; v1.16
internal/queue/pod_backoff.go.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from services.kube.time import SECOND_NS
from services.queue.core.queued_pod import PodKey, QueuedPodInfo

_BACKOFF_WINDOW_NS = SECOND_NS
_NO_WINDOW_NS = 1
_NO_BACKOFF_NS = -1
# Beyond this many doublings every positive duration has passed any int64 limit.
_DOUBLINGS_MAX = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffLimits:
    """The initial and the maximum backoff, in ns. The initial one may exceed the maximum."""

    initial_ns: int = SECOND_NS
    max_ns: int = 10_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NameBackoff:
    """A pod name's backoff in v1.16: the number of failures, and the time of the last one."""

    key: PodKey
    attempts: int
    updated_ns: int


class BackoffPolicy(ABC):
    """Computes the end of backoffs by the rules of one version.

    Only v1.16's policy has state; the others read QueuedPodInfo.
    """

    __slots__ = ("_limits",)

    def __init__(self, limits: BackoffLimits) -> None:
        self._limits = limits

    @abstractmethod
    def expiry_ns(self, pod_info: QueuedPodInfo, /) -> int:
        """Return when the pod's backoff expires, in ns; backoffQs are ordered by this time.

        In v1.34 the pod backs off beyond this time, until `due_ns`.
        """

    def backs_off(self, pod_info: QueuedPodInfo, now_ns: int, /) -> bool:
        """Return whether the pod still backs off: whether `now_ns` is before `due_ns`."""
        return self.expiry_ns(pod_info) > now_ns

    def due_ns(self, pod_info: QueuedPodInfo, /) -> int:
        """Return the first time at which the pod no longer backs off, in ns."""
        return self.expiry_ns(pod_info)

    def record_failure(self, key: PodKey, now_ns: int, /) -> None:  # noqa: B027 - most keep nothing
        """Count a failed cycle of the pod."""

    def clear_backoff(self, key: PodKey, /) -> None:  # noqa: B027 - most keep nothing
        """Drop the pod's count, because the pod changed or was deleted."""

    def state(self) -> tuple[NameBackoff, ...]:
        """Return the backoffs by name, oldest update first."""
        return ()

    def restore(self, backoffs: Iterable[NameBackoff], /) -> None:  # noqa: B027 - most keep nothing
        """Set what `state` returns."""


def failure_backoff_ns(failures: int, limits: BackoffLimits) -> int:
    """Return the wait after `failures` failures (1 or more), in ns.

    The wait doubles with each failure after the first. It never exceeds the maximum, even if the
    initial wait does.
    Source: kubernetes v1.34 pkg/scheduler/backend/queue/backoff_queue.go, calculateBackoffDuration.
    """
    shift = min(failures - 1, _DOUBLINGS_MAX)
    if limits.initial_ns > limits.max_ns >> shift:
        return limits.max_ns
    return limits.initial_ns << shift


class FailureBackoff(BackoffPolicy):
    """v1.34: the backoff depends on the pod's failures and timestamp.

    The backoff window is a second if `aligned`, otherwise a nanosecond. A backoff expires at the
    beginning of its window, and the pod is due at the window's end. A maximum of 0 means no
    backoff.
    Source: kubernetes v1.34 pkg/scheduler/backend/queue/backoff_queue.go, getBackoffTime,
    isPodBackingoff, alignToWindow.
    """

    __slots__ = ("_window_ns",)

    def __init__(self, limits: BackoffLimits, *, aligned: bool) -> None:
        super().__init__(limits)
        self._window_ns = _BACKOFF_WINDOW_NS if aligned else _NO_WINDOW_NS

    def expiry_ns(self, pod_info: QueuedPodInfo, /) -> int:
        """Return the begin of the window in which the backoff ends, in ns; -1 without a backoff."""
        failures = pod_info.consecutive_errors or pod_info.unschedulable_count
        if failures == 0 or self._limits.max_ns == 0:
            return _NO_BACKOFF_NS
        expiry_ns = pod_info.timestamp_ns + failure_backoff_ns(failures, self._limits)
        return expiry_ns - expiry_ns % self._window_ns

    def backs_off(self, pod_info: QueuedPodInfo, now_ns: int, /) -> bool:
        """Return whether the pod still backs off: to the end of its backoff window."""
        return self.expiry_ns(pod_info) >= now_ns - now_ns % self._window_ns

    def due_ns(self, pod_info: QueuedPodInfo, /) -> int:
        """Return the first time at which the pod no longer backs off, in ns."""
        return self.expiry_ns(pod_info) + self._window_ns


def attempt_backoff_ns(attempts: int, limits: BackoffLimits) -> int:
    """Return the wait after `attempts` attempts, in ns.

    The wait doubles with each attempt after the first, up to the maximum. The maximum is applied
    only after a doubling, so an initial wait above the maximum applies to the first attempt.
    Source: kubernetes v1.20 internal/queue/scheduling_queue.go, calculateBackoffDuration.
    """
    if attempts <= 1:
        return limits.initial_ns
    doubled = limits.initial_ns << min(attempts - 1, _DOUBLINGS_MAX)
    return min(doubled, limits.max_ns)


class AttemptBackoff(BackoffPolicy):
    """v1.20: the backoff depends on the pod's attempts and timestamp.

    Source: kubernetes v1.20 internal/queue/scheduling_queue.go, getBackoffTime.
    """

    __slots__ = ()

    def expiry_ns(self, pod_info: QueuedPodInfo, /) -> int:
        """Return when the pod's backoff ends, in ns."""
        return pod_info.timestamp_ns + attempt_backoff_ns(pod_info.attempts, self._limits)


class PodBackoffMap(BackoffPolicy):
    """v1.16: attempts and last update by pod name, in the order of the updates.

    Because the map is keyed by name, a pod's failures also count for the next pod of that name.
    Source: kubernetes v1.16 internal/queue/pod_backoff.go; scheduling_queue.go, backoffPod.
    """

    __slots__ = ("_by_name",)

    def __init__(self, limits: BackoffLimits) -> None:
        super().__init__(limits)
        self._by_name: OrderedDict[PodKey, NameBackoff] = OrderedDict()

    def expiry_ns(self, pod_info: QueuedPodInfo, /) -> int:
        """Return when the backoff of the pod's name ends, in ns; 0 for a name without failures."""
        backoff = self._by_name.get(pod_info.key)
        return 0 if backoff is None else self._expiry_ns(backoff)

    def record_failure(self, key: PodKey, now_ns: int, /) -> None:
        """Count a failure of `key`, unless its backoff runs or ends right now."""
        self._drop_outdated(now_ns)
        counted = self._by_name.get(key)
        if counted is not None and self._expiry_ns(counted) >= now_ns:
            return
        attempts = 1 if counted is None else counted.attempts + 1
        self._by_name[key] = NameBackoff(key=key, attempts=attempts, updated_ns=now_ns)
        self._by_name.move_to_end(key)

    def clear_backoff(self, key: PodKey, /) -> None:
        """Drop the count of `key`."""
        self._by_name.pop(key, None)

    def state(self) -> tuple[NameBackoff, ...]:
        """Return the backoffs by name, oldest update first."""
        return tuple(self._by_name.values())

    def restore(self, backoffs: Iterable[NameBackoff], /) -> None:
        """Set the backoffs by name."""
        self._by_name = OrderedDict((backoff.key, backoff) for backoff in backoffs)

    def _expiry_ns(self, backoff: NameBackoff) -> int:
        return backoff.updated_ns + attempt_backoff_ns(backoff.attempts, self._limits)

    def _drop_outdated(self, now_ns: int) -> None:
        while self._by_name:
            oldest = next(iter(self._by_name.values()))
            if oldest.updated_ns + self._limits.max_ns >= now_ns:
                return
            del self._by_name[oldest.key]


_BACKOFF_TICK_NS = SECOND_NS
_LEFTOVER_TICK_NS = 30_000_000_000
_NEVER_NS = -1


class FlushTicks:
    """Computes when the next flush would move a pod.

    Has the times of the last flushes, in ns, -1 for never. A leftover flush moves pods that have
    been unschedulable for longer than `max_unschedulable_ns`.
    """

    __slots__ = ("backoff_ns", "leftover_ns", "max_unschedulable_ns")

    def __init__(
        self,
        *,
        max_unschedulable_ns: int,
        backoff_ns: int = _NEVER_NS,
        leftover_ns: int = _NEVER_NS,
    ) -> None:
        self.max_unschedulable_ns = max_unschedulable_ns
        self.backoff_ns = backoff_ns
        self.leftover_ns = leftover_ns

    def next_ns(
        self, now_ns: int, *, due_ns: int | None, oldest_unschedulable_ns: int | None
    ) -> int | None:
        """Return the first tick from `now_ns` on whose flush would move something.

        `due_ns` is when the first backing-off pod is due, `oldest_unschedulable_ns` the earliest
        timestamp of an unschedulable pod; None without such a pod. Returns None if both are None.
        The tick of a flush that has been done is not returned again.
        """
        ticks: list[int] = []
        if due_ns is not None:
            earliest_ns = max(due_ns, now_ns, self.backoff_ns + 1)
            ticks.append(_tick_from(earliest_ns, _BACKOFF_TICK_NS))
        if oldest_unschedulable_ns is not None:
            leftover_ns = oldest_unschedulable_ns + self.max_unschedulable_ns + 1
            earliest_ns = max(leftover_ns, now_ns, self.leftover_ns + 1)
            ticks.append(_tick_from(earliest_ns, _LEFTOVER_TICK_NS))
        return min(ticks, default=None)


def _tick_from(earliest_ns: int, period_ns: int) -> int:
    return -(-earliest_ns // period_ns) * period_ns
