"""The sub-queues as one, and what comes into each.

An entry stands in one of them. One pod may have an entry in two, as upstream lets it.

Source: kubernetes v1.20 internal/queue/scheduling_queue.go, PriorityQueue; v1.34
pkg/scheduler/backend/queue/backoff_queue.go, backoffQueue, which is two queues as one.
"""

from __future__ import annotations

from services.queue.core.active_queue import ActiveQueue
from services.queue.core.backoff import BackoffPolicy
from services.queue.core.backoff_queue import BackoffQueue
from services.queue.core.entry import Entry
from services.queue.core.incoming import IncomingPods, SubQueue
from services.queue.core.pod import PodKey, PodRef, QueuedPod
from services.queue.core.unschedulable import UnschedulablePods

# Members by name: Python 3.11 looks them up in their class by calling a function.
_ACTIVE, _BACKOFF, _ERROR_BACKOFF = SubQueue.ACTIVE, SubQueue.BACKOFF, SubQueue.ERROR_BACKOFF
_UNSCHEDULABLE = SubQueue.UNSCHEDULABLE


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
        self.incoming = IncomingPods()

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
        self.incoming.record(_ACTIVE, event)
        return _ACTIVE

    def back_off(self, entry: Entry, event: str) -> SubQueue:
        """Let `entry` back off because of `event`."""
        self.backoff.put(entry)
        self.incoming.record(_BACKOFF, event)
        return _BACKOFF

    def back_off_error(self, entry: Entry, event: str) -> SubQueue:
        """Let `entry` back off after an error because of `event`."""
        self.error_backoff.put(entry)
        self.incoming.record(_BACKOFF, event)
        return _ERROR_BACKOFF

    def park(self, entry: Entry, event: str) -> SubQueue:
        """Make `entry` unschedulable because of `event`."""
        self.unschedulable.put(entry)
        self.incoming.record(_UNSCHEDULABLE, event)
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
