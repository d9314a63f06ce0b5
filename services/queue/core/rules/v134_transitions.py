"""Moves a pod into a sub-queue of v1.34: PreEnqueue first, then activeQ, a backoffQ, or neither.

Upstream modifies a QueuedPodInfo in place; here a modified copy replaces it in its sub-queue.

Source: kubernetes v1.34 pkg/scheduler/backend/queue/scheduling_queue.go, moveToActiveQ,
moveToBackoffQ, requeuePodWithQueueingStrategy, runPreEnqueuePlugins.
"""

from __future__ import annotations

from services.framework.cluster_event import POD_ADD, POD_UPDATE
from services.queue.core.queued_pod import Failure, QueuedPodInfo
from services.queue.core.queueing_hints import QueueingHintMap, QueueingStrategy
from services.queue.core.results import AlreadyPresentTexts, SubQueue
from services.queue.core.rules.base import QueueParts, QueueRules

_NO_FAILURE = Failure()
_RENOMINATED_BY = frozenset({POD_ADD.label, POD_UPDATE.label})

# Constants for members: in Python 3.11 each access to a member of an Enum is a function call.
_ACTIVE, _UNSCHEDULABLE = SubQueue.ACTIVE, SubQueue.UNSCHEDULABLE
_SKIP, _AFTER_BACKOFF = QueueingStrategy.SKIP, QueueingStrategy.AFTER_BACKOFF


class TransitionsV134(QueueRules):
    """v1.34's moves into the sub-queues; `pops_backing_off` is SchedulerPopFromBackoffQ.

    In every method, `event` is the label under which the pod is counted.
    """

    __slots__ = ("_hint_map", "_pops_backing_off")

    def __init__(
        self,
        parts: QueueParts,
        present: AlreadyPresentTexts,
        hint_map: QueueingHintMap,
        *,
        pops_backing_off: bool,
    ) -> None:
        super().__init__(parts, present)
        self._hint_map = hint_map
        self._pops_backing_off = pops_backing_off

    def requeue(self, pod_info: QueuedPodInfo, strategy: QueueingStrategy, event: str) -> SubQueue:
        """Move a pod by `strategy`; return its new sub-queue."""
        if strategy is _SKIP:
            self.to_unschedulable(pod_info, event)
            return _UNSCHEDULABLE
        if strategy is _AFTER_BACKOFF and self._backs_off(pod_info):
            return self.to_backoff(pod_info, event)
        return _ACTIVE if self.to_active(pod_info, event) else _UNSCHEDULABLE

    def to_active(self, pod_info: QueuedPodInfo, event: str, *, from_backoff: bool = False) -> bool:
        """Make a pod active unless a PreEnqueue plugin rejects it; return whether it is active.

        If pods can be popped from backoffQ, PreEnqueue already ran before a pod entered backoffQ.
        """
        entering = pod_info
        if (pod_info.gating_plugin or pod_info.pod.gates) and not (
            from_backoff and self._pops_backing_off
        ):
            entering = _run_pre_enqueue(pod_info)
        key = entering.key
        if entering.gating_plugin:
            if key not in self._queues.active and not self._queues.backs_off(key):
                self._gate(entering, pod_info, event)
            return False
        if entering.initial_attempt_ns is None:
            entering = entering._replace(initial_attempt_ns=self._parts.now_ns)
        self._queues.leave_waiting(key)
        self._queues.add_active(entering, event, self._parts.now_ns)
        if event in _RENOMINATED_BY:
            self._parts.nominator.follow_status(entering.pod)
        return True

    def to_backoff(self, pod_info: QueuedPodInfo, event: str) -> SubQueue:
        """Add a pod to a backoffQ; if pods can be popped from backoffQ, PreEnqueue runs first.

        Also: kubernetes v1.34 backoff_queue.go, backoffQueue.add.
        """
        entering = pod_info
        if self._pops_backing_off:
            entering = _run_pre_enqueue(pod_info)
            if entering.gating_plugin:
                self._gate(entering, pod_info, event)
                return _UNSCHEDULABLE
        self._queues.leave_waiting(entering.key)
        if entering.is_unschedulable:
            return self._queues.add_backoff(entering, event, self._parts.now_ns)
        return self._queues.add_error_backoff(entering, event, self._parts.now_ns)

    def to_unschedulable(self, pod_info: QueuedPodInfo, event: str) -> None:
        """Add a pod to the unschedulable pods, or replace it there."""
        unschedulable = self._queues.unschedulable
        present = unschedulable.get(pod_info.key)
        if present is None:
            self._queues.add_unschedulable(pod_info, event)
        elif present.timestamp_ns == pod_info.timestamp_ns:
            unschedulable.replace(pod_info)  # most updates keep the timestamp, so the place stays
        else:
            unschedulable.remove(pod_info.key)
            unschedulable.put(pod_info)

    def _gate(self, gated: QueuedPodInfo, pod_info: QueuedPodInfo, event: str) -> None:
        present = self._queues.unschedulable.get(gated.key)
        if present is None:
            self._queues.add_unschedulable(gated, event)
        elif present.sequence == pod_info.sequence:
            self._queues.unschedulable.replace(gated)

    def _backs_off(self, pod_info: QueuedPodInfo) -> bool:
        return self._parts.policy.backs_off(pod_info, self._parts.now_ns)


def _run_pre_enqueue(pod_info: QueuedPodInfo) -> QueuedPodInfo:
    """Return the pod with the plugin that now gates it; the former gating plugin runs first."""
    gates = pod_info.pod.gates
    if not gates:
        return pod_info._replace(gating_plugin="") if pod_info.gating_plugin else pod_info
    gating_plugin = pod_info.gating_plugin if pod_info.gating_plugin in gates else gates[0]
    failure = (pod_info.failure or _NO_FAILURE).with_plugin(gating_plugin)
    return pod_info._replace(gating_plugin=gating_plugin, failure=failure)
