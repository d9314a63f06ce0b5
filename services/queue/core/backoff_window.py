"""How long a failed pod waits in v1.34.

Refusals and errors have counts of their own. Where backoffQ may be popped from, every backoff
ends with a whole second, so that the pods of one second can stand in activeQ's order; a pod
waits through the second in which its backoff ends.

Source: kubernetes v1.34 pkg/scheduler/backend/queue/backoff_queue.go, getBackoffTime,
isPodBackingoff, calculateBackoffDuration, alignToWindow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from services.queue.core.backoff import BackoffLimits, NameBackoff
from services.queue.core.entry import Entry
from services.queue.core.pod import PodKey

WINDOW_NS = 1_000_000_000
_EXACT_NS = 1
_NO_BACKOFF_NS = -1
_SHIFT_MAX = 63


def window_backoff_ns(failures: int, limits: BackoffLimits) -> int:
    """Return the wait after `failures` failures (1 or more), in ns.

    Doubles with each failure after the first and never passes the maximum, not even where
    the initial wait does.
    """
    shift = min(failures - 1, _SHIFT_MAX)
    if limits.initial_ns > limits.max_ns >> shift:
        return limits.max_ns
    return limits.initial_ns << shift


class WindowBackoff:
    """v1.34: the wait follows from the entry's failures and timestamp.

    `aligned` ends backoffs with whole seconds. A maximum of 0 is no backoff at all.
    """

    __slots__ = ("_limits", "_window_ns")

    goes_by_name: ClassVar[bool] = False

    def __init__(self, limits: BackoffLimits, *, aligned: bool) -> None:
        self._limits = limits
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

    def record_failure(self, key: PodKey, now_ns: int, /) -> None:
        """Do nothing: the entry carries its failures."""

    def forget(self, key: PodKey, /) -> None:
        """Do nothing: the entry carries its failures."""

    def state(self) -> tuple[NameBackoff, ...]:
        """Return nothing: nothing is kept by name."""
        return ()

    def restore(self, backoffs: Iterable[NameBackoff], /) -> None:
        """Do nothing: nothing is kept by name."""
