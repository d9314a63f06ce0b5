"""The rules of v1.16 and v1.20, which differ only in their backoff.

Every event moves every unschedulable pod. Two counters resolve the race between a scheduling cycle
and an event: if pods were moved in or after the cycle of a failed pod, the pod backs off instead of
becoming unschedulable, because the event that it would wait for may already have occurred.

Source: kubernetes v1.20 (and v1.16) internal/queue/scheduling_queue.go, PriorityQueue.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from services.framework.cluster_event import ObjectEvent
from services.queue.core import results
from services.queue.core.queued_pod import AssignedPod, Failure, PodRef, QueuedPod, QueuedPodInfo
from services.queue.core.results import AlreadyPresent, Requeued, SubQueue
from services.queue.core.rules.base import PreEnqueueCheck, QueueRules

_REQUEUED = {queue: Requeued(queue=queue) for queue in SubQueue}


class RulesV120(QueueRules):
    """activeQ, podBackoffQ, unschedulableQ and moveRequestCycle."""

    __slots__ = ()

    added_by: ClassVar[str] = results.POD_ADD
    nominates_without_node: ClassVar[bool] = False

    def enqueue(self, pod: QueuedPod, /) -> None:
        """Make a new pod active; it replaces a pod of the same name in the queue."""
        key = pod.key
        pod_info = self._parts.new_pod_info(pod, self._parts.now_ns)
        self._queues.add_active(pod_info, self.added_by, self._parts.now_ns)
        self._queues.unschedulable.remove(key)
        self._queues.backoff.remove(key)
        self._parts.nominator.follow_status(pod)

    def update(self, old: QueuedPod | None, new: QueuedPod, /) -> SubQueue:
        """Replace a pod by its new version; return its sub-queue.

        Any update makes a backing-off pod active. A changed digest makes an unschedulable pod
        active, even before its backoff is over. A pod that is not in a sub-queue becomes active; a
        pod in flight thus gets a second copy. If `old` is None, activeQ and backoffQ are not
        searched, and an unschedulable pod counts as changed.
        """
        nominator = self._parts.nominator
        if old is not None:
            pod_info = self._queues.active.get(new.key)
            if pod_info is not None:
                nominator.follow_update(old, new)
                self._queues.active.put(pod_info.with_pod(new))
                return SubQueue.ACTIVE
            pod_info = self._queues.backoff.remove(new.key)
            if pod_info is not None:
                nominator.follow_update(old, new)
                return self._make_active(pod_info.with_pod(new))
        pod_info = self._queues.unschedulable.get(new.key)
        if pod_info is not None:
            return self._update_unschedulable(pod_info.with_pod(new), old)
        nominator.follow_status(new)
        pod_info = self._parts.new_pod_info(new, self._parts.now_ns)
        return self._make_active(pod_info)

    def _update_unschedulable(self, pod_info: QueuedPodInfo, old: QueuedPod | None) -> SubQueue:
        new = pod_info.pod
        self._parts.nominator.follow_update(old, new)
        if old is not None and old.digest == new.digest:
            self._queues.unschedulable.replace(pod_info)
            return SubQueue.UNSCHEDULABLE
        self._parts.policy.clear_backoff(new.key)
        self._queues.unschedulable.remove(new.key)
        return self._make_active(pod_info)

    def _make_active(self, changed: QueuedPodInfo) -> SubQueue:
        return self._queues.add_active(changed, results.POD_UPDATE, self._parts.now_ns)

    def delete(self, pod: PodRef, /) -> None:
        """Remove the pod from activeQ; if not there, from the others, with its backoff by name."""
        if self._queues.active.remove(pod.key) is None:
            self._parts.policy.clear_backoff(pod.key)
            self._queues.backoff.remove(pod.key)
            self._queues.unschedulable.remove(pod.key)

    def heads(self, count: int, /) -> list[QueuedPodInfo]:
        """Return the first active pods."""
        return self._queues.active.first(count)

    def next(self) -> QueuedPodInfo | None:
        """Return the first active pod."""
        return self._queues.active.peek()

    def take(self) -> QueuedPodInfo | None:
        """Take the first active pod."""
        return self._queues.active.pop()

    def add_unschedulable(
        self, popped: QueuedPodInfo, pod: QueuedPod, failure: Failure, cycle: int, /
    ) -> Requeued | AlreadyPresent:
        """Requeue a pod whose cycle failed, with the nomination in its status.

        The pod backs off if a move was requested in or after `cycle`, otherwise it becomes
        unschedulable. If the pod is already in a sub-queue, this copy is dropped.

        Source: kubernetes v1.20 internal/queue/scheduling_queue.go,
        AddUnschedulableIfNotPresent.
        """
        key, parts = pod.key, self._parts
        present = self._queues.where(key)
        if present is not None:
            return AlreadyPresent(queue=present, text=self._present.text(present, pod))
        parts.policy.record_failure(key, parts.now_ns)
        parts.nominator.follow_status(pod)
        pod_info = QueuedPodInfo(
            pod=pod,
            timestamp_ns=parts.now_ns,
            initial_attempt_ns=popped.initial_attempt_ns,
            attempts=popped.attempts + 1,
            sequence=parts.next_sequence(),
            failure=failure,
        )
        event = results.SCHEDULE_ATTEMPT_FAILURE
        if parts.move_request_cycle >= cycle:
            return _REQUEUED[self._queues.add_backoff(pod_info, event, parts.now_ns)]
        return _REQUEUED[self._queues.add_unschedulable(pod_info, event)]

    def undo_pop(self, pod_info: QueuedPodInfo, /) -> None:
        """Make the pod active again, in its former place."""
        self._queues.add_active(pod_info, results.POP_UNDONE, self._parts.now_ns)

    def move(self, object_event: ObjectEvent, pre_check: PreEnqueueCheck, /) -> int:
        """Move the unschedulable pods; a move request is recorded even if there are no pods."""
        unschedulable = self._queues.unschedulable
        if pre_check.passes_all:
            return self._release(unschedulable.take_all(), object_event.event.label)
        taken = unschedulable.take_some(
            priority_at_most=pre_check.priority_at_most, all_but_uid=pre_check.all_but_uid
        )
        return self._release(taken, object_event.event.label)

    def move_for_assigned(self, assigned: AssignedPod, object_event: ObjectEvent, /) -> int:
        """Move the pods whose required affinity the assigned pod matches."""
        matching = self._queues.unschedulable.take_with_term_matching(assigned)
        return self._release(matching, object_event.event.label)

    def activate(self, pods: Iterable[PodRef], /) -> int:
        """Raise NotImplementedError: these versions have no Activate; requests are refused."""
        raise NotImplementedError("the version has no Activate")

    def flush_backoff(self) -> int:
        """Make active the pods whose backoff is over."""
        moved, now_ns = 0, self._parts.now_ns
        while (pod_info := self._queues.backoff.pop_due(now_ns)) is not None:
            self._queues.add_active(pod_info, results.BACKOFF_COMPLETE, now_ns)
            moved += 1
        return moved

    def flush_leftover(self, before_ns: int, /) -> int:
        """Move the pods that have waited too long; record a move request only if there are any."""
        leftover = self._queues.unschedulable.take_older(before_ns)
        if not leftover:
            return 0
        return self._release(leftover, results.UNSCHEDULABLE_TIMEOUT)

    def _release(self, pod_infos: Iterable[QueuedPodInfo], event: str) -> int:
        """Move unschedulable pods to activeQ, or to backoffQ if their backoff is not over.

        Source: kubernetes v1.20 internal/queue/scheduling_queue.go,
        movePodsToActiveOrBackoffQueue.
        """
        released, now_ns = 0, self._parts.now_ns
        for pod_info in pod_infos:
            released += 1
            if self._parts.policy.backs_off(pod_info, now_ns):
                self._queues.add_backoff(pod_info, event, now_ns)
            else:
                self._queues.add_active(pod_info, event, now_ns)
        self._parts.record_move()
        return released
