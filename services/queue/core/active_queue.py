"""activeQ: the pods that may be popped, in the order of scheduling.

Rank first (by default priority, descending), then the queue timestamp; the creation time
never counts. Upstream leaves equal ranks and timestamps to its heap; here arrival decides.

Source: kubernetes v1.20 internal/queue/scheduling_queue.go, activeQ;
plugins/queuesort/priority_sort.go.
"""

from __future__ import annotations

from services.queue.core.entry import Entry
from services.queue.core.keyed_heap import KeyedHeap
from services.queue.core.orders import pop_order


class ActiveQueue(KeyedHeap):
    """The entries that are ready, the next to be popped first."""

    __slots__ = ()

    def put(self, entry: Entry) -> None:
        """Add `entry`, in the place of one of the same pod."""
        pod = entry.pod
        self.put_in_order((pod.namespace, pod.name), pop_order(entry), entry)
