"""podBackoffQ: pods that may be tried again once their backoff has ended.

Ordered by expiry alone; a pod is due when its expiry is not after now.

Source: kubernetes v1.20 internal/queue/scheduling_queue.go, podsCompareBackoffCompleted,
flushBackoffQCompleted, isPodBackingoff.
"""

from __future__ import annotations

from services.queue.core.backoff import BackoffPolicy
from services.queue.core.entry import Entry
from services.queue.core.keyed_heap import KeyedHeap
from services.queue.core.pod import PodKey

_UNRANKED: tuple[int, ...] = ()


class BackoffQueue:
    """The entries that back off, the next to expire first."""

    __slots__ = ("_heap", "_policy")

    def __init__(self, policy: BackoffPolicy) -> None:
        self._policy = policy
        self._heap = KeyedHeap()

    def __len__(self) -> int:
        return len(self._heap)

    def __contains__(self, key: PodKey) -> bool:
        return key in self._heap

    def backs_off(self, entry: Entry, now_ns: int) -> bool:
        """Tell whether `entry` still has to wait at `now_ns`."""
        return self._policy.expiry_ns(entry) > now_ns

    def put(self, entry: Entry) -> None:
        """Add `entry`, in the place of one of the same pod."""
        expiry_ns = self._policy.expiry_ns(entry)
        self._heap.put((_UNRANKED, expiry_ns, entry.sequence, entry.key), entry)

    def remove(self, key: PodKey) -> Entry | None:
        """Take out and return the entry of `key`, None if there is none."""
        return self._heap.remove(key)

    def pop_due(self, now_ns: int) -> Entry | None:
        """Take out and return the first entry if its backoff has ended, else None."""
        first = self._heap.peek()
        if first is None or self.backs_off(first, now_ns):
            return None
        return self._heap.pop()

    def next_expiry_ns(self) -> int | None:
        """Return when the first entry is due, None if there is none."""
        first = self._heap.peek()
        return None if first is None else self._policy.expiry_ns(first)

    def entries(self) -> tuple[Entry, ...]:
        """Return every entry in the order of expiry."""
        return tuple(self._heap.in_order())
