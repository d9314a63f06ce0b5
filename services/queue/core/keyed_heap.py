"""A heap of entries with one entry a pod.

Adding under a key that is there replaces its entry. Removal is lazy: an order whose
slot has changed is skipped when it comes to the top, and the heap is rebuilt when most
of it is stale, so add, remove and pop are O(log n), amortised.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from services.queue.core.entry import Entry
from services.queue.core.pod import PodKey

Order = tuple[tuple[int, ...], int, int, PodKey]
"""Rank, time in ns, sequence, key: least comes first. The sequence makes it total."""

_STALE_MIN = 64


class KeyedHeap:
    """Entries by key, and by order."""

    __slots__ = ("_heap", "_slots")

    def __init__(self) -> None:
        self._heap: list[Order] = []
        self._slots: dict[PodKey, tuple[Order, Entry]] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: PodKey) -> bool:
        return key in self._slots

    def put(self, order: Order, entry: Entry) -> None:
        """Add `entry`, in the place of one with the same key."""
        self._slots[order[3]] = (order, entry)
        heappush(self._heap, order)
        if len(self._heap) > 2 * len(self._slots) + _STALE_MIN:
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
        while self._heap:
            slot = self._live(self._heap[0])
            if slot is not None:
                return slot
            heappop(self._heap)
        return None

    def pop(self) -> Entry | None:
        """Take out and return the first entry, None if the heap is empty."""
        while self._heap:
            order = heappop(self._heap)
            entry = self._live(order)
            if entry is not None:
                del self._slots[order[3]]
                return entry
        return None

    def in_order(self) -> Iterator[Entry]:
        """Yield the entries in order without taking them out; k of them cost O(k log k).

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
        slot = self._slots.get(order[3])
        return slot[1] if slot is not None and slot[0] is order else None

    def _rebuild(self) -> None:
        self._heap = [order for order, _ in self._slots.values()]
        heapify(self._heap)
