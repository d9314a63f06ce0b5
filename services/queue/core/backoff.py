"""How long failed pods wait, and at which ticks that is looked at.

v1.34 counts refusals and errors apart. Where backoffQ may be popped from, every backoff ends with
a whole second, so that the pods of one second can stand in activeQ's order; a pod waits through
the second in which its backoff ends. v1.20 counts a stay's own attempts from its last failure.
v1.16 keeps a map by pod name which outlives a stay: it is not bumped while a backoff runs, nor
exactly at its expiry, and forgets a name once the maximum has passed since its last update.

The ticks at which upstream flushes: whole seconds for backoff, half minutes for leftovers.

The queue has no timer. It answers when the next flush would move something, and the tick
comes back to it as an operation. A tick whose flush has been done does not come again.

Source: kubernetes v1.20 internal/queue/scheduling_queue.go, Run, unschedulableQTimeInterval.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from services.queue.core.queued_pod import Entry, PodKey

WINDOW_NS = 1_000_000_000
_EXACT_NS = 1
_NO_BACKOFF_NS = -1
# Beyond this many doublings every positive duration has passed any int64 limit.
_DOUBLINGS_MAX = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffLimits:
    """The first wait and the longest, in ns. The first may be above the longest."""

    initial_ns: int = 1_000_000_000
    max_ns: int = 10_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NameBackoff:
    """A pod name's backoff in v1.16: failures counted, and when the last one was."""

    key: PodKey
    attempts: int
    updated_ns: int


class BackoffPolicy(ABC):
    """The rule that a mode backs off by; most keep nothing beside what entries carry.

    `goes_by_name` tells that what is known of a pod counts for the next one of its name.
    """

    __slots__ = ("_limits",)

    goes_by_name: ClassVar[bool] = False

    def __init__(self, limits: BackoffLimits) -> None:
        self._limits = limits

    @abstractmethod
    def expiry_ns(self, entry: Entry, /) -> int:
        """Return when the backoff of `entry` ends."""

    def backs_off(self, entry: Entry, now_ns: int, /) -> bool:
        """Tell whether `entry` still has to wait at `now_ns`; at its expiry it is due."""
        return self.expiry_ns(entry) > now_ns

    def due_ns(self, entry: Entry, /) -> int:
        """Return the first moment at which `entry` no longer has to wait."""
        return self.expiry_ns(entry)

    def record_failure(self, key: PodKey, now_ns: int, /) -> None:  # noqa: B027 - most keep nothing
        """Note that a cycle of the pod has failed."""

    def forget(self, key: PodKey, /) -> None:  # noqa: B027 - most keep nothing
        """Start over for the pod: it has changed, or is deleted."""

    def state(self) -> tuple[NameBackoff, ...]:
        """Return what is kept by name, oldest update first."""
        return ()

    def restore(self, backoffs: Iterable[NameBackoff], /) -> None:  # noqa: B027 - most keep nothing
        """Take over what `state` returned."""


def window_backoff_ns(failures: int, limits: BackoffLimits) -> int:
    """Return the wait after `failures` failures (1 or more), in ns.

    Doubles with each failure after the first and never passes the maximum, not even where
    the initial wait does.
    Source: kubernetes v1.34 pkg/scheduler/backend/queue/backoff_queue.go, calculateBackoffDuration.
    """
    shift = min(failures - 1, _DOUBLINGS_MAX)
    if limits.initial_ns > limits.max_ns >> shift:
        return limits.max_ns
    return limits.initial_ns << shift


class WindowBackoff(BackoffPolicy):
    """v1.34: the wait follows from the entry's failures and timestamp.

    `aligned` ends backoffs with whole seconds. A maximum of 0 is no backoff at all.
    Source: kubernetes v1.34 pkg/scheduler/backend/queue/backoff_queue.go, getBackoffTime,
    isPodBackingoff, alignToWindow.
    """

    __slots__ = ("_window_ns",)

    def __init__(self, limits: BackoffLimits, *, aligned: bool) -> None:
        super().__init__(limits)
        self._window_ns = WINDOW_NS if aligned else _EXACT_NS

    def expiry_ns(self, entry: Entry, /) -> int:
        """Return when the backoff of `entry` ends; -1 where it has none."""
        failures = entry.errors or entry.refusals
        if failures == 0 or self._limits.max_ns == 0:
            return _NO_BACKOFF_NS
        expiry_ns = entry.timestamp_ns + window_backoff_ns(failures, self._limits)
        return expiry_ns - expiry_ns % self._window_ns

    def backs_off(self, entry: Entry, now_ns: int, /) -> bool:
        """Tell whether `entry` still has to wait, its expiry's own moment or second included."""
        return self.expiry_ns(entry) >= now_ns - now_ns % self._window_ns

    def due_ns(self, entry: Entry, /) -> int:
        """Return the first moment at which `entry` no longer has to wait."""
        return self.expiry_ns(entry) + self._window_ns


def backoff_ns(attempts: int, limits: BackoffLimits) -> int:
    """Return the wait after `attempts` attempts, in ns.

    Doubles from the initial wait with each attempt after the first, and saturates; the
    maximum is tested only after a doubling, so a larger initial wait holds once.
    Source: kubernetes v1.20 internal/queue/scheduling_queue.go, calculateBackoffDuration.
    """
    if attempts <= 1:
        return limits.initial_ns
    doubled = limits.initial_ns << min(attempts - 1, _DOUBLINGS_MAX)
    return min(doubled, limits.max_ns)


class AttemptBackoff(BackoffPolicy):
    """v1.20: the wait follows from the entry's own attempts and timestamp.

    Source: kubernetes v1.20 internal/queue/scheduling_queue.go, getBackoffTime.
    """

    __slots__ = ()

    def expiry_ns(self, entry: Entry, /) -> int:
        """Return when the backoff of `entry` ends."""
        return entry.timestamp_ns + backoff_ns(entry.attempts, self._limits)


class PodBackoffMap(BackoffPolicy):
    """v1.16: attempts and last update by pod name, in the order of the updates.

    Source: kubernetes v1.16 internal/queue/pod_backoff.go; scheduling_queue.go, backoffPod.
    """

    __slots__ = ("_by_name",)

    goes_by_name: ClassVar[bool] = True

    def __init__(self, limits: BackoffLimits) -> None:
        super().__init__(limits)
        self._by_name: OrderedDict[PodKey, NameBackoff] = OrderedDict()

    def expiry_ns(self, entry: Entry, /) -> int:
        """Return when the backoff of the entry's name ends; 0 for an unknown name."""
        backoff = self._by_name.get(entry.key)
        return 0 if backoff is None else self._expiry_ns(backoff)

    def record_failure(self, key: PodKey, now_ns: int, /) -> None:
        """Count a failure of `key`, unless its backoff runs or ends right now."""
        self._drop_outdated(now_ns)
        known = self._by_name.get(key)
        if known is not None and self._expiry_ns(known) >= now_ns:
            return
        attempts = 1 if known is None else known.attempts + 1
        self._by_name[key] = NameBackoff(key=key, attempts=attempts, updated_ns=now_ns)
        self._by_name.move_to_end(key)

    def forget(self, key: PodKey, /) -> None:
        """Drop what is known of `key`."""
        self._by_name.pop(key, None)

    def state(self) -> tuple[NameBackoff, ...]:
        """Return the names' backoffs, oldest update first."""
        return tuple(self._by_name.values())

    def restore(self, backoffs: Iterable[NameBackoff], /) -> None:
        """Take over the names' backoffs."""
        self._by_name = OrderedDict((backoff.key, backoff) for backoff in backoffs)

    def _expiry_ns(self, backoff: NameBackoff) -> int:
        return backoff.updated_ns + backoff_ns(backoff.attempts, self._limits)

    def _drop_outdated(self, now_ns: int) -> None:
        while self._by_name:
            oldest = next(iter(self._by_name.values()))
            if oldest.updated_ns + self._limits.max_ns >= now_ns:
                return
            del self._by_name[oldest.key]


_BACKOFF_TICK_NS = 1_000_000_000
_LEFTOVER_TICK_NS = 30_000_000_000
_NEVER_NS = -1


class FlushTicks:
    """When each flush was last done, in ns, -1 for never; and when one is worth a tick.

    A pod is left over once it has been unschedulable for longer than `max_unschedulable_ns`.
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
        self, now_ns: int, *, expiry_ns: int | None, oldest_unschedulable_ns: int | None
    ) -> int | None:
        """Return the first tick from `now_ns` on whose flush would move something.

        `expiry_ns` is when the first backoff ends, `oldest_unschedulable_ns` the least
        timestamp of an unschedulable pod, None where there is none. None without either.
        """
        ticks: list[int] = []
        if expiry_ns is not None:
            earliest_ns = max(expiry_ns, now_ns, self.backoff_ns + 1)
            ticks.append(_tick_from(earliest_ns, _BACKOFF_TICK_NS))
        if oldest_unschedulable_ns is not None:
            due_ns = oldest_unschedulable_ns + self.max_unschedulable_ns + 1
            earliest_ns = max(due_ns, now_ns, self.leftover_ns + 1)
            ticks.append(_tick_from(earliest_ns, _LEFTOVER_TICK_NS))
        return min(ticks, default=None)


def _tick_from(earliest_ns: int, period_ns: int) -> int:
    return -(-earliest_ns // period_ns) * period_ns
