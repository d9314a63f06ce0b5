"""A heap of entries with one entry a pod.

Adding under a key that is there replaces its entry. Removal is lazy: an order whose
slot has changed is skipped when it comes to the top, and the heap is rebuilt when most
of it is stale, so add, remove and pop are O(log n), amortised.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import islice

from services.queue.core.entry import Entry
from services.queue.core.pod import PodKey

Order = tuple[int, bytes, int, int, PodKey] | tuple[int, int, bytes, int, int, PodKey]
"""What orders a sub-queue, least first; the sequence, which makes it total; the key."""

_STALE_MIN = 64


class KeyedHeap:
    """Entries by key, and by the order that a sub-queue gives them."""

    __slots__ = ("_heap", "_slots")

    def __init__(self) -> None:
        self._heap: list[Order] = []
        self._slots: dict[PodKey, tuple[Order, Entry]] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: PodKey) -> bool:
        return key in self._slots

    def put_in_order(self, order: Order, entry: Entry) -> None:
        """Add `entry`, in the place of one with the same key."""
        slots, heap = self._slots, self._heap
        slots[order[-1]] = (order, entry)
        heappush(heap, order)
        if len(heap) > 2 * len(slots) + _STALE_MIN:
            self._rebuild()

    def get(self, key: PodKey) -> Entry | None:
        """Return the entry of `key`, None if there is none."""
        slot = self._slots.get(key)
        return None if slot is None else slot[1]

    def remove(self, key: PodKey) -> Entry | None:
        """Take out and return the entry of `key`, None if there is none."""
        slot = self._slots.pop(key, None)
        return None if slot is None else slot[1]

    def peek(self) -> Entry | None:
        """Return the first entry without taking it out, None if the heap is empty."""
        heap = self._heap
        while heap:
            entry = self._live(heap[0])
            if entry is not None:
                return entry
            heappop(heap)
        return None

    def pop(self) -> Entry | None:
        """Take out and return the first entry, None if the heap is empty."""
        entry = self.peek()
        if entry is not None:
            del self._slots[heappop(self._heap)[-1]]
        return entry

    def first(self, count: int) -> list[Entry]:
        """Return the first `count` entries in order, fewer if there are fewer."""
        return list(islice(self._in_order(), count))

    def entries(self) -> tuple[Entry, ...]:
        """Return every entry in order."""
        slots = self._slots
        return tuple(slots[order[-1]][1] for order in sorted(order for order, _ in slots.values()))

    def _in_order(self) -> Iterator[Entry]:
        """Yield the entries in order; k of them cost O(k log k).

        Walks the heap from its root with a frontier of the nodes that may come next.
        """
        heap = self._heap
        frontier = [(heap[0], 0)] if heap else []
        while frontier:
            order, index = heappop(frontier)
            for child in (2 * index + 1, 2 * index + 2):
                if child < len(heap):
                    heappush(frontier, (heap[child], child))
            entry = self._live(order)
            if entry is not None:
                yield entry

    def _live(self, order: Order) -> Entry | None:
        slot = self._slots.get(order[-1])
        return slot[1] if slot is not None and slot[0] is order else None

    def _rebuild(self) -> None:
        self._heap = [order for order, _ in self._slots.values()]
        heapify(self._heap)
