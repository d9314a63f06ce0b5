"""The scheduling queue: which pending pod is tried next, and which wait for what.

A pod is active, backs off, is unschedulable, or is in flight between a pop and the
outcome of its scheduling cycle. Two counters settle the race between a cycle and the
events of the cluster: a pod whose cycle was not after the last move request backs off
instead of waiting for an event that has already come.

Two rules hold here. Every operation carries its time, which never goes back; nothing is
flushed but by the two flush operations. And each sub-queue has one entry a pod at most,
while one pod may stand in two of them, or in flight as well, where upstream lets it: an
update of a pod in flight queues a second copy.

Source: kubernetes v1.20 (and v1.16) internal/queue/scheduling_queue.go, PriorityQueue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from services.queue.core import incoming
from services.queue.core.backoff import BackoffLimits
from services.queue.core.entry import Entry, Failure, PopId, Popped
from services.queue.core.incoming import SubQueue
from services.queue.core.mode import V1_20, QueueMode
from services.queue.core.nominator import Nominator
from services.queue.core.outcome import (
    AlreadyPresent,
    Closed,
    Done,
    NotInFlight,
    NotNext,
    Pop,
    Requeued,
    WouldBlock,
)
from services.queue.core.pod import AssignedPod, PodRef, QueuedPod
from services.queue.core.state import BackingOff, QueueState
from services.queue.core.sub_queues import SubQueues
from services.queue.core.ticks import FlushTicks

_NO_MOVE_YET = -1
_ANY_FAILURE = Failure()
_REQUEUED = {queue: Requeued(queue=queue) for queue in SubQueue}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """What a session chooses for its queue.

    A leftover flush moves pods that have been unschedulable for longer than
    `max_unschedulable_ns`; None is the mode's own.
    """

    mode: QueueMode = V1_20
    backoff: BackoffLimits = field(default_factory=BackoffLimits)
    max_unschedulable_ns: int | None = None

    @property
    def leftover_after_ns(self) -> int:
        """How long a pod may stay unschedulable, the mode's default filled in."""
        chosen_ns = self.max_unschedulable_ns
        return self.mode.max_unschedulable_ns if chosen_ns is None else chosen_ns


class SchedulingQueue:
    """The sub-queues, the nominator and the pops in flight as one."""

    __slots__ = (
        "_closed",
        "_flushes",
        "_in_flight",
        "_mode",
        "_move_request_cycle",
        "_nominator",
        "_now_ns",
        "_policy",
        "_queues",
        "_scheduling_cycle",
        "_sequence",
    )

    def __init__(self, config: QueueConfig) -> None:
        self._mode = config.mode
        self._policy = config.mode.backoff(config.backoff)
        self._queues = SubQueues(self._policy)
        self._nominator = Nominator()
        self._in_flight: dict[int, Popped] = {}
        self._flushes = FlushTicks(max_unschedulable_ns=config.leftover_after_ns)
        self._now_ns = 0
        self._scheduling_cycle = 0
        self._move_request_cycle = _NO_MOVE_YET
        self._sequence = 0
        self._closed = False

    @classmethod
    def restore(cls, config: QueueConfig, state: QueueState) -> SchedulingQueue:
        """Return a queue that goes on from `state`, taken under the same configuration."""
        assert state.mode == config.mode.name
        queue = cls(config)
        queue._policy.restore(state.name_backoffs)
        for entry in state.active:
            queue._queues.active.put(entry)
        for backing_off in state.backoff:
            queue._queues.backoff.put(backing_off.entry)
        for entry in state.unschedulable:
            queue._queues.unschedulable.put(entry)
        queue._nominator.restore(state.nominations)
        queue._in_flight = {popped.cycle: popped for popped in state.in_flight}
        queue._flushes.backoff_ns = state.flushed_backoff_ns
        queue._flushes.leftover_ns = state.flushed_leftover_ns
        queue._now_ns = state.now_ns
        queue._scheduling_cycle = state.scheduling_cycle
        queue._move_request_cycle = state.move_request_cycle
        queue._sequence = state.sequence
        queue._closed = state.closed
        return queue

    # Pods come, change and go.

    def add(self, pod: QueuedPod, *, now_ns: int) -> None:
        """Make a new pod active, in the place of whatever the queue holds of its name."""
        self._advance(now_ns)
        key = pod.key
        self._queues.activate(self._new_entry(pod, now_ns), incoming.POD_ADD)
        self._queues.unschedulable.remove(key)
        self._queues.backoff.remove(key)
        self._nominator.follow_status(pod)

    def update(self, old: QueuedPod | None, new: QueuedPod, *, now_ns: int) -> SubQueue:
        """Take over a pod's new version and return where it stands now.

        Any update of a pod that backs off makes it active, and so does a changed digest of
        an unschedulable one; neither waits for the end of its backoff. A pod that is in no
        sub-queue becomes active: also one in flight, as a second copy. With `old` None,
        activeQ and backoffQ are not searched, and an unschedulable pod counts as changed.
        """
        self._advance(now_ns)
        assert old is None or old.key == new.key
        if old is not None:
            entry = self._queues.active.get(new.key)
            if entry is not None:
                self._nominator.follow_update(old, new)
                self._queues.active.put(entry.with_pod(new))
                return SubQueue.ACTIVE
            entry = self._queues.backoff.remove(new.key)
            if entry is not None:
                self._nominator.follow_update(old, new)
                return self._queues.activate(entry.with_pod(new), incoming.POD_UPDATE)
        entry = self._queues.unschedulable.get(new.key)
        if entry is not None:
            return self._update_unschedulable(entry.with_pod(new), old)
        self._nominator.follow_status(new)
        return self._queues.activate(self._new_entry(new, now_ns), incoming.POD_UPDATE)

    def _update_unschedulable(self, entry: Entry, old: QueuedPod | None) -> SubQueue:
        new = entry.pod
        if old is None:
            self._nominator.follow_status(new)
        else:
            self._nominator.follow_update(old, new)
        if old is not None and old.digest == new.digest:
            self._queues.unschedulable.replace(entry)
            return SubQueue.UNSCHEDULABLE
        self._policy.forget(new.key)
        self._queues.unschedulable.remove(new.key)
        return self._queues.activate(entry, incoming.POD_UPDATE)

    def delete(self, pod: PodRef, *, now_ns: int) -> None:
        """Drop the pod's nomination and its entry; its pops in flight stay.

        The other sub-queues are looked at, and a backoff by name is dropped, only if the
        pod is not active.
        """
        self._advance(now_ns)
        self._nominator.remove(pod.uid)
        if self._queues.active.remove(pod.key) is None:
            self._policy.forget(pod.key)
            self._queues.backoff.remove(pod.key)
            self._queues.unschedulable.remove(pod.key)

    # Scheduling cycles begin and end.

    def pop(self, *, now_ns: int) -> Pop:
        """Hand out the next pod and begin its cycle; a closed queue drains before it says so."""
        self._advance(now_ns)
        entry = self._queues.active.pop()
        if entry is None:
            return Closed() if self._closed else WouldBlock()
        return self._begin_cycle(entry)

    def heads(self, count: int) -> list[Popped]:
        """Return what the next `count` pops would, without popping; fewer if there are fewer."""
        first_cycle = self._scheduling_cycle + 1
        return [
            self._as_popped(entry, cycle)
            for cycle, entry in enumerate(self._queues.active.first(count), first_cycle)
        ]

    def commit_pop(self, pop_id: PopId, *, now_ns: int) -> Popped | NotNext:
        """Pop, provided that Pop would return exactly `pop_id` now; else change nothing."""
        entry = self._queues.active.peek()
        if entry is None:
            return NotNext(next=Closed() if self._closed else WouldBlock())
        if pop_id != (entry.pod.uid, self._scheduling_cycle + 1):
            return NotNext(next=self._as_popped(entry, self._scheduling_cycle + 1))
        self._advance(now_ns)
        self._queues.active.pop()
        return self._begin_cycle(entry)

    def add_unschedulable(
        self,
        pop_id: PopId,
        *,
        now_ns: int,
        failure: Failure = _ANY_FAILURE,
        cycle: int | None = None,
        pod: QueuedPod | None = None,
    ) -> Requeued | AlreadyPresent | NotInFlight:
        """Take back a pod whose cycle failed, and end the pop.

        It backs off if a move was requested in or after `cycle` (the pop's own unless
        given), else it becomes unschedulable. `pod` is its version by now, the popped one
        unless given. Its nomination becomes what the status says. A pod that stands in a
        sub-queue already is refused, and this copy of it is gone.

        Source: kubernetes v1.20 internal/queue/scheduling_queue.go,
        AddUnschedulableIfNotPresent.
        """
        self._advance(now_ns)
        popped = self._end(pop_id)
        if popped is None:
            return NotInFlight()
        pod = popped.pod if pod is None else pod
        key = pod.key
        present = self._queues.where(key)
        if present is not None:
            return AlreadyPresent(queue=present, text=self._mode.present.text(present, pod))
        self._policy.record_failure(key, now_ns)
        self._nominator.follow_status(pod)
        entry = Entry(
            pod=pod,
            timestamp_ns=now_ns,
            initial_attempt_ns=popped.initial_attempt_ns,
            attempts=popped.attempts,
            sequence=self._next_sequence(),
            failure=failure,
        )
        moved_since = self._move_request_cycle >= (popped.cycle if cycle is None else cycle)
        requeue = self._queues.back_off if moved_since else self._queues.park
        return _REQUEUED[requeue(entry, incoming.SCHEDULE_ATTEMPT_FAILURE)]

    def done(self, pop_id: PopId) -> Done:
        """End a pop whose pod needs no further cycle. Its nomination stays."""
        return Done.NOT_IN_FLIGHT if self._end(pop_id) is None else Done.APPLIED

    # Time passes and the cluster changes.

    def flush_backoff(self, *, now_ns: int) -> int:
        """Make active the pods whose backoff ends at `now_ns` or before; return how many."""
        self._advance(now_ns)
        self._flushes.backoff_ns = now_ns
        moved = 0
        while (entry := self._queues.backoff.pop_due(now_ns)) is not None:
            self._queues.activate(entry, incoming.BACKOFF_COMPLETE)
            moved += 1
        return moved

    def flush_leftover(self, *, now_ns: int) -> int:
        """Move the pods that have been unschedulable for too long; return how many.

        A move request is noted only if there are any.
        """
        self._advance(now_ns)
        self._flushes.leftover_ns = now_ns
        before_ns = now_ns - self._flushes.max_unschedulable_ns
        leftover = self._queues.unschedulable.take_older(before_ns)
        if not leftover:
            return 0
        return self._move(leftover, incoming.UNSCHEDULABLE_TIMEOUT, now_ns)

    def move_all(
        self,
        event: str,
        *,
        now_ns: int,
        priority_at_most: int | None = None,
        all_but_uid: str = "",
    ) -> int:
        """Move the unschedulable pods because of `event`; return how many.

        All of them, or those of at most a priority, or all but one pod. A move request is
        noted even if it moves none.
        """
        self._advance(now_ns)
        unschedulable = self._queues.unschedulable
        if priority_at_most is None and not all_but_uid:
            return self._move(unschedulable.take_all(), event, now_ns)
        wanted = unschedulable.take_some(priority_at_most=priority_at_most, all_but_uid=all_but_uid)
        return self._move(wanted, event, now_ns)

    def assigned_add(self, assigned: AssignedPod, *, now_ns: int) -> int:
        """Move the pods whose required affinity the new assigned pod matches; return how many."""
        self._advance(now_ns)
        awaiting = self._queues.unschedulable.take_awaiting(assigned)
        return self._move(awaiting, incoming.ASSIGNED_POD_ADD, now_ns)

    def assigned_update(self, assigned: AssignedPod, *, now_ns: int) -> int:
        """Do what `assigned_add` does, for an assigned pod that has changed."""
        self._advance(now_ns)
        awaiting = self._queues.unschedulable.take_awaiting(assigned)
        return self._move(awaiting, incoming.ASSIGNED_POD_UPDATE, now_ns)

    def next_wakeup_ns(self, now_ns: int) -> int | None:
        """Return the first tick from `now_ns` on at which a flush would move something.

        None if no flush would move anything, or the queue is closed. A tick whose flush
        has been done does not come again.
        """
        if self._closed:
            return None
        oldest = self._queues.unschedulable.oldest()
        return self._flushes.next_ns(
            now_ns,
            expiry_ns=self._queues.backoff.next_expiry_ns(),
            oldest_unschedulable_ns=None if oldest is None else oldest.timestamp_ns,
        )

    def close(self) -> None:
        """Let pops say that the queue is closed once it is drained."""
        self._closed = True

    # Nominations.

    def nominate(self, pod: PodRef, node_name: str) -> None:
        """Nominate the pod to a node, at the end of that node's pods, wherever the pod is."""
        self._nominator.nominate(pod, node_name)

    def nominate_delete(self, uid: str) -> None:
        """Drop the pod's nomination, if it has one."""
        self._nominator.remove(uid)

    def nominated_for(self, node_name: str) -> tuple[PodRef, ...]:
        """Return the pods nominated to the node, in the order of their nomination."""
        return self._nominator.for_node(node_name)

    # What can be seen.

    @property
    def now_ns(self) -> int:
        """The time of the last operation, before which no other may be."""
        return self._now_ns

    def pending(self) -> tuple[QueuedPod, ...]:
        """Return the pods of every sub-queue: active, backing off, unschedulable."""
        return self._queues.pods()

    def sizes(self) -> dict[SubQueue, int]:
        """Return how many entries each sub-queue has."""
        return self._queues.sizes()

    def first(self, queue: SubQueue, count: int) -> list[Entry]:
        """Return the first `count` entries of a sub-queue, in its own order."""
        return self._queues.first(queue, count)

    @property
    def in_flight(self) -> Mapping[int, Popped]:
        """The pops without an outcome, by cycle."""
        return self._in_flight

    def take_incoming(self) -> dict[tuple[SubQueue, str], int]:
        """Return how many pods came into each sub-queue by which event since the last call."""
        return self._queues.incoming.take()

    def snapshot(self) -> QueueState:
        """Return the whole state: what `restore` goes on from, and what Dump shows."""
        return QueueState(
            mode=self._mode.name,
            active=self._queues.active.entries(),
            backoff=tuple(
                BackingOff(entry=entry, expiry_ns=self._policy.expiry_ns(entry))
                for entry in self._queues.backoff.entries()
            ),
            unschedulable=self._queues.unschedulable.entries(),
            in_flight=tuple(self._in_flight.values()),
            nominations=self._nominator.nominations(),
            name_backoffs=self._policy.state(),
            now_ns=self._now_ns,
            scheduling_cycle=self._scheduling_cycle,
            move_request_cycle=self._move_request_cycle,
            sequence=self._sequence,
            flushed_backoff_ns=self._flushes.backoff_ns,
            flushed_leftover_ns=self._flushes.leftover_ns,
            closed=self._closed,
        )

    def _advance(self, now_ns: int) -> None:
        assert now_ns >= self._now_ns, "time goes back"
        self._now_ns = now_ns

    def _move(self, entries: Iterable[Entry], event: str, now_ns: int) -> int:
        moved = self._queues.release(entries, event, now_ns)
        self._move_request_cycle = self._scheduling_cycle
        return moved

    def _begin_cycle(self, entry: Entry) -> Popped:
        self._scheduling_cycle += 1
        popped = self._as_popped(entry, self._scheduling_cycle)
        assert popped.cycle not in self._in_flight
        self._in_flight[popped.cycle] = popped
        return popped

    def _end(self, pop_id: PopId) -> Popped | None:
        """Take the pop out of those in flight; a cycle has one pop, of one pod."""
        popped = self._in_flight.get(pop_id.cycle)
        if popped is None or popped.pod.uid != pop_id.uid:
            return None
        return self._in_flight.pop(pop_id.cycle)

    def _new_entry(self, pod: QueuedPod, now_ns: int) -> Entry:
        return Entry(pod, now_ns, now_ns, 0, self._next_sequence())

    def _next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def _as_popped(self, entry: Entry, cycle: int) -> Popped:
        pod, timestamp_ns, initial_attempt_ns, attempts, _sequence, _failure = entry
        nominated = self._nominator.node_of(pod.uid)
        return Popped(pod, cycle, attempts + 1, initial_attempt_ns, timestamp_ns, nominated)
