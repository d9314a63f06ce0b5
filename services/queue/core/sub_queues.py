"""The three sub-queues as one, and the moves between them.

An entry stands in one of them. One pod may have an entry in two, as upstream lets it.

Source: kubernetes v1.20 internal/queue/scheduling_queue.go, movePodsToActiveOrBackoffQueue.
"""

from __future__ import annotations

from collections.abc import Iterable

from services.queue.core.active_queue import ActiveQueue
from services.queue.core.backoff import BackoffPolicy
from services.queue.core.backoff_queue import BackoffQueue
from services.queue.core.entry import Entry
from services.queue.core.incoming import IncomingPods, SubQueue
from services.queue.core.pod import PodKey, QueuedPod
from services.queue.core.unschedulable import UnschedulablePods


class SubQueues:
    """activeQ, podBackoffQ and the unschedulable pods; what comes in is counted by event."""

    __slots__ = ("active", "backoff", "incoming", "unschedulable")

    def __init__(self, policy: BackoffPolicy) -> None:
        self.active = ActiveQueue()
        self.backoff = BackoffQueue(policy)
        self.unschedulable = UnschedulablePods()
        self.incoming = IncomingPods()

    def where(self, key: PodKey) -> SubQueue | None:
        """Return where a pod stands: unschedulable first, then active, then backing off."""
        if key in self.unschedulable:
            return SubQueue.UNSCHEDULABLE
        if key in self.active:
            return SubQueue.ACTIVE
        return SubQueue.BACKOFF if key in self.backoff else None

    def activate(self, entry: Entry, event: str) -> SubQueue:
        """Make `entry` active because of `event`."""
        self.active.put(entry)
        self.incoming.record(SubQueue.ACTIVE, event)
        return SubQueue.ACTIVE

    def back_off(self, entry: Entry, event: str) -> SubQueue:
        """Let `entry` back off because of `event`."""
        self.backoff.put(entry)
        self.incoming.record(SubQueue.BACKOFF, event)
        return SubQueue.BACKOFF

    def park(self, entry: Entry, event: str) -> SubQueue:
        """Make `entry` unschedulable because of `event`."""
        self.unschedulable.put(entry)
        self.incoming.record(SubQueue.UNSCHEDULABLE, event)
        return SubQueue.UNSCHEDULABLE

    def release(self, entries: Iterable[Entry], event: str, now_ns: int) -> int:
        """Make active, or let back off, what was taken from the unschedulable pods."""
        released = 0
        for entry in entries:
            released += 1
            if self.backoff.backs_off(entry, now_ns):
                self.back_off(entry, event)
            else:
                self.activate(entry, event)
        return released

    def first(self, queue: SubQueue, count: int) -> list[Entry]:
        """Return the first `count` entries of `queue`, in its own order."""
        match queue:
            case SubQueue.ACTIVE:
                return self.active.first(count)
            case SubQueue.BACKOFF:
                return self.backoff.first(count)
            case SubQueue.UNSCHEDULABLE:
                return self.unschedulable.first(count)

    def sizes(self) -> dict[SubQueue, int]:
        """Return how many entries each has."""
        return {
            SubQueue.ACTIVE: len(self.active),
            SubQueue.BACKOFF: len(self.backoff),
            SubQueue.UNSCHEDULABLE: len(self.unschedulable),
        }

    def pods(self) -> tuple[QueuedPod, ...]:
        """Return the pods of all: active in pop order, backing off by expiry, unschedulable."""
        entries = (*self.active.entries(), *self.backoff.entries())
        return tuple(entry.pod for entry in (*entries, *self.unschedulable.entries()))
