"""The scheduling queue: which pending pod is tried next, and which wait for what.

A pod is active, backs off, is unschedulable, or is in flight between a pop and the outcome of
its scheduling cycle. Which way it goes differs by version, and the mode's rules say it; here is
what does not differ.

Two rules hold. Every operation carries its time, which never goes back; nothing is flushed but
by the two flush operations. And each sub-queue has one entry a pod at most, while one pod may
stand in two of them, or in flight as well, where upstream lets it.

Source: kubernetes v1.34 pkg/scheduler/backend/queue/scheduling_queue.go, PriorityQueue; v1.20
and v1.16 internal/queue/scheduling_queue.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from services.kube.selector import LabelSelector
from services.queue.core.backoff import FlushTicks
from services.queue.core.cluster_event import ASSIGNED_POD_ADD, ASSIGNED_POD_UPDATE, Happening
from services.queue.core.queued_pod import (
    AssignedPod,
    Entry,
    FailedPod,
    Failure,
    PodRef,
    PopId,
    Popped,
    QueuedPod,
)
from services.queue.core.registrations import QueueConfig
from services.queue.core.results import (
    AlreadyPresent,
    Done,
    NotInFlight,
    NotNext,
    Pop,
    Requeued,
    SubQueue,
    WouldBlock,
)
from services.queue.core.rules.mode import MODES
from services.queue.core.rules.rules import BackingOff, MoveFilter, QueueParts, QueueState
from services.queue.core.sub_queues import BackoffQueue

_ANY_FAILURE = Failure()
_ALL = MoveFilter()
_ASSIGNED_ADD = Happening(event=ASSIGNED_POD_ADD)
_ASSIGNED_UPDATE = Happening(event=ASSIGNED_POD_UPDATE)


class SchedulingQueue:
    """The parts of a queue, under the rules of its mode."""

    __slots__ = ("_flushes", "_mode", "_parts", "_rules")

    def __init__(self, config: QueueConfig) -> None:
        self._mode = MODES[config.mode]
        self._parts = QueueParts(
            self._mode.backoff(config),
            ranked=self._mode.ranked(config),
            lease_ns=config.lease_ns,
        )
        self._rules = self._mode.compose(self._parts, config)
        limit_ns = config.max_unschedulable_ns
        if limit_ns is None:
            limit_ns = self._mode.max_unschedulable_ns
        self._flushes = FlushTicks(max_unschedulable_ns=limit_ns)

    @classmethod
    def restore(cls, config: QueueConfig, state: QueueState) -> SchedulingQueue:
        """Return a queue that goes on from `state`, taken under the same configuration."""
        assert state.mode == config.mode
        queue = cls(config)
        parts, queues = queue._parts, queue._parts.queues
        parts.policy.restore(state.name_backoffs)
        for entry in state.active:
            queues.active.put(entry)
        for backing_off in state.backoff:
            queues.backoff.put(backing_off.entry)
        for backing_off in state.error_backoff:
            queues.error_backoff.put(backing_off.entry)
        for entry in state.unschedulable:
            queues.unschedulable.put(entry)
        parts.nominator.restore(state.nominations)
        parts.pops.restore(state.in_flight)
        queue._rules.restore(state.record)
        queue._flushes.backoff_ns = state.flushed_backoff_ns
        queue._flushes.leftover_ns = state.flushed_leftover_ns
        parts.now_ns = state.now_ns
        parts.scheduling_cycle = state.scheduling_cycle
        parts.move_request_cycle = state.move_request_cycle
        parts.sequence = state.sequence
        parts.closed = state.closed
        return queue

    # Pods come, change and go.

    def add(self, pod: QueuedPod, *, now_ns: int) -> None:
        """Take in a new pod; a pod that is queued already is accepted."""
        self._parts.advance(now_ns)
        self._rules.add(pod)

    def update(self, old: QueuedPod | None, new: QueuedPod, *, now_ns: int) -> SubQueue | None:
        """Take over a pod's new version; return where it stands, None while in flight.

        `old` is None where the version before is not known.
        """
        self._parts.advance(now_ns)
        assert old is None or old.key == new.key
        return self._rules.update(old, new)

    def delete(self, pod: PodRef, *, now_ns: int) -> None:
        """Drop the pod's nomination and its entry; its pops in flight stay."""
        self._parts.advance(now_ns)
        self._parts.nominator.remove(pod.uid)
        self._rules.delete(pod)

    def hold(self, pod: PodRef, gates: tuple[str, ...], *, now_ns: int) -> None:
        """Change which PreEnqueue plugins hold a pod, wherever it is; none moves by it.

        What is asked here is what PreEnqueue would say the next time that it is asked.
        """
        self._parts.advance(now_ns)
        self._parts.queues.hold(pod, gates)
        self._parts.pops.hold(pod.uid, gates)

    # Scheduling cycles begin and end.

    def pop(self, *, now_ns: int, owner: str = "") -> Pop:
        """Hand out the next pod and begin its cycle; a closed queue drains before it says so."""
        self._parts.advance(now_ns)
        entry = self._rules.take()
        if entry is None:
            return self._nothing()
        return self._begin_cycle(entry, owner)

    def heads(self, count: int) -> list[Popped]:
        """Return what the next `count` pops would, without popping; fewer if there are fewer."""
        first_cycle = self._parts.scheduling_cycle + 1
        return [
            self._parts.as_popped(entry, cycle)
            for cycle, entry in enumerate(self._rules.upcoming(count), first_cycle)
        ]

    def commit_pop(self, pop_id: PopId, *, now_ns: int, owner: str = "") -> Popped | NotNext:
        """Pop, provided that Pop would return exactly `pop_id` now; else change nothing."""
        entry = self._take_next(pop_id.uid, pop_id.cycle, now_ns)
        return self._not_next() if entry is None else self._begin_cycle(entry, owner)

    def commit_unschedulable(
        self, failed: Sequence[FailedPod], *, first_cycle: int, now_ns: int
    ) -> int | AlreadyPresent | NotNext:
        """Do for each pod in order what `commit_pop` and `add_unschedulable` do; return how many.

        The first pop is that of `first_cycle`. Ends before the first pod that Pop would not return.
        The first pod that stands in a sub-queue already is what is returned of it.
        """
        rules = self._rules
        refused: AlreadyPresent | None = None
        for cycle, (uid, failure, selector) in enumerate(failed, first_cycle):
            stay = self._take_next(uid, cycle, now_ns)
            if stay is None:
                return self._not_next(cycle - first_cycle)
            self._parts.scheduling_cycle = cycle
            rules.begun(uid)
            pod = stay.pod if selector is None else stay.pod._replace(spread_selector=selector)
            outcome = rules.give_back(stay, pod, failure, cycle)
            if refused is None and type(outcome) is AlreadyPresent:
                refused = outcome
        return len(failed) if refused is None else refused

    def pass_through(self, pods: int, *, first_cycle: int, now_ns: int) -> NotNext | None:
        """Count pods that were added, popped, done and deleted while nothing else was active.

        Their pops began with `first_cycle`, which must be next.
        """
        parts = self._parts
        if first_cycle != parts.scheduling_cycle + 1 or self._rules.next() is not None:
            return self._not_next()
        parts.advance(now_ns)
        parts.scheduling_cycle += pods
        parts.queues.incoming.record((SubQueue.ACTIVE, self._rules.added_by), pods)
        parts.finished.record(1, pods)
        return None

    @property
    def passes_through(self) -> bool:
        """Tell whether nothing stays of a pod that has gone: `pass_through` relies on it."""
        return not self._parts.policy.goes_by_name

    def _take_next(self, uid: str, cycle: int, now_ns: int) -> Entry | None:
        """Take out the next pod where it is this one and begins this cycle; else change nothing."""
        entry = self._rules.next()
        if entry is None or entry.pod.uid != uid or cycle != self._parts.scheduling_cycle + 1:
            return None
        self._parts.advance(now_ns)
        taken = self._rules.take()
        assert taken is entry
        return taken

    def _not_next(self, committed: int = 0) -> NotNext:
        heads = self.heads(1)
        return NotNext(next=heads[0] if heads else self._nothing(), committed=committed)

    def _nothing(self) -> Pop:
        return self._mode.closed if self._parts.closed else WouldBlock()

    def _begin_cycle(self, entry: Entry, owner: str) -> Popped:
        parts = self._parts
        parts.scheduling_cycle += 1
        popped = parts.as_popped(entry, parts.scheduling_cycle, owner)
        popped = parts.pops.begin(popped, parts.now_ns)
        self._rules.begun(entry.pod.uid)
        return popped

    def add_unschedulable(
        self,
        pop_id: PopId,
        *,
        now_ns: int,
        failure: Failure = _ANY_FAILURE,
        cycle: int | None = None,
        pod: QueuedPod | None = None,
        gates: tuple[str, ...] = (),
        spread_selector: LabelSelector | None = None,
    ) -> Requeued | AlreadyPresent | NotInFlight:
        """Take back a pod whose cycle failed, and end the pop.

        `pod` is its version by now, the popped one unless given; `gates` hold it from now on,
        where there are any, and `spread_selector` is what default spread constraints counted.
        `cycle` is what the rules that count moves compare, the pop's own unless given. A pod that
        stands in a sub-queue already is refused, and this copy of it is gone.
        """
        self._parts.advance(now_ns)
        popped = self._parts.pops.end(pop_id)
        if popped is None:
            return NotInFlight()
        pod = popped.pod if pod is None else pod
        if gates:
            pod = pod._replace(gates=gates)
        if spread_selector is not None:
            pod = pod._replace(spread_selector=spread_selector)
        cycle = popped.cycle if cycle is None else cycle
        return self._rules.give_back(popped.entry, pod, failure, cycle)

    def done(self, pop_id: PopId) -> Done:
        """End a pop whose pod needs no further cycle. Its nomination stays."""
        popped = self._parts.pops.end(pop_id)
        if popped is None:
            return Done.NOT_IN_FLIGHT
        self._parts.finished.record(popped.attempts)
        self._rules.ended(pop_id.uid)
        return Done.APPLIED

    # Leases.

    def renew_leases(self, owner: str, *, now_ns: int) -> int:
        """Let the owner's pops run for another lease; return how many it has."""
        self._parts.advance(now_ns)
        return self._parts.pops.renew(owner, now_ns)

    def release_owner(self, owner: str, *, now_ns: int) -> int:
        """Give the pops of an owner that has gone back to the queue; return how many."""
        self._parts.advance(now_ns)
        return self._put_back(self._parts.pops.take_of(owner))

    def expire_leases(self, *, now_ns: int) -> int:
        """Give back the pops whose lease has run out; return how many."""
        self._parts.advance(now_ns)
        return self._put_back(self._parts.pops.take_expired(now_ns))

    def _put_back(self, pops: Iterable[Popped]) -> int:
        """Undo pops: each pod is active in its old place, unless it is queued already."""
        count = 0
        for popped in pops:
            self._rules.ended(popped.pod.uid)
            if self._parts.queues.where(popped.entry.key) is None:
                self._rules.put_back(popped.entry)
                count += 1
        return count

    # Time passes and the cluster changes.

    def flush_backoff(self, *, now_ns: int) -> int:
        """Make active the pods whose backoff is over at `now_ns`; return how many."""
        self._parts.advance(now_ns)
        self._flushes.backoff_ns = now_ns
        return self._rules.flush_backoff()

    def flush_leftover(self, *, now_ns: int) -> int:
        """Move the pods that have been unschedulable for too long; return how many."""
        self._parts.advance(now_ns)
        self._flushes.leftover_ns = now_ns
        return self._rules.flush_leftover(now_ns - self._flushes.max_unschedulable_ns)

    def move_all(self, happening: Happening, *, now_ns: int, wanted: MoveFilter = _ALL) -> int:
        """Move the unschedulable pods that `happening` may help; return how many."""
        self._parts.advance(now_ns)
        return self._rules.move(happening, wanted)

    def assigned_add(
        self, assigned: AssignedPod, *, now_ns: int, happening: Happening = _ASSIGNED_ADD
    ) -> int:
        """Move the pods whose required affinity the new assigned pod matches; return how many."""
        self._parts.advance(now_ns)
        return self._rules.move_awaiting(assigned, happening)

    def assigned_update(
        self, assigned: AssignedPod, *, now_ns: int, happening: Happening = _ASSIGNED_UPDATE
    ) -> int:
        """Do what `assigned_add` does, for an assigned pod that has changed."""
        self._parts.advance(now_ns)
        return self._rules.move_awaiting(assigned, happening)

    def activate(self, pods: Iterable[PodRef], *, now_ns: int) -> int:
        """Make waiting pods active at once; return how many. Modes with gates only."""
        self._parts.advance(now_ns)
        return self._rules.activate(pods)

    def next_wakeup_ns(self, now_ns: int) -> int | None:
        """Return the first tick from `now_ns` on at which a flush would move something.

        None if no flush would move anything, or the queue is closed. A tick whose flush
        has been done does not come again.
        """
        if self._parts.closed:
            return None
        queues = self._parts.queues
        oldest = queues.unschedulable.oldest()
        due_ns, error_due_ns = queues.backoff.next_due_ns(), queues.error_backoff.next_due_ns()
        if due_ns is None or (error_due_ns is not None and error_due_ns < due_ns):
            due_ns = error_due_ns
        return self._flushes.next_ns(
            now_ns,
            expiry_ns=due_ns,
            oldest_unschedulable_ns=None if oldest is None else oldest.timestamp_ns,
        )

    def close(self) -> None:
        """Let pops say that the queue is closed once it is drained."""
        self._parts.closed = True
        self._rules.close()

    # Nominations.

    def nominate(self, pod: PodRef, node_name: str) -> None:
        """Nominate the pod to a node, at the end of that node's pods, wherever the pod is.

        "" stands for the node in the pod's status, as the pod is queued, or else in flight. Where
        the status names no node, the pod's nomination ends.
        Source: kubernetes v1.20 internal/queue/scheduling_queue.go, nominatedPodMap.add; v1.34
        backend/queue/nominator.go, addNominatedPodUnlocked, ModeNoop.
        """
        if not node_name:
            latest = self._parts.latest(pod)
            node_name = latest.nominated_node_name if latest is not None else ""
        if node_name:
            self._parts.nominator.nominate(pod, node_name)
        else:
            self._parts.nominator.remove(pod.uid)

    def nominate_delete(self, uid: str) -> None:
        """Drop the pod's nomination, if it has one."""
        self._parts.nominator.remove(uid)

    def nominated_for(self, node_name: str) -> tuple[PodRef, ...]:
        """Return the pods nominated to the node, in the order of their nomination."""
        return self._parts.nominator.for_node(node_name)

    # What can be seen.

    @property
    def now_ns(self) -> int:
        """The time of the last operation, before which no other may be."""
        return self._parts.now_ns

    def pending(self) -> tuple[QueuedPod, ...]:
        """Return the pods of every sub-queue: active, backing off, unschedulable."""
        return self._parts.queues.pods()

    def sizes(self) -> dict[SubQueue, int]:
        """Return how many entries each sub-queue has."""
        return self._parts.queues.sizes()

    def first(self, queue: SubQueue, count: int) -> list[Entry]:
        """Return the first `count` entries of a sub-queue, in its own order."""
        return self._parts.queues.first(queue, count)

    @property
    def in_flight(self) -> Mapping[int, Popped]:
        """The pops without an outcome, by cycle."""
        return self._parts.pops.by_cycle

    def take_incoming(self) -> dict[tuple[SubQueue, str], int]:
        """Return how many pods came into each sub-queue by which event since the last call."""
        return self._parts.queues.incoming.take()

    def take_finished(self) -> dict[int, int]:
        """Return how many pops ended well after how many attempts since the last call."""
        return self._parts.finished.take()

    def snapshot(self) -> QueueState:
        """Return the whole state: what `restore` goes on from, and what Dump shows."""
        parts, queues = self._parts, self._parts.queues
        return QueueState(
            mode=self._mode.name,
            active=queues.active.entries(),
            backoff=self._backing_off(queues.backoff),
            error_backoff=self._backing_off(queues.error_backoff),
            unschedulable=queues.unschedulable.entries(),
            in_flight=tuple(parts.pops.by_cycle.values()),
            record=self._rules.record(),
            nominations=parts.nominator.nominations(),
            name_backoffs=parts.policy.state(),
            now_ns=parts.now_ns,
            scheduling_cycle=parts.scheduling_cycle,
            move_request_cycle=parts.move_request_cycle,
            sequence=parts.sequence,
            flushed_backoff_ns=self._flushes.backoff_ns,
            flushed_leftover_ns=self._flushes.leftover_ns,
            closed=parts.closed,
        )

    def _backing_off(self, heap: BackoffQueue) -> tuple[BackingOff, ...]:
        expiry_ns = self._parts.policy.expiry_ns
        return tuple(
            BackingOff(entry=entry, expiry_ns=expiry_ns(entry)) for entry in heap.entries()
        )
