"""The sub-queues of pending pods: activeQ, the backoffQs, unschedulable pods.

A pod is in one of them, or in two where upstream allows it. activeQ and the backoffQs are keyed
heaps; adding a pod under an existing key replaces the former one.

A pod's order in a heap is a byte string of big-endian numbers. A heap of bytes compares several
times faster than a heap of tuples, once it exceeds the processor's cache. Removal is lazy: an order
whose pod was removed is skipped when it reaches the top, and the heap is rebuilt when most of it is
stale, so add, remove and pop are O(log n), amortised.

Reading the first pods without popping them moves them to `_front`, a sorted list in front of the
heap, so that each pod leaves the heap only once. `_front` is limited to some hundreds of pods,
because inserting into it takes time proportional to its length.

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
from services.queue.core.queued_pod import PodKey, PodRef, QueuedPod, QueuedPodInfo
from services.queue.core.results import Counts, SubQueue
from services.queue.core.unschedulable import UnschedulablePods

Order = bytes
"""The sort key of a pod in a sub-queue, ascending; it ends with the sequence, so it is unique."""

_STALE_MIN = 64
_FRONT_MAX = 1024


class KeyedHeap:
    """A heap of pods by their order; each pod can be found by its key.

    An order is in the heap more than once if its pod was removed and added again. Invariant:
    `_front` is sorted, and no order in the heap comes before the last order in `_front`.
    """

    __slots__ = ("_front", "_heap", "_orders", "_pod_infos")

    def __init__(self) -> None:
        self._front: deque[Order] = deque()
        self._heap: list[Order] = []
        self._pod_infos: dict[Order, QueuedPodInfo] = {}
        self._orders: dict[PodKey, Order] = {}

    def __len__(self) -> int:
        return len(self._orders)

    def __contains__(self, key: PodKey) -> bool:
        return key in self._orders

    def put_in_order(self, key: PodKey, order: Order, pod_info: QueuedPodInfo) -> None:
        """Add `pod_info` under `key`, or replace the pod with that key."""
        orders, pod_infos, front = self._orders, self._pod_infos, self._front
        present = orders.get(key)
        if present is not None:
            del pod_infos[present]
        orders[key] = order
        pod_infos[order] = pod_info
        if present != order:
            if front and order < front[-1]:
                insort(front, order)
            else:
                heappush(self._heap, order)
            if len(front) + len(self._heap) > 2 * len(orders) + _STALE_MIN:
                self._rebuild()

    def get(self, key: PodKey) -> QueuedPodInfo | None:
        """Return the pod of `key`, None if it is not here."""
        order = self._orders.get(key)
        return None if order is None else self._pod_infos[order]

    def remove(self, key: PodKey) -> QueuedPodInfo | None:
        """Remove and return the pod of `key`, None if it is not here."""
        order = self._orders.pop(key, None)
        return None if order is None else self._pod_infos.pop(order)

    def peek(self) -> QueuedPodInfo | None:
        """Return the first pod without removing it, None if the heap is empty."""
        front, heap, pod_infos = self._front, self._heap, self._pod_infos
        while front or heap:
            pod_info = pod_infos.get(front[0] if front else heap[0])
            if pod_info is not None:
                return pod_info
            self._drop_first()
        return None

    def pop(self) -> QueuedPodInfo | None:
        """Remove and return the first pod, None if the heap is empty."""
        front, heap, pod_infos = self._front, self._heap, self._pod_infos
        while front or heap:
            pod_info = pod_infos.pop(self._drop_first(), None)
            if pod_info is not None:
                pod = pod_info.pod
                del self._orders[pod.namespace, pod.name]
                return pod_info
        return None

    def first(self, count: int) -> list[QueuedPodInfo]:
        """Return up to `count` first pods, in order."""
        return list(islice(self.in_order(), count))

    def pod_infos(self) -> tuple[QueuedPodInfo, ...]:
        """Return every pod, in order."""
        return tuple(self._pod_infos[order] for order in sorted(self._pod_infos))

    def in_order(self) -> Iterator[QueuedPodInfo]:
        """Yield the pods in order; the heap must not change meanwhile."""
        pod_infos, before = self._pod_infos, b""
        for order in self._sorted_orders():
            pod_info = pod_infos.get(order)
            if pod_info is not None and order != before:
                before = order
                yield pod_info

    def _sorted_orders(self) -> Iterator[Order]:
        """Yield all orders, including stale and repeated ones; move the first ones to `_front`."""
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
        self._heap = list(self._pod_infos)
        heapify(self._heap)


_PRIORITY_MAX = 2**31 - 1
_RANKED = Struct(">IHQQ").pack
_EXPIRING = Struct(">QQ").pack
_NUMBER = Struct(">I").pack
_ARRIVAL = Struct(">QQ").pack
_EXPIRY = Struct(">Q").pack
_END = b"\0\0"

# Constants for members: in Python 3.11 each access to a member of an Enum is a function call.
_ACTIVE, _BACKOFF, _ERROR_BACKOFF = SubQueue.ACTIVE, SubQueue.BACKOFF, SubQueue.ERROR_BACKOFF
_UNSCHEDULABLE = SubQueue.UNSCHEDULABLE


def pop_order(pod_info: QueuedPodInfo) -> bytes:
    """Return activeQ's order: sort key or descending priority, then timestamp, then arrival.

    Priorities are int32, times are ns from 0 to below 2^64. Between pods without a sort key, a pod
    with one is ordered like a pod of priority 0.
    """
    pod = pod_info.pod
    if not pod.sort_key:
        return _RANKED(_PRIORITY_MAX - pod.priority, 0, pod_info.timestamp_ns, pod_info.sequence)
    rank = _NUMBER(_PRIORITY_MAX) + _ended(pod.sort_key)
    return rank + _ARRIVAL(pod_info.timestamp_ns, pod_info.sequence)


def expiry_order(pod_info: QueuedPodInfo, expiry_ns: int) -> bytes:
    """Return a backoffQ's order: the end of the backoff (-1 or more), then arrival."""
    return _EXPIRING(expiry_ns + 1, pod_info.sequence)


def ranked_expiry_order(pod_info: QueuedPodInfo, expiry_ns: int) -> bytes:
    """Return the order if backoffQ can be popped from: end of backoff, then as in activeQ."""
    return _EXPIRY(expiry_ns + 1) + pop_order(pod_info)


def _ended(sort_key: bytes) -> bytes:
    """Return the key with a terminator, so that bytes after it do not change the order of keys."""
    return sort_key.replace(b"\0", b"\0\xff") + _END


class ActiveQueue(KeyedHeap):
    """The pods that can be popped, the next one first.

    Ordered by the QueueSort plugin (by default descending priority), then by timestamp; the
    creation time has no influence. Upstream leaves ties to its heap; here arrival decides.
    Source: kubernetes v1.20 internal/queue/scheduling_queue.go, activeQ;
    plugins/queuesort/priority_sort.go.
    """

    __slots__ = ()

    def put(self, pod_info: QueuedPodInfo) -> None:
        """Add a pod, or replace it."""
        pod = pod_info.pod
        self.put_in_order((pod.namespace, pod.name), pop_order(pod_info), pod_info)


class BackoffQueue(KeyedHeap):
    """The pods that back off, the next to expire first.

    The version's policy decides when a backoff expires and when a pod is due. If `ranked`, pods
    with the same expiry are ordered as in activeQ, otherwise by arrival.
    Source: kubernetes v1.20 internal/queue/scheduling_queue.go, podsCompareBackoffCompleted,
    flushBackoffQCompleted; v1.34 backend/queue/backoff_queue.go.
    """

    __slots__ = ("_policy", "_ranked")

    def __init__(self, policy: BackoffPolicy, *, ranked: bool = False) -> None:
        super().__init__()
        self._policy = policy
        self._ranked = ranked

    def put(self, pod_info: QueuedPodInfo) -> None:
        """Add a pod, or replace it."""
        self.put_by(self._policy.expiry_ns(pod_info), pod_info)

    def put_by(self, expiry_ns: int, pod_info: QueuedPodInfo) -> None:
        """Add a pod in the order of a given expiry."""
        pod = pod_info.pod
        in_order = ranked_expiry_order if self._ranked else expiry_order
        self.put_in_order((pod.namespace, pod.name), in_order(pod_info, expiry_ns), pod_info)

    def put_by_ns(self, key: PodKey) -> int:
        """Return the backoff expiry by which a pod was ordered when it was added, in ns.

        If the PodBackoffMap drops the pod's name later, the pod keeps its place, as in upstream's
        heap.
        """
        return int.from_bytes(self._orders[key][:8]) - 1

    def pop_due(self, now_ns: int) -> QueuedPodInfo | None:
        """Remove and return the first pod if its backoff is over, else None."""
        first = self.peek()
        return None if first is None or self._policy.backs_off(first, now_ns) else self.pop()

    def next_due_ns(self) -> int | None:
        """Return when the first pod is due in ns, None if the queue is empty."""
        first = self.peek()
        return None if first is None else self._policy.due_ns(first)


class SubQueues:
    """activeQ, the two backoffQs and the unschedulable pods; incoming pods are counted by event.

    If `ranked`, pods whose backoff ends together are ordered as in activeQ. The error backoffQ
    stays empty before v1.34.
    """

    __slots__ = ("active", "backoff", "error_backoff", "incoming", "unschedulable")

    def __init__(self, policy: BackoffPolicy, *, ranked: bool = False) -> None:
        self.active = ActiveQueue()
        self.backoff = BackoffQueue(policy, ranked=ranked)
        self.error_backoff = BackoffQueue(policy)
        self.unschedulable = UnschedulablePods()
        self.incoming = Counts[tuple[SubQueue, str]]()

    def where(self, key: PodKey) -> SubQueue | None:
        """Return a pod's sub-queue: unschedulable first, then active, then backing off."""
        if key in self.unschedulable:
            return _UNSCHEDULABLE
        if key in self.active:
            return _ACTIVE
        return _BACKOFF if self.backs_off(key) else None

    def backs_off(self, key: PodKey) -> bool:
        """Return whether a pod is in one of the backoffQs."""
        return key in self.backoff or key in self.error_backoff

    def leave_waiting(self, key: PodKey) -> None:
        """Remove a pod from the unschedulable pods and the backoffQs."""
        self.unschedulable.remove(key)
        self.backoff.remove(key)
        self.error_backoff.remove(key)

    def remove_backing_off(self, key: PodKey) -> QueuedPodInfo | None:
        """Remove and return a pod in a backoffQ; None if it is in none."""
        return self.backoff.remove(key) or self.error_backoff.remove(key)

    def add_active(self, pod_info: QueuedPodInfo, event: str, now_ns: int) -> SubQueue:
        """Add a pod to activeQ, counted by `event`."""
        self.active.put(pod_info.requeued(event, now_ns, is_active=True))
        self.incoming.add((_ACTIVE, event))
        return _ACTIVE

    def add_backoff(self, pod_info: QueuedPodInfo, event: str, now_ns: int) -> SubQueue:
        """Add a pod that plugins refused to backoffQ, counted by `event`."""
        self.backoff.put(pod_info.requeued(event, now_ns, is_active=False))
        self.incoming.add((_BACKOFF, event))
        return _BACKOFF

    def add_error_backoff(self, pod_info: QueuedPodInfo, event: str, now_ns: int) -> SubQueue:
        """Add a pod that failed with an error to the error backoffQ, counted by `event`."""
        self.error_backoff.put(pod_info.requeued(event, now_ns, is_active=False))
        self.incoming.add((_BACKOFF, event))
        return _ERROR_BACKOFF

    def add_unschedulable(self, pod_info: QueuedPodInfo, event: str) -> SubQueue:
        """Add a pod to the unschedulable pods, counted by `event`."""
        self.unschedulable.put(pod_info._replace(requeue=None) if pod_info.requeue else pod_info)
        self.incoming.add((_UNSCHEDULABLE, event))
        return _UNSCHEDULABLE

    def latest(self, pod: PodRef) -> QueuedPod | None:
        """Return a pod's latest version; a copy among the unschedulable pods is the older one."""
        for queue in (self.active, self.backoff, self.error_backoff, self.unschedulable):
            pod_info = queue.get(pod.key)
            if pod_info is not None and pod_info.pod.uid == pod.uid:
                return pod_info.pod
        return None

    def set_gates(self, pod: PodRef, gates: tuple[str, ...]) -> None:
        """Set a pod's gates in every sub-queue that it is in."""
        for heap in (self.active, self.backoff, self.error_backoff):
            pod_info = heap.get(pod.key)
            if pod_info is not None and pod_info.pod.uid == pod.uid:
                heap.put(pod_info.with_pod(pod_info.pod._replace(gates=gates)))
        pod_info = self.unschedulable.get(pod.key)
        if pod_info is not None and pod_info.pod.uid == pod.uid:
            self.unschedulable.replace(pod_info.with_pod(pod_info.pod._replace(gates=gates)))

    def first(self, queue: SubQueue, count: int) -> list[QueuedPodInfo]:
        """Return the first `count` pods of `queue`, in its own order."""
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
        """Return the number of pods in each sub-queue."""
        gated = self.unschedulable.gated
        return {
            SubQueue.ACTIVE: len(self.active),
            SubQueue.BACKOFF: len(self.backoff),
            SubQueue.ERROR_BACKOFF: len(self.error_backoff),
            SubQueue.UNSCHEDULABLE: len(self.unschedulable) - gated,
            SubQueue.GATED: gated,
        }

    def pods(self) -> tuple[QueuedPod, ...]:
        """Return all pods: active in pop order, backing off by expiry, unschedulable."""
        pod_infos = (
            *self.active.pod_infos(),
            *self.backoff.pod_infos(),
            *self.error_backoff.pod_infos(),
            *self.unschedulable.pod_infos(),
        )
        return tuple(pod_info.pod for pod_info in pod_infos)
