"""podBackoffQ: pods that may be tried again once their backoff has ended.

Ordered by expiry alone; a pod is due when its expiry is not after now.

Source: kubernetes v1.20 internal/queue/scheduling_queue.go, podsCompareBackoffCompleted,
flushBackoffQCompleted, isPodBackingoff.
"""

from __future__ import annotations

from services.queue.core.backoff import BackoffPolicy
from services.queue.core.entry import Entry
from services.queue.core.keyed_heap import KeyedHeap


class BackoffQueue(KeyedHeap):
    """The entries that back off, the next to expire first."""

    __slots__ = ("_policy",)

    def __init__(self, policy: BackoffPolicy) -> None:
        super().__init__()
        self._policy = policy

    def backs_off(self, entry: Entry, now_ns: int) -> bool:
        """Tell whether `entry` still has to wait at `now_ns`."""
        return self._policy.expiry_ns(entry) > now_ns

    def put(self, entry: Entry) -> None:
        """Add `entry`, in the place of one of the same pod."""
        order = (self._policy.expiry_ns(entry), b"", 0, entry.sequence, entry.key)
        self.put_in_order(order, entry)

    def pop_due(self, now_ns: int) -> Entry | None:
        """Take out and return the first entry if its backoff has ended, else None."""
        first = self.peek()
        return None if first is None or self.backs_off(first, now_ns) else self.pop()

    def next_expiry_ns(self) -> int | None:
        """Return when the first entry is due, None if there is none."""
        first = self.peek()
        return None if first is None else self._policy.expiry_ns(first)
