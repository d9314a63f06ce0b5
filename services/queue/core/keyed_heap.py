"""A heap of entries with one entry a pod.

What orders an entry is bytes, compared as they are: a heap of them compares several times
faster than one of tuples, once there are too many to stay in the processor's cache. Adding
under a key that is there replaces its entry. Removal is lazy: an order that has no entry is
skipped when it comes to the top, and the heap is rebuilt when most of it is stale, so add,
remove and pop are O(log n), amortised. Who looks at the first entries has them sorted before
the heap, where they wait to be popped: each leaves the heap once. That is done for some hundreds,
since adding among them takes as long as they are many.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import islice

from services.queue.core.entry import Entry
from services.queue.core.pod import PodKey

Order = bytes
"""What orders a sub-queue, least first; it ends with the sequence, which makes it total."""

_STALE_MIN = 64
_FRONT_MAX = 1024


class KeyedHeap:
    """Entries by the order that a sub-queue gives them, and each pod's order by its key.

    An order may stand in the heap more than once: its entry had gone and came again. `_front` is
    sorted, and nothing in the heap comes before its end.
    """

    __slots__ = ("_entries", "_front", "_heap", "_orders")

    def __init__(self) -> None:
        self._front: deque[Order] = deque()
        self._heap: list[Order] = []
        self._entries: dict[Order, Entry] = {}
        self._orders: dict[PodKey, Order] = {}

    def __len__(self) -> int:
        return len(self._orders)

    def __contains__(self, key: PodKey) -> bool:
        return key in self._orders

    def put_in_order(self, key: PodKey, order: Order, entry: Entry) -> None:
        """Add `entry` under `key`, in the place of one with the same key."""
        orders, entries, front = self._orders, self._entries, self._front
        known = orders.get(key)
        if known is not None:
            del entries[known]
        orders[key] = order
        entries[order] = entry
        if known != order:
            if front and order < front[-1]:
                insort(front, order)
            else:
                heappush(self._heap, order)
            if len(front) + len(self._heap) > 2 * len(orders) + _STALE_MIN:
                self._rebuild()

    def get(self, key: PodKey) -> Entry | None:
        """Return the entry of `key`, None if there is none."""
        order = self._orders.get(key)
        return None if order is None else self._entries[order]

    def remove(self, key: PodKey) -> Entry | None:
        """Take out and return the entry of `key`, None if there is none."""
        order = self._orders.pop(key, None)
        return None if order is None else self._entries.pop(order)

    def peek(self) -> Entry | None:
        """Return the first entry without taking it out, None if the heap is empty."""
        front, heap, entries = self._front, self._heap, self._entries
        while front or heap:
            entry = entries.get(front[0] if front else heap[0])
            if entry is not None:
                return entry
            self._drop_first()
        return None

    def pop(self) -> Entry | None:
        """Take out and return the first entry, None if the heap is empty."""
        front, heap, entries = self._front, self._heap, self._entries
        while front or heap:
            entry = entries.pop(self._drop_first(), None)
            if entry is not None:
                pod = entry.pod
                del self._orders[pod.namespace, pod.name]
                return entry
        return None

    def first(self, count: int) -> list[Entry]:
        """Return the first `count` entries in order, fewer if there are fewer."""
        return list(islice(self.in_order(), count))

    def entries(self) -> tuple[Entry, ...]:
        """Return every entry, in order."""
        return tuple(self._entries[order] for order in sorted(self._entries))

    def in_order(self) -> Iterator[Entry]:
        """Yield the entries in order, while none is added or taken."""
        entries, before = self._entries, b""
        for order in self._sorted_orders():
            entry = entries.get(order)
            if entry is not None and order != before:
                before = order
                yield entry

    def _sorted_orders(self) -> Iterator[Order]:
        """Yield all orders, stale and repeated ones too; the first of them go to the front."""
        front, heap = self._front, self._heap
        yield from front
        while heap and len(front) < _FRONT_MAX:
            order = heappop(heap)
            front.append(order)
            yield order
        yield from sorted(heap)

    def _drop_first(self) -> Order:
        return self._front.popleft() if self._front else heappop(self._heap)

    def _rebuild(self) -> None:
        self._front.clear()
        self._heap = list(self._entries)
        heapify(self._heap)
