"""The sub-queues of pending pods, and the heap with keys that they are.

What orders an entry is bytes, compared as they are: a heap of them compares several times
faster than one of tuples, once there are too many to stay in the processor's cache. Adding
under a key that is there replaces its entry. Removal is lazy: an order that has no entry is
skipped when it comes to the top, and the heap is rebuilt when most of it is stale, so add,
remove and pop are O(log n), amortised. Who looks at the first entries has them sorted before
the heap, where they wait to be popped: each leaves the heap once. That is done for some hundreds,
since adding among them takes as long as they are many.

The sub-queues, what orders each, and what comes into them.

An entry stands in one of them. One pod may have an entry in two, as upstream lets it. Orders are
bytes: big-endian numbers, so that smaller ones stand first.

Source: kubernetes v1.20 internal/queue/scheduling_queue.go, PriorityQueue; v1.34
pkg/scheduler/backend/queue/backoff_queue.go, backoffQueue, which is two queues as one, and
lessBackoffCompletedWithPriority; plugins/queuesort/priority_sort.go, Less.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import islice
from struct import Struct

from services.queue.core.backoff import BackoffPolicy
from services.queue.core.queued_pod import Entry, PodKey, PodRef, QueuedPod
from services.queue.core.results import Counts, SubQueue
from services.queue.core.unschedulable import UnschedulablePods

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


_PRIORITY_MAX = 2**31 - 1
_RANKED = Struct(">IHQQ").pack
_EXPIRING = Struct(">QQ").pack
_NUMBER = Struct(">I").pack
_ARRIVAL = Struct(">QQ").pack
_EXPIRY = Struct(">Q").pack
_END = b"\0\0"

# Members by name: Python 3.11 looks them up in their class by calling a function.
_ACTIVE, _BACKOFF, _ERROR_BACKOFF = SubQueue.ACTIVE, SubQueue.BACKOFF, SubQueue.ERROR_BACKOFF
_UNSCHEDULABLE = SubQueue.UNSCHEDULABLE


def pop_order(entry: Entry) -> bytes:
    """Return activeQ's order: priority descending or the sort key, queue time, arrival.

    Priorities are int32, times are ns from 0 to below 2^64. Pods with a sort key stand as if of
    priority 0 among pods without one, which have an empty key.
    """
    pod = entry.pod
    if not pod.sort_key:
        return _RANKED(_PRIORITY_MAX - pod.priority, 0, entry.timestamp_ns, entry.sequence)
    rank = _NUMBER(_PRIORITY_MAX) + _ended(pod.sort_key)
    return rank + _ARRIVAL(entry.timestamp_ns, entry.sequence)


def expiry_order(entry: Entry, expiry_ns: int) -> bytes:
    """Return a backoffQ's order: the end of the backoff from -1 on, then arrival."""
    return _EXPIRING(expiry_ns + 1, entry.sequence)


def ranked_expiry_order(entry: Entry, expiry_ns: int) -> bytes:
    """Return the order of a backoffQ that is popped from: of one end, as in activeQ."""
    return _EXPIRY(expiry_ns + 1) + pop_order(entry)


def _ended(sort_key: bytes) -> bytes:
    """Return the key so that what follows it does not change its place among other keys."""
    return sort_key.replace(b"\0", b"\0\xff") + _END


class ActiveQueue(KeyedHeap):
    """The entries that are ready, the next to be popped first.

    Rank first (by default priority, descending), then the queue timestamp; the creation time
    never counts. Upstream leaves equal ranks and timestamps to its heap; here arrival decides.
    Source: kubernetes v1.20 internal/queue/scheduling_queue.go, activeQ;
    plugins/queuesort/priority_sort.go.
    """

    __slots__ = ()

    def put(self, entry: Entry) -> None:
        """Add `entry`, in the place of one of the same pod."""
        pod = entry.pod
        self.put_in_order((pod.namespace, pod.name), pop_order(entry), entry)


class BackoffQueue(KeyedHeap):
    """The entries that back off, the next to expire first.

    The mode's rule says when a backoff ends and a pod is due. With `ranked`, pods of one expiry
    stand as in activeQ, else in the order of arrival.
    Source: kubernetes v1.20 internal/queue/scheduling_queue.go, podsCompareBackoffCompleted,
    flushBackoffQCompleted; v1.34 backend/queue/backoff_queue.go.
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


class SubQueues:
    """activeQ, the two backoffQs and the unschedulable pods; what comes in is counted by event.

    `ranked` lets pods whose backoff ends together stand as in activeQ. The error backoff
    stays empty in the modes that know none.
    """

    __slots__ = ("active", "backoff", "error_backoff", "incoming", "unschedulable")

    def __init__(self, policy: BackoffPolicy, *, ranked: bool = False) -> None:
        self.active = ActiveQueue()
        self.backoff = BackoffQueue(policy, ranked=ranked)
        self.error_backoff = BackoffQueue(policy)
        self.unschedulable = UnschedulablePods()
        self.incoming = Counts[tuple[SubQueue, str]]()

    def where(self, key: PodKey) -> SubQueue | None:
        """Return where a pod stands: unschedulable first, then active, then backing off."""
        if key in self.unschedulable:
            return _UNSCHEDULABLE
        if key in self.active:
            return _ACTIVE
        return _BACKOFF if self.backs_off(key) else None

    def backs_off(self, key: PodKey) -> bool:
        """Tell whether a pod stands in one of the backoffQs."""
        return key in self.backoff or key in self.error_backoff

    def leave_waiting(self, key: PodKey) -> None:
        """Take a pod out of the unschedulable pods and the backoffQs, wherever it stands."""
        self.unschedulable.remove(key)
        self.backoff.remove(key)
        self.error_backoff.remove(key)

    def remove_backing_off(self, key: PodKey) -> Entry | None:
        """Take a pod out of the backoffQs; None if it is in neither."""
        return self.backoff.remove(key) or self.error_backoff.remove(key)

    def activate(self, entry: Entry, event: str) -> SubQueue:
        """Make `entry` active because of `event`."""
        self.active.put(entry)
        self.incoming.record((_ACTIVE, event))
        return _ACTIVE

    def back_off(self, entry: Entry, event: str) -> SubQueue:
        """Let `entry` back off because of `event`."""
        self.backoff.put(entry)
        self.incoming.record((_BACKOFF, event))
        return _BACKOFF

    def back_off_error(self, entry: Entry, event: str) -> SubQueue:
        """Let `entry` back off after an error because of `event`."""
        self.error_backoff.put(entry)
        self.incoming.record((_BACKOFF, event))
        return _ERROR_BACKOFF

    def park(self, entry: Entry, event: str) -> SubQueue:
        """Make `entry` unschedulable because of `event`."""
        self.unschedulable.put(entry)
        self.incoming.record((_UNSCHEDULABLE, event))
        return _UNSCHEDULABLE

    def latest(self, pod: PodRef) -> QueuedPod | None:
        """Return the latest version of a pod: of two entries the unschedulable one is older."""
        for queue in (self.active, self.backoff, self.error_backoff, self.unschedulable):
            entry = queue.get(pod.key)
            if entry is not None and entry.pod.uid == pod.uid:
                return entry.pod
        return None

    def hold(self, pod: PodRef, gates: tuple[str, ...]) -> None:
        """Change which gates hold a pod, in its entries, wherever they stand."""
        for heap in (self.active, self.backoff, self.error_backoff):
            entry = heap.get(pod.key)
            if entry is not None and entry.pod.uid == pod.uid:
                heap.put(entry.with_pod(entry.pod._replace(gates=gates)))
        entry = self.unschedulable.get(pod.key)
        if entry is not None and entry.pod.uid == pod.uid:
            self.unschedulable.replace(entry.with_pod(entry.pod._replace(gates=gates)))

    def first(self, queue: SubQueue, count: int) -> list[Entry]:
        """Return the first `count` entries of `queue`, in its own order."""
        match queue:
            case SubQueue.ACTIVE:
                return self.active.first(count)
            case SubQueue.BACKOFF:
                return self.backoff.first(count)
            case SubQueue.ERROR_BACKOFF:
                return self.error_backoff.first(count)
            case SubQueue.UNSCHEDULABLE:
                return self.unschedulable.first(count)
            case SubQueue.GATED:
                return self.unschedulable.first_gated(count)

    def sizes(self) -> dict[SubQueue, int]:
        """Return how many entries each has."""
        gated = self.unschedulable.gated
        return {
            SubQueue.ACTIVE: len(self.active),
            SubQueue.BACKOFF: len(self.backoff),
            SubQueue.ERROR_BACKOFF: len(self.error_backoff),
            SubQueue.UNSCHEDULABLE: len(self.unschedulable) - gated,
            SubQueue.GATED: gated,
        }

    def pods(self) -> tuple[QueuedPod, ...]:
        """Return the pods of all: active in pop order, backing off by expiry, unschedulable."""
        entries = (
            *self.active.entries(),
            *self.backoff.entries(),
            *self.error_backoff.entries(),
            *self.unschedulable.entries(),
        )
        return tuple(entry.pod for entry in entries)
