"""The rules of v1.34: gates, an error backoff, pops from backoffQ, and events that move few pods.

Two subclasses complete these rules (v134_queueing_hints.py). With queueing hints, the events that
the refusing plugins registered move a pod; without, the move counters of older versions decide.

Source: kubernetes v1.34 pkg/scheduler/backend/queue/scheduling_queue.go, PriorityQueue.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import ClassVar

from services.framework.cluster_event import (
    FORCE_ACTIVATE,
    POD_ADD,
    POD_UPDATE,
    UNSCHEDULABLE_TIMEOUT,
    ObjectEvent,
    event_of,
)
from services.framework.plugins.events import COUNT_PODS_OF_NAMESPACE
from services.queue.core import results
from services.queue.core.queued_pod import AssignedPod, Failure, PodRef, QueuedPod, QueuedPodInfo
from services.queue.core.queueing_hints import QueueingStrategy
from services.queue.core.results import AfterAttempts, AlreadyPresent, Requeued, SubQueue
from services.queue.core.rules.base import PreEnqueueCheck
from services.queue.core.rules.v134_transitions import TransitionsV134

_REQUEUED = {queue: Requeued(queue=queue) for queue in SubQueue}
_NO_FAILURE = Failure()
_ALL_PODS = PreEnqueueCheck()
_SCALE_DOWN = event_of("PodUpdatePodScaleDown")
_TIMEOUT = ObjectEvent(event=UNSCHEDULABLE_TIMEOUT)

# Constants for members: in Python 3.11 each access to a member of an Enum is a function call.
_ACTIVE, _UNSCHEDULABLE = SubQueue.ACTIVE, SubQueue.UNSCHEDULABLE
_SKIP = QueueingStrategy.SKIP


class RulesV134(TransitionsV134):
    """The rules of v1.34, with queueing hints and without."""

    __slots__ = ()

    added_by: ClassVar[str] = POD_ADD.label
    nominates_without_node: ClassVar[bool] = True

    # The methods that differ with and without queueing hints.

    @abstractmethod
    def update_waiting(self, old: QueuedPod | None, pod_info: QueuedPodInfo, /) -> SubQueue:
        """Move a changed unschedulable pod, if needed; `pod_info` has its new version."""

    @abstractmethod
    def requeue_failed(self, pod_info: QueuedPodInfo, cycle: int, /) -> SubQueue:
        """Add a pod whose cycle failed to a sub-queue."""

    def is_duplicate(self, _pod_info: QueuedPodInfo, /) -> bool:
        """Return whether the pod is already in flight, so that a pop must drop this copy."""
        return False

    def record_event(self, object_event: ObjectEvent, /) -> None:
        """Record an event for the pods in flight."""

    @abstractmethod
    def record_activate(self, pod: PodRef, /) -> None:
        """Record an Activate for a pod that may be in flight."""

    # Pods are added, change and are deleted.

    def enqueue(self, pod: QueuedPod, /) -> None:
        """Make a new pod active, unless a PreEnqueue plugin rejects it.

        A gated pod is dropped if the queue has a pod of the same name.
        """
        self.to_active(self._new_pod_info(pod), self.added_by)

    def update_queued(self, old: QueuedPod | None, new: QueuedPod) -> SubQueue:
        """Replace a pod that is not in flight by its new version; return its sub-queue.

        An active or backing-off pod stays in its sub-queue; PreEnqueue does not run again.
        """
        waiting = self._queues.unschedulable.get(new.key)
        if waiting is not None:
            new = _with_spread_selector(waiting.pod, new)
        if old is not None:
            for where, heap in (
                (SubQueue.ACTIVE, self._queues.active),
                (SubQueue.BACKOFF, self._queues.backoff),
                (SubQueue.ERROR_BACKOFF, self._queues.error_backoff),
            ):
                pod_info = heap.get(new.key)
                if pod_info is not None:
                    heap.put(pod_info.with_pod(new))
                    if waiting is not None and waiting.sequence == pod_info.sequence:
                        self._queues.unschedulable.replace(pod_info.with_pod(new))
                    self._parts.nominator.follow_update(old, new)
                    return where
        if waiting is not None:
            changed = waiting.with_pod(new)
            self._queues.unschedulable.replace(changed)
            self._parts.nominator.follow_update(old, new)
            return self.update_waiting(old, changed)
        active = self.to_active(self._new_pod_info(new), POD_UPDATE.label)
        return SubQueue.ACTIVE if active else SubQueue.GATED

    def _new_pod_info(self, pod: QueuedPod) -> QueuedPodInfo:
        """Return a new pod's QueuedPodInfo; to_active sets initial_attempt_ns later."""
        return self._parts.new_pod_info(pod, None if pod.gates else self._parts.now_ns)

    def delete(self, pod: PodRef, /) -> None:
        """Remove the pod from activeQ, else the backoffQs, else the unschedulable pods."""
        key, queues = pod.key, self._queues
        if queues.active.remove(key) is None and queues.remove_backing_off(key) is None:
            queues.unschedulable.remove(key)

    # Scheduling cycles begin and end.

    def heads(self, count: int, /) -> list[QueuedPodInfo]:
        """Return the first active pods, then backing-off pods, without duplicates."""
        heads: list[QueuedPodInfo] = []
        seen: set[str] = set()
        for pod_info in self._in_pop_order():
            if len(heads) == count:
                break
            if pod_info.pod.uid not in seen and not self.is_duplicate(pod_info):
                seen.add(pod_info.pod.uid)
                heads.append(pod_info)
        return heads

    def _in_pop_order(self) -> Iterator[QueuedPodInfo]:
        active = self._queues.active.in_order()
        return chain(active, self._queues.backoff.in_order()) if self._pops_backing_off else active

    def next(self) -> QueuedPodInfo | None:
        """Return the first pod that is not a duplicate."""
        first = self._queues.active.peek()
        if first is None and self._pops_backing_off:
            first = self._queues.backoff.peek()
        if first is None or not self.is_duplicate(first):
            return first
        return next(iter(self.heads(1)), None)

    def take(self) -> QueuedPodInfo | None:
        """Take the next pod, from backoffQ if activeQ is empty; drop duplicates before it."""
        while (pod_info := self._queues.active.pop()) is not None:
            if not self.is_duplicate(pod_info):
                return pod_info
        while self._pops_backing_off and (pod_info := self._queues.backoff.pop()) is not None:
            self._queues.incoming.add((_ACTIVE, results.POP_FROM_BACKOFF_Q))
            if not self.is_duplicate(pod_info):
                return pod_info
        return None

    def add_unschedulable(
        self, popped: QueuedPodInfo, pod: QueuedPod, failure: Failure, cycle: int, /
    ) -> Requeued | AlreadyPresent:
        """Requeue a pod that plugins refused or whose cycle failed with an error; end the pop.

        Source: kubernetes v1.34 scheduling_queue.go, AddUnschedulableIfNotPresent.
        """
        present = self._queues.where(pod.key)
        if present is not None:
            self.end_in_flight(pod.uid)
            return AlreadyPresent(queue=present, text=self._present.text(present, pod))
        if failure.error:
            failure = _NO_FAILURE
        is_refused = failure.is_unschedulable
        self._hint_map.add_refusing(failure.plugins)
        self._hint_map.add_refusing(failure.pending_plugins)
        parts = self._parts
        pod_info = QueuedPodInfo(  # positional: keyword arguments take twice as long
            pod,
            parts.now_ns,
            popped.initial_attempt_ns,
            popped.attempts + 1,
            parts.next_sequence(),
            failure,
            popped.unschedulable_count + is_refused,
            0 if is_refused else popped.consecutive_errors + 1,
        )
        where = self.requeue_failed(pod_info, cycle)
        self.end_in_flight(pod.uid)
        return _REQUEUED[where]

    def after_attempts(self, heads: int, at_ns: int, /) -> AfterAttempts | None:
        """Return what follows if the first `heads` pods are tried at `at_ns`; None: unknown.

        A pod that is refused in the cycle of its pop becomes unschedulable: no event can have come
        meanwhile. It is the youngest there, and is moved by a flush after all others.
        """
        queues, parts = self._queues, self._parts
        poppable = len(queues.active) + (len(queues.backoff) if self._pops_backing_off else 0)
        if poppable != heads:
            return None
        due_ns = [queues.error_backoff.next_due_ns()]
        if not self._pops_backing_off:
            due_ns.append(queues.backoff.next_due_ns())
        oldest = queues.unschedulable.oldest()
        oldest_ns = None if oldest is None else oldest.timestamp_ns
        first_ns = min((due for due in due_ns if due is not None), default=None)
        next_ns = partial(parts.flushes.next_ns, at_ns, due_ns=first_ns)
        return AfterAttempts(
            next_ns(oldest_unschedulable_ns=oldest_ns),
            next_ns(oldest_unschedulable_ns=at_ns if oldest_ns is None else oldest_ns),
        )

    def undo_pop(self, pod_info: QueuedPodInfo, /) -> None:
        """Make the pod active in its former place, unless a PreEnqueue plugin now rejects it."""
        self.to_active(pod_info, results.POP_UNDONE)

    # Time passes and the cluster changes.

    def move(self, object_event: ObjectEvent, pre_check: PreEnqueueCheck, /) -> int:
        """Move each pod for which a hint of a plugin that refused it returns Queue.

        An event that no plugin registered has no effect. Any other event is also recorded for the
        pods in flight, even if it moves no pod.
        """
        event = object_event.event
        if not self._hint_map.is_of_interest(event):
            return 0
        if event.is_wildcard:
            waiting = self._queues.unschedulable.pod_infos()
            return self._move_each((e for e in waiting if pre_check.passes(e.pod)), object_event)
        moved = 0
        for (failure, gating_plugin), members in self._queues.unschedulable.groups():
            if gating_plugin and not self._hint_map.is_registered(gating_plugin, event):
                continue
            plan = self._hint_map.plan(event, failure)
            if plan.decided is _SKIP:
                continue
            users = plan.users(object_event)
            concerned = (
                tuple(members.values())
                if users is None
                else self._queues.unschedulable.using(users, members)
            )
            for pod_info in concerned:
                if pre_check.passes(pod_info.pod):
                    moved += self._requeue(
                        pod_info, plan.strategy(pod_info.pod, object_event), object_event
                    )
        self._record_move(object_event)
        return moved

    def move_for_assigned(self, assigned: AssignedPod, object_event: ObjectEvent, /) -> int:
        """Move the pods that an event of an assigned pod may make schedulable, if hints agree.

        These pods have a required affinity term that matches the assigned pod, or were refused by a
        plugin that counts the pods of a namespace. If the assigned pod was scaled down, it freed
        resources, which may help any pod.
        Source: kubernetes v1.34 AssignedPodUpdated, getUnschedulablePodsWithCrossTopologyTerm.
        """
        if _SCALE_DOWN.covers(object_event.event):
            return self.move(object_event, _ALL_PODS)
        if not self._hint_map.is_of_interest(object_event.event):
            return 0
        queued = {
            pod_info.key: pod_info
            for pod_info in self._queues.unschedulable.with_term_matching(assigned)
        }
        for (failure, _gate), members in self._queues.unschedulable.groups():
            if failure is not None and not COUNT_PODS_OF_NAMESPACE.isdisjoint(failure.plugins):
                queued |= {
                    key: pod_info
                    for key, pod_info in members.items()
                    if key[0] == assigned.namespace
                }
        return self._move_each(queued.values(), object_event)

    def activate(self, pods: Iterable[PodRef], /) -> int:
        """Make unschedulable and backing-off pods active, even before their backoff is over.

        Other pods are ignored, except that a pod in flight is requeued when its cycle fails.
        """
        activated = 0
        for pod in pods:
            if self._activate(pod):
                activated += 1
            else:
                self.record_activate(pod)
        return activated

    def _activate(self, pod: PodRef) -> bool:
        waiting = self._queues.unschedulable.get(pod.key)
        if waiting is not None:
            return self.to_active(waiting, FORCE_ACTIVATE.label)
        backing_off = self._queues.remove_backing_off(pod.key)
        return backing_off is not None and self.to_active(
            backing_off, FORCE_ACTIVATE.label, from_backoff=True
        )

    def flush_backoff(self) -> int:
        """Make active the pods whose backoff is over; pods that failed with an error come last."""
        due: list[QueuedPodInfo] = []
        for heap in (self._queues.backoff, self._queues.error_backoff):
            while (pod_info := heap.pop_due(self._parts.now_ns)) is not None:
                due.append(pod_info)
        return sum(
            self.to_active(pod_info, results.BACKOFF_COMPLETE, from_backoff=True)
            for pod_info in due
        )

    def flush_leftover(self, before_ns: int, /) -> int:
        """Move the pods that have waited too long, as a wildcard event does.

        A gated pod stays, unless its gating plugin registered for all events.
        """
        leftover = self._queues.unschedulable.older(before_ns)
        return self._move_each(leftover, _TIMEOUT) if leftover else 0

    def _move_each(self, pod_infos: Iterable[QueuedPodInfo], object_event: ObjectEvent) -> int:
        moved = 0
        for pod_info in tuple(pod_infos):
            if not pod_info.gating_plugin or self._hint_map.is_registered(
                pod_info.gating_plugin, object_event.event
            ):
                strategy = self._hint_map.strategy(pod_info, object_event)
                moved += self._requeue(pod_info, strategy, object_event)
        self._record_move(object_event)
        return moved

    def _requeue(
        self, pod_info: QueuedPodInfo, strategy: QueueingStrategy, object_event: ObjectEvent
    ) -> bool:
        if strategy is _SKIP:
            return False
        self._queues.unschedulable.remove(pod_info.key)
        where = self.requeue(pod_info, strategy, object_event.event.label)
        return where is not _UNSCHEDULABLE

    def _record_move(self, object_event: ObjectEvent) -> None:
        self._parts.record_move()
        self.record_event(object_event)


def _with_spread_selector(old: QueuedPod, new: QueuedPod) -> QueuedPod:
    """Return the new version with the old one's spread selector, unless its labels changed."""
    if old.spread_selector is None or old.labels != new.labels:
        return new
    return new._replace(spread_selector=old.spread_selector)
