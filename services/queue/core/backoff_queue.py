"""backoffQ: pods that may be tried again once their backoff has ended.

Ordered by the end of the backoff; the mode's rule says when that is, when a pod is due, and
what orders pods of the same end.

Source: kubernetes v1.20 internal/queue/scheduling_queue.go, podsCompareBackoffCompleted,
flushBackoffQCompleted; v1.34 backend/queue/backoff_queue.go.
"""

from __future__ import annotations

from services.queue.core.backoff import BackoffPolicy
from services.queue.core.entry import Entry
from services.queue.core.keyed_heap import KeyedHeap
from services.queue.core.orders import expiry_order, ranked_expiry_order


class BackoffQueue(KeyedHeap):
    """The entries that back off, the next to expire first.

    With `ranked`, pods of one expiry stand as in activeQ, else in the order of arrival.
    """

    __slots__ = ("_policy", "_ranked")

    def __init__(self, policy: BackoffPolicy, *, ranked: bool = False) -> None:
        super().__init__()
        self._policy = policy
        self._ranked = ranked

    def put(self, entry: Entry) -> None:
        """Add `entry`, in the place of one of the same pod."""
        expiry_ns, pod = self._policy.expiry_ns(entry), entry.pod
        in_order = ranked_expiry_order if self._ranked else expiry_order
        self.put_in_order((pod.namespace, pod.name), in_order(entry, expiry_ns), entry)

    def pop_due(self, now_ns: int) -> Entry | None:
        """Take out and return the first entry if its backoff has ended, else None."""
        first = self.peek()
        return None if first is None or self._policy.backs_off(first, now_ns) else self.pop()

    def next_due_ns(self) -> int | None:
        """Return when the first entry is due, None if there is none."""
        first = self.peek()
        return None if first is None else self._policy.due_ns(first)
