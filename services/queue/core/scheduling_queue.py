"""The scheduling queue: which pending pod is tried next, and what the other pods wait for.

A pod is active, backs off, is unschedulable, or is in flight between a pop and the outcome of its
scheduling cycle. Versions differ in how a pod moves between these states: the rules of each version
(rules/) decide that. This module has the behaviour that all versions share.

Two rules hold. First, every operation has a time, times never decrease, and only the two flush
operations flush. Second, each sub-queue has at most one QueuedPodInfo for a pod; where upstream
allows it, a pod may be in two sub-queues, or in a sub-queue and in flight.

Source: kubernetes v1.34 pkg/scheduler/backend/queue/scheduling_queue.go, PriorityQueue; v1.20
and v1.16 internal/queue/scheduling_queue.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from services.framework.cluster_event import ASSIGNED_POD_ADD, ASSIGNED_POD_UPDATE, ObjectEvent
from services.kube.selector import LabelSelector
from services.queue.core.queued_pod import (
    AssignedPod,
    FailedPod,
    Failure,
    InFlightPod,
    PodRef,
    PopId,
    QueuedPod,
    QueuedPodInfo,
)
from services.queue.core.results import (
    AfterAttempts,
    AlreadyPresent,
    NotInFlight,
    NotNext,
    PopResult,
    Requeued,
    SubQueue,
    WouldBlock,
)
from services.queue.core.rules.base import PreEnqueueCheck, QueueParts
from services.queue.core.rules.state import QueueState, restore, state_of
from services.queue.core.rules.versions import VERSIONS, QueueConfig

_ANY_FAILURE = Failure()
_ALL_PODS = PreEnqueueCheck()
_ASSIGNED_ADD = ObjectEvent(event=ASSIGNED_POD_ADD)
_ASSIGNED_UPDATE = ObjectEvent(event=ASSIGNED_POD_UPDATE)


class SchedulingQueue:
    """A queue: its parts and the rules of its version. `now_ns` sets the queue's time, in ns."""

    __slots__ = ("_parts", "_rules", "_version")

    def __init__(self, config: QueueConfig) -> None:
        self._version = version = VERSIONS[config.version]
        limit_ns = config.max_unschedulable_ns
        self._parts = QueueParts(
            version.backoff(config),
            ranked=version.ranked(config),
            lease_ns=config.lease_ns,
            max_unschedulable_ns=version.max_unschedulable_ns if limit_ns is None else limit_ns,
        )
        self._rules = version.compose(self._parts, config)

    @classmethod
    def restore(cls, config: QueueConfig, state: QueueState) -> SchedulingQueue:
        """Return a queue with `state`, which a queue of the same configuration returned."""
        assert state.mode == config.version
        queue = cls(config)
        restore(queue._parts, queue._rules, state)
        return queue

    # Pods are added, change and are deleted.

    def add(self, pod: QueuedPod, *, now_ns: int) -> None:
        """Add a new pod; the pod may already be queued."""
        self._parts.advance(now_ns)
        self._rules.enqueue(pod)

    def update(self, old: QueuedPod | None, new: QueuedPod, *, now_ns: int) -> SubQueue | None:
        """Replace a pod by its new version; return its sub-queue, None for a pod in flight.

        `old` is None if the caller does not have the old version.
        """
        self._parts.advance(now_ns)
        assert old is None or old.key == new.key
        return self._rules.update(old, new)

    def delete(self, pod: PodRef, *, now_ns: int) -> None:
        """Remove the pod and its nomination; its pops stay in flight."""
        self._parts.advance(now_ns)
        self._parts.nominator.remove(pod.uid)
        self._rules.delete(pod)

    def set_gates(self, pod: PodRef, gates: tuple[str, ...], *, now_ns: int) -> None:
        """Set the PreEnqueue plugins that reject a pod, queued or in flight, without moving it.

        The gates take effect when PreEnqueue runs for the pod the next time.
        """
        self._parts.advance(now_ns)
        self._parts.queues.set_gates(pod, gates)
        self._parts.in_flight.set_gates(pod.uid, gates)

    # Scheduling cycles begin and end.

    def pop(self, *, now_ns: int, owner: str = "") -> PopResult:
        """Pop the next pod and begin its cycle; a closed queue returns QueueClosed once drained."""
        self._parts.advance(now_ns)
        pod_info = self._rules.take()
        if pod_info is None:
            return self._empty()
        return self._begin_cycle(pod_info, owner)

    def heads(self, count: int) -> list[InFlightPod]:
        """Return the pods that the next `count` pops would return, without popping them."""
        first_cycle = self._parts.scheduling_cycle + 1
        return [
            self._parts.as_popped(pod_info, cycle)
            for cycle, pod_info in enumerate(self._rules.heads(count), first_cycle)
        ]

    def commit_pop(self, pop_id: PopId, *, now_ns: int, owner: str = "") -> InFlightPod | NotNext:
        """Pop if `pop` would return exactly `pop_id` now; otherwise change nothing."""
        pod_info = self._take_next(pop_id.uid, pop_id.cycle, now_ns)
        return self._not_next() if pod_info is None else self._begin_cycle(pod_info, owner)

    def commit_unschedulable(
        self, failed: Sequence[FailedPod], *, first_cycle: int, now_ns: int
    ) -> int | AlreadyPresent | NotNext:
        """Call `commit_pop` and `add_unschedulable` for each pod in order; return how many.

        The first pop begins `first_cycle`. Stops before the first pod that `pop` would not return.
        If pods are already in a sub-queue, the AlreadyPresent of the first such pod is returned.
        """
        rules = self._rules
        refused: AlreadyPresent | None = None
        for cycle, (uid, failure, selector) in enumerate(failed, first_cycle):
            popped = self._take_next(uid, cycle, now_ns)
            if popped is None:
                return self._not_next(cycle - first_cycle)
            self._parts.scheduling_cycle = cycle
            rules.begin_in_flight(uid)
            pod = popped.pod if selector is None else popped.pod._replace(spread_selector=selector)
            outcome = rules.add_unschedulable(popped, pod, failure, cycle)
            if refused is None and type(outcome) is AlreadyPresent:
                refused = outcome
        return len(failed) if refused is None else refused

    def pass_through(self, pods: int, *, first_cycle: int, now_ns: int) -> NotNext | None:
        """Count pods that were added, popped, done and deleted while no other pod was active.

        Only counters change, as if each operation had been sent. The first pop began `first_cycle`,
        which must be the next cycle.
        """
        parts = self._parts
        if first_cycle != parts.scheduling_cycle + 1 or self._rules.next() is not None:
            return self._not_next()
        parts.advance(now_ns)
        parts.scheduling_cycle += pods
        parts.queues.incoming.add((SubQueue.ACTIVE, self._rules.added_by), pods)
        parts.finished.add(1, pods)
        return None

    @property
    def passes_through(self) -> bool:
        """Whether the queue keeps no trace of a deleted pod, as `pass_through` requires."""
        return self._version.passes_through

    def _take_next(self, uid: str, cycle: int, now_ns: int) -> QueuedPodInfo | None:
        """Take the next pod if it has this UID and begins this cycle; else change nothing."""
        pod_info = self._rules.next()
        if pod_info is None or pod_info.pod.uid != uid or cycle != self._parts.scheduling_cycle + 1:
            return None
        self._parts.advance(now_ns)
        taken = self._rules.take()
        assert taken is pod_info
        return taken

    def _not_next(self, committed: int = 0) -> NotNext:
        heads = self.heads(1)
        return NotNext(next=heads[0] if heads else self._empty(), committed=committed)

    def _empty(self) -> PopResult:
        return self._version.closed if self._parts.closed else WouldBlock()

    def _begin_cycle(self, pod_info: QueuedPodInfo, owner: str) -> InFlightPod:
        parts = self._parts
        parts.scheduling_cycle += 1
        popped = parts.as_popped(pod_info, parts.scheduling_cycle, owner)
        popped = parts.in_flight.begin(popped, parts.now_ns)
        self._rules.begin_in_flight(pod_info.pod.uid)
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
        """Requeue a pod whose cycle failed, and end the pop.

        pod: the current version, None: the popped version. gates: replace the pod's gates unless
        empty. spread_selector: replaces the pod's (see QueuedPod) unless None. cycle: compared with
        the cycle of the last move request by older versions' rules; None: the cycle of the pop. If
        the pod is already in a sub-queue, this copy is dropped.
        """
        self._parts.advance(now_ns)
        popped = self._parts.in_flight.end(pop_id)
        if popped is None:
            return NotInFlight()
        pod = popped.pod if pod is None else pod
        if gates:
            pod = pod._replace(gates=gates)
        if spread_selector is not None:
            pod = pod._replace(spread_selector=spread_selector)
        cycle = popped.cycle if cycle is None else cycle
        return self._rules.add_unschedulable(popped.pod_info, pod, failure, cycle)

    def done(self, pop_id: PopId) -> NotInFlight | None:
        """End a pop whose pod needs no further cycle. Its nomination stays."""
        popped = self._parts.in_flight.end(pop_id)
        if popped is None:
            return NotInFlight()
        self._parts.finished.add(popped.attempts)
        self._rules.end_in_flight(pop_id.uid)
        return None

    # Leases.

    def renew_leases(self, owner: str, *, now_ns: int) -> int:
        """Restart the leases of the owner's pops; return the number of these pops."""
        self._parts.advance(now_ns)
        return self._parts.in_flight.renew(owner, now_ns)

    def release_owner(self, owner: str, *, now_ns: int) -> int:
        """Undo the pops of an owner that disconnected; return how many pods became active."""
        self._parts.advance(now_ns)
        return self._undo(self._parts.in_flight.take_of(owner))

    def expire_leases(self, *, now_ns: int) -> int:
        """Undo the pops whose lease has expired; return how many pods became active."""
        self._parts.advance(now_ns)
        return self._undo(self._parts.in_flight.take_expired(now_ns))

    def _undo(self, pops: Iterable[InFlightPod]) -> int:
        """Make each pod active in its former place, unless it is already queued."""
        count = 0
        for popped in pops:
            self._rules.end_in_flight(popped.pod.uid)
            if self._parts.queues.where(popped.pod_info.key) is None:
                self._rules.undo_pop(popped.pod_info)
                count += 1
        return count

    # Time passes and the cluster changes.

    def flush_backoff(self, *, now_ns: int) -> int:
        """Make active the pods whose backoff is over at `now_ns`; return how many."""
        self._parts.advance(now_ns)
        self._parts.flushes.backoff_ns = now_ns
        return self._rules.flush_backoff()

    def flush_leftover(self, *, now_ns: int) -> int:
        """Move the pods that have been unschedulable for too long; return how many."""
        self._parts.advance(now_ns)
        self._parts.flushes.leftover_ns = now_ns
        return self._rules.flush_leftover(now_ns - self._parts.flushes.max_unschedulable_ns)

    def move_all(
        self, object_event: ObjectEvent, *, now_ns: int, pre_check: PreEnqueueCheck = _ALL_PODS
    ) -> int:
        """Move the unschedulable pods that the event may make schedulable; return how many."""
        self._parts.advance(now_ns)
        return self._rules.move(object_event, pre_check)

    def assigned_pod_added(
        self, assigned: AssignedPod, *, now_ns: int, object_event: ObjectEvent = _ASSIGNED_ADD
    ) -> int:
        """Move the pods whose required affinity the new assigned pod matches; return how many."""
        self._parts.advance(now_ns)
        return self._rules.move_for_assigned(assigned, object_event)

    def assigned_pod_updated(
        self, assigned: AssignedPod, *, now_ns: int, object_event: ObjectEvent = _ASSIGNED_UPDATE
    ) -> int:
        """Move pods as `assigned_pod_added` does, for an updated assigned pod."""
        self._parts.advance(now_ns)
        return self._rules.move_for_assigned(assigned, object_event)

    def activate(self, pods: Iterable[PodRef], *, now_ns: int) -> int:
        """Make pods active at once; return how many. v1.34 only."""
        self._parts.advance(now_ns)
        return self._rules.activate(pods)

    def next_wakeup_ns(self, now_ns: int) -> int | None:
        """Return the first tick from `now_ns` on at which a flush would move a pod.

        None if no flush would move a pod, or the queue is closed. The tick of a flush that has been
        done is not returned again.
        """
        if self._parts.closed:
            return None
        queues = self._parts.queues
        oldest = queues.unschedulable.oldest()
        due_ns, error_due_ns = queues.backoff.next_due_ns(), queues.error_backoff.next_due_ns()
        if due_ns is None or (error_due_ns is not None and error_due_ns < due_ns):
            due_ns = error_due_ns
        return self._parts.flushes.next_ns(
            now_ns,
            due_ns=due_ns,
            oldest_unschedulable_ns=None if oldest is None else oldest.timestamp_ns,
        )

    def after_attempts(self, heads: int, at_ns: int) -> AfterAttempts | None:
        """Return the next wakeups once the first `heads` pods have been tried at `at_ns`.

        They are bound, or refused by plugins. None if more pods can be popped, the queue is closed,
        or the version's rules do not allow to say it.
        """
        return None if self._parts.closed else self._rules.after_attempts(heads, at_ns)

    def close(self) -> None:
        """Close the queue: `pop` returns QueueClosed once it is drained."""
        self._parts.closed = True
        self._rules.close()

    # Nominations.

    def nominate(self, pod: PodRef, node_name: str) -> None:
        """Nominate the pod to a node, after that node's other pods.

        The pod need not be queued. "" stands for the node in the status of the pod's version in the
        queue, or else in flight. If that status names no node, the nomination is removed, but v1.34
        nominates the pod to the node "".
        Source: kubernetes v1.20 internal/queue/scheduling_queue.go, nominatedPodMap.add; v1.34
        backend/queue/nominator.go, addNominatedPodUnlocked, ModeOverride.
        """
        if not node_name:
            latest = self._parts.latest(pod)
            node_name = latest.nominated_node_name if latest is not None else ""
        if node_name or self._rules.nominates_without_node:
            self._parts.nominator.nominate(pod, node_name)
        else:
            self._parts.nominator.remove(pod.uid)

    def delete_nomination(self, uid: str) -> None:
        """Remove the pod's nomination, if it has one."""
        self._parts.nominator.remove(uid)

    def nominated_for(self, node_name: str) -> tuple[PodRef, ...]:
        """Return the pods nominated to the node, in the order of their nomination."""
        return self._parts.nominator.for_node(node_name)

    # The state.

    @property
    def now_ns(self) -> int:
        """The time of the last operation; an operation with an earlier time is an error."""
        return self._parts.now_ns

    def pending(self) -> tuple[QueuedPod, ...]:
        """Return the pods of every sub-queue: active, backing off, unschedulable."""
        return self._parts.queues.pods()

    @property
    def object_count(self) -> int:
        """The number of values kept: pods queued and in flight, nominations, events."""
        parts = self._parts
        queues = parts.queues
        queued = len(queues.active) + len(queues.backoff) + len(queues.error_backoff)
        kept = len(parts.in_flight.by_cycle) + len(parts.nominator) + self._rules.recorded_events()
        return queued + len(queues.unschedulable) + kept

    def sizes(self) -> dict[SubQueue, int]:
        """Return the number of pods in each sub-queue of the version."""
        sizes = self._parts.queues.sizes()
        return {queue: sizes[queue] for queue in sizes if queue in self._version.sub_queues}

    def first(self, queue: SubQueue, count: int) -> list[QueuedPodInfo]:
        """Return the first `count` pods of a sub-queue, in its own order."""
        return self._parts.queues.first(queue, count)

    def backoff_until_ns(self, pod_info: QueuedPodInfo, queue: SubQueue) -> int | None:
        """Return when the pod's backoff expires, in ns; None outside the backoffQs."""
        backs_off = queue in {SubQueue.BACKOFF, SubQueue.ERROR_BACKOFF}
        return self._parts.policy.expiry_ns(pod_info) if backs_off else None

    @property
    def in_flight(self) -> Mapping[int, InFlightPod]:
        """The pods in flight, by the scheduling cycle of their pop."""
        return self._parts.in_flight.by_cycle

    def take_incoming(self) -> dict[tuple[SubQueue, str], int]:
        """Return the number of pods that entered each sub-queue by event, since the last call."""
        return self._parts.queues.incoming.take()

    def take_finished(self) -> dict[int, int]:
        """Return the number of pods done, by their number of attempts, since the last call."""
        return self._parts.finished.take()

    def snapshot(self) -> QueueState:
        """Return the whole state, for `restore` and GetState."""
        return state_of(self._version.name, self._parts, self._rules)
