"""The rules of v1.16 and v1.20, which differ in their backoff only.

Two counters settle the race between a cycle and the events of the cluster: a pod whose cycle
was not after the last move request backs off instead of waiting for an event that has already
come. Every event moves every unschedulable pod.

Source: kubernetes v1.20 (and v1.16) internal/queue/scheduling_queue.go, PriorityQueue.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from services.queue.core import results
from services.queue.core.cluster_event import Happening
from services.queue.core.queued_pod import AssignedPod, Entry, Failure, PodRef, QueuedPod
from services.queue.core.results import AlreadyPresent, Requeued, SubQueue
from services.queue.core.rules.rules import MoveFilter, QueueRules

_REQUEUED = {queue: Requeued(queue=queue) for queue in SubQueue}


class RulesV120(QueueRules):
    """activeQ, podBackoffQ, unschedulableQ and moveRequestCycle."""

    __slots__ = ()

    added_by: ClassVar[str] = results.POD_ADD

    def add(self, pod: QueuedPod, /) -> None:
        """Make a new pod active, in the place of whatever the queue holds of its name."""
        key = pod.key
        entry = self._parts.new_entry(pod, self._parts.now_ns)
        self._queues.activate(entry, self.added_by)
        self._queues.unschedulable.remove(key)
        self._queues.backoff.remove(key)
        self._parts.nominator.follow_status(pod)

    def update(self, old: QueuedPod | None, new: QueuedPod, /) -> SubQueue:
        """Take over a pod's new version and return where it stands now.

        Any update of a pod that backs off makes it active, and so does a changed digest of
        an unschedulable one; neither waits for the end of its backoff. A pod that is in no
        sub-queue becomes active: also one in flight, as a second copy. With `old` None,
        activeQ and backoffQ are not searched, and an unschedulable pod counts as changed.
        """
        nominator = self._parts.nominator
        if old is not None:
            entry = self._queues.active.get(new.key)
            if entry is not None:
                nominator.follow_update(old, new)
                self._queues.active.put(entry.with_pod(new))
                return SubQueue.ACTIVE
            entry = self._queues.backoff.remove(new.key)
            if entry is not None:
                nominator.follow_update(old, new)
                return self._queues.activate(entry.with_pod(new), results.POD_UPDATE)
        entry = self._queues.unschedulable.get(new.key)
        if entry is not None:
            return self._update_unschedulable(entry.with_pod(new), old)
        nominator.follow_status(new)
        entry = self._parts.new_entry(new, self._parts.now_ns)
        return self._queues.activate(entry, results.POD_UPDATE)

    def _update_unschedulable(self, entry: Entry, old: QueuedPod | None) -> SubQueue:
        new = entry.pod
        self._parts.nominator.follow_update(old, new)
        if old is not None and old.digest == new.digest:
            self._queues.unschedulable.replace(entry)
            return SubQueue.UNSCHEDULABLE
        self._parts.policy.forget(new.key)
        self._queues.unschedulable.remove(new.key)
        return self._queues.activate(entry, results.POD_UPDATE)

    def delete(self, pod: PodRef, /) -> None:
        """Drop the pod's entry.

        The other sub-queues are looked at, and a backoff by name is dropped, only if the
        pod is not active.
        """
        if self._queues.active.remove(pod.key) is None:
            self._parts.policy.forget(pod.key)
            self._queues.backoff.remove(pod.key)
            self._queues.unschedulable.remove(pod.key)

    def upcoming(self, count: int, /) -> list[Entry]:
        """Return the first active entries."""
        return self._queues.active.first(count)

    def next(self) -> Entry | None:
        """Return the first active entry."""
        return self._queues.active.peek()

    def take(self) -> Entry | None:
        """Take out the first active entry."""
        return self._queues.active.pop()

    def give_back(
        self, stay: Entry, pod: QueuedPod, failure: Failure, cycle: int, /
    ) -> Requeued | AlreadyPresent:
        """Take back a pod whose cycle failed.

        It backs off if a move was requested in or after `cycle`, else it becomes
        unschedulable. Its nomination becomes what the status says. A pod that stands in a
        sub-queue already is refused, and this copy of it is gone.

        Source: kubernetes v1.20 internal/queue/scheduling_queue.go,
        AddUnschedulableIfNotPresent.
        """
        key, parts = pod.key, self._parts
        present = self._queues.where(key)
        if present is not None:
            return AlreadyPresent(queue=present, text=self._present.text(present, pod))
        parts.policy.record_failure(key, parts.now_ns)
        parts.nominator.follow_status(pod)
        entry = Entry(
            pod=pod,
            timestamp_ns=parts.now_ns,
            initial_attempt_ns=stay.initial_attempt_ns,
            attempts=stay.attempts + 1,
            sequence=parts.next_sequence(),
            failure=failure,
        )
        moved_since = parts.move_request_cycle >= cycle
        requeue = self._queues.back_off if moved_since else self._queues.park
        return _REQUEUED[requeue(entry, results.SCHEDULE_ATTEMPT_FAILURE)]

    def put_back(self, entry: Entry, /) -> None:
        """Make a stay active in its old place."""
        self._queues.activate(entry, results.POP_UNDONE)

    def move(self, happening: Happening, wanted: MoveFilter, /) -> int:
        """Move the unschedulable pods; a move request is noted even if there are none."""
        unschedulable = self._queues.unschedulable
        if wanted.passes_all:
            return self._release(unschedulable.take_all(), happening.event.label)
        taken = unschedulable.take_some(
            priority_at_most=wanted.priority_at_most, all_but_uid=wanted.all_but_uid
        )
        return self._release(taken, happening.event.label)

    def move_awaiting(self, assigned: AssignedPod, happening: Happening, /) -> int:
        """Move the pods whose required affinity the assigned pod matches."""
        awaiting = self._queues.unschedulable.take_awaiting(assigned)
        return self._release(awaiting, happening.event.label)

    def activate(self, pods: Iterable[PodRef], /) -> int:
        """Refuse: these versions have no such operation, and no edge asks for it."""
        raise NotImplementedError("the mode has no Activate")

    def flush_backoff(self) -> int:
        """Make active the pods whose backoff ends now or before."""
        moved = 0
        while (entry := self._queues.backoff.pop_due(self._parts.now_ns)) is not None:
            self._queues.activate(entry, results.BACKOFF_COMPLETE)
            moved += 1
        return moved

    def flush_leftover(self, before_ns: int, /) -> int:
        """Move what has stayed too long; a move request is noted only if there is any."""
        leftover = self._queues.unschedulable.take_older(before_ns)
        if not leftover:
            return 0
        return self._release(leftover, results.UNSCHEDULABLE_TIMEOUT)

    def _release(self, entries: Iterable[Entry], event: str) -> int:
        """Make active, or let back off, what was taken from the unschedulable pods.

        Source: kubernetes v1.20 internal/queue/scheduling_queue.go,
        movePodsToActiveOrBackoffQueue.
        """
        released = 0
        for entry in entries:
            released += 1
            if self._parts.policy.backs_off(entry, self._parts.now_ns):
                self._queues.back_off(entry, event)
            else:
                self._queues.activate(entry, event)
        self._parts.note_move()
        return released
