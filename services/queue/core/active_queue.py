"""activeQ: the pods that may be popped, in the order of scheduling.

Rank first (by default priority, descending), then the queue timestamp; the creation time
never counts. Upstream leaves equal ranks and timestamps to its heap; here arrival decides.

Source: kubernetes v1.20 internal/queue/scheduling_queue.go, activeQ;
plugins/queuesort/priority_sort.go.
"""

from __future__ import annotations

from itertools import islice

from services.queue.core.entry import Entry
from services.queue.core.keyed_heap import KeyedHeap
from services.queue.core.pod import PodKey


class ActiveQueue:
    """The entries that are ready, the next to be popped first."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap = KeyedHeap()

    def __len__(self) -> int:
        return len(self._heap)

    def __contains__(self, key: PodKey) -> bool:
        return key in self._heap

    def put(self, entry: Entry) -> None:
        """Add `entry`, in the place of one of the same pod."""
        pod = entry.pod
        self._heap.put((pod.rank, entry.timestamp_ns, entry.sequence, pod.key), entry)

    def get(self, key: PodKey) -> Entry | None:
        """Return the entry of `key`, None if there is none."""
        return self._heap.get(key)

    def remove(self, key: PodKey) -> Entry | None:
        """Take out and return the entry of `key`, None if there is none."""
        return self._heap.remove(key)

    def peek(self) -> Entry | None:
        """Return the next entry without taking it out, None if there is none."""
        return self._heap.peek()

    def pop(self) -> Entry | None:
        """Take out and return the next entry, None if there is none."""
        return self._heap.pop()

    def first(self, count: int) -> list[Entry]:
        """Return the next `count` entries, fewer if there are fewer, in pop order."""
        return list(islice(self._heap.in_order(), count))

    def entries(self) -> tuple[Entry, ...]:
        """Return every entry in pop order."""
        return tuple(self._heap.in_order())
