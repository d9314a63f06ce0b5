"""Computes the backoff of failed pods, and the ticks at which the queue is flushed.

v1.34 counts refusals and errors apart. Where backoffQ may be popped from, the pods whose backoff
ends in one backoff window, a second, are in activeQ's order; each backs off to the end of that
window. v1.20 counts a pod's attempts; its backoff begins with its last failure. v1.16 keeps a map
by pod name which outlives the pod: a name's count does not rise while its backoff runs, nor exactly
at its expiry, and a name is dropped once the maximum has passed since its last update.

Upstream flushes backoffs at whole seconds and leftovers at half minutes. The queue has no timer: it
returns when the next flush would move something, and the caller sends the flush as an operation.

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
    """The first wait and the longest, in ns. The first may be longer than the longest."""

    initial_ns: int = SECOND_NS
    max_ns: int = 10_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NameBackoff:
    """A pod name's backoff in v1.16: the failures counted, and the time of the last one."""

    key: PodKey
    attempts: int
    updated_ns: int


class BackoffPolicy(ABC):
    """Computes the end of backoffs by one version's rules; most keep no state but QueuedPodInfo."""

    __slots__ = ("_limits",)

    def __init__(self, limits: BackoffLimits) -> None:
        self._limits = limits

    @abstractmethod
    def expiry_ns(self, pod_info: QueuedPodInfo, /) -> int:
        """Return when the pod's backoff expires, in ns: the order of a backoffQ.

        In v1.34 the pod backs off for longer: see `due_ns`.
        """

    def backs_off(self, pod_info: QueuedPodInfo, now_ns: int, /) -> bool:
        """Return whether the pod still backs off at `now_ns`, which is before `due_ns`."""
        return self.expiry_ns(pod_info) > now_ns

    def due_ns(self, pod_info: QueuedPodInfo, /) -> int:
        """Return the first time at which the pod no longer backs off, in ns."""
        return self.expiry_ns(pod_info)

    def record_failure(self, key: PodKey, now_ns: int, /) -> None:  # noqa: B027 - most keep nothing
        """Count a failed cycle of the pod."""

    def clear_backoff(self, key: PodKey, /) -> None:  # noqa: B027 - most keep nothing
        """Drop the pod's count: it has changed, or is deleted."""

    def state(self) -> tuple[NameBackoff, ...]:
        """Return the backoffs by name, oldest update first."""
        return ()

    def restore(self, backoffs: Iterable[NameBackoff], /) -> None:  # noqa: B027 - most keep nothing
        """Set what `state` returns."""


def failure_backoff_ns(failures: int, limits: BackoffLimits) -> int:
    """Return the wait after `failures` failures (1 or more), in ns.

    Doubles with each failure after the first, and is at most the maximum, even where the initial
    wait is longer.
    Source: kubernetes v1.34 pkg/scheduler/backend/queue/backoff_queue.go, calculateBackoffDuration.
    """
    shift = min(failures - 1, _DOUBLINGS_MAX)
    if limits.initial_ns > limits.max_ns >> shift:
        return limits.max_ns
    return limits.initial_ns << shift


class FailureBackoff(BackoffPolicy):
    """v1.34: the wait follows from the pod's failures and timestamp.

    With `aligned` the backoff window is a second, else a nanosecond; a backoff expires when its
    window begins, and the pod is due when the window ends. A maximum of 0 is no backoff.
    Source: kubernetes v1.34 pkg/scheduler/backend/queue/backoff_queue.go, getBackoffTime,
    isPodBackingoff, alignToWindow.
    """

    __slots__ = ("_window_ns",)

    def __init__(self, limits: BackoffLimits, *, aligned: bool) -> None:
        super().__init__(limits)
        self._window_ns = _BACKOFF_WINDOW_NS if aligned else _NO_WINDOW_NS

    def expiry_ns(self, pod_info: QueuedPodInfo, /) -> int:
        """Return the begin of the backoff window in which the backoff ends, in ns; -1 without."""
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

    Doubles from the initial wait with each attempt after the first, up to the maximum, which is
    tested only after a doubling: a longer initial wait applies once.
    Source: kubernetes v1.20 internal/queue/scheduling_queue.go, calculateBackoffDuration.
    """
    if attempts <= 1:
        return limits.initial_ns
    doubled = limits.initial_ns << min(attempts - 1, _DOUBLINGS_MAX)
    return min(doubled, limits.max_ns)


class AttemptBackoff(BackoffPolicy):
    """v1.20: the wait follows from the pod's attempts and timestamp.

    Source: kubernetes v1.20 internal/queue/scheduling_queue.go, getBackoffTime.
    """

    __slots__ = ()

    def expiry_ns(self, pod_info: QueuedPodInfo, /) -> int:
        """Return when the pod's backoff ends, in ns."""
        return pod_info.timestamp_ns + attempt_backoff_ns(pod_info.attempts, self._limits)


class PodBackoffMap(BackoffPolicy):
    """v1.16: attempts and last update by pod name, in the order of the updates.

    So a pod's failures count for the next pod of its name, too.
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
    """The times of the last flushes, ns, -1 for never; computes when the next one would move a pod.

    A leftover flush moves pods that have been unschedulable for longer than `max_unschedulable_ns`.
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

        `due_ns` is when the first pod no longer backs off, `oldest_unschedulable_ns` the earliest
        timestamp of an unschedulable pod, None without such a pod. Returns None if both are
        None. A tick at which the flush has been done is not returned again.
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
