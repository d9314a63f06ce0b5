"""The ticks at which upstream flushes: whole seconds for backoff, half minutes for leftovers.

The queue has no timer. It answers when the next flush would move something, and the tick
comes back to it as an operation. A tick whose flush has been done does not come again.

Source: kubernetes v1.20 internal/queue/scheduling_queue.go, Run, unschedulableQTimeInterval.
"""

from __future__ import annotations

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
