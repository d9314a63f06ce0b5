"""The two variants of v1.34's rules: with and without the feature gate SchedulerQueueingHints.

With hints, a refused pod waits for an event that one of the refusing plugins registered. Events
that occur while a pod is in flight, including updates of the pod itself, are recorded until its
cycle ends. Without hints, the move counters of older versions decide, but only registered events
move pods.

Source: kubernetes v1.34 pkg/scheduler/backend/queue/scheduling_queue.go.
"""

from __future__ import annotations

from services.framework.cluster_event import (
    FORCE_ACTIVATE,
    POD_UPDATE,
    UNSCHEDULABLE_POD,
    ObjectEvent,
    event_of,
)
from services.kube.changes import pod_changes
from services.queue.core import results
from services.queue.core.in_flight import InFlightEvents
from services.queue.core.queued_pod import PodRef, QueuedPod, QueuedPodInfo
from services.queue.core.queueing_hints import QueueingHintMap, QueueingStrategy
from services.queue.core.results import AlreadyPresentTexts, SubQueue
from services.queue.core.rules.base import HintState, QueueParts
from services.queue.core.rules.v134 import RulesV134

# Constants for members: in Python 3.11 each access to a member of an Enum is a function call.
_SKIP, _AFTER_BACKOFF = QueueingStrategy.SKIP, QueueingStrategy.AFTER_BACKOFF
_IMMEDIATELY = QueueingStrategy.IMMEDIATELY


class RulesV134WithHints(RulesV134):
    """v1.34 with queueing hints: events since the pop decide where a failed pod is requeued."""

    __slots__ = ("_in_flight",)

    def __init__(
        self,
        parts: QueueParts,
        present: AlreadyPresentTexts,
        hint_map: QueueingHintMap,
        *,
        pops_backing_off: bool,
    ) -> None:
        super().__init__(parts, present, hint_map, pops_backing_off=pops_backing_off)
        self._in_flight = InFlightEvents()

    def update(self, old: QueuedPod | None, new: QueuedPod, /) -> SubQueue | None:
        """Replace a pod by its new version; for a pod in flight, record the update as an event."""
        if new.uid in self._in_flight:
            self._in_flight.record_for(new.uid, _update_events(old, new))
            self._parts.in_flight.update(new)
            return None
        return self.update_queued(old, new)

    def update_waiting(self, old: QueuedPod | None, pod_info: QueuedPodInfo, /) -> SubQueue:
        """Call the refusing plugins' hints for each kind of change, until one moves the pod."""
        where = SubQueue.UNSCHEDULABLE
        for object_event in _update_events(old, pod_info.pod):
            strategy = self._hint_map.strategy(pod_info, object_event)
            where = self.requeue(pod_info, strategy, object_event.event.label)
            if where is SubQueue.ACTIVE or (
                self._pops_backing_off and where is not SubQueue.UNSCHEDULABLE
            ):
                break
            pod_info = self._queues.unschedulable.get(pod_info.key) or pod_info
        return where

    def requeue_failed(self, pod_info: QueuedPodInfo, _cycle: int, /) -> SubQueue:
        """Add a failed pod to the sub-queue that the events since its pop lead to."""
        strategy = self._since_pop(pod_info)
        if strategy is _SKIP:
            return self._queues.add_unschedulable(pod_info, results.SCHEDULE_ATTEMPT_FAILURE)
        return self.requeue(pod_info, strategy, results.SCHEDULE_ATTEMPT_FAILURE)

    def _since_pop(self, pod_info: QueuedPodInfo) -> QueueingStrategy:
        """Return the best strategy of the events since the pop: IMMEDIATELY, AFTER_BACKOFF, SKIP.

        A pod that no plugin refused is tried again, and so is a pod that is not in flight.
        Source: kubernetes v1.34 determineSchedulingHintForInFlightPod.
        """
        object_events = self._in_flight.since_pop_of(pod_info.pod.uid)
        if object_events is None or not pod_info.is_unschedulable:
            return _AFTER_BACKOFF
        best = _SKIP
        has_pending = bool(pod_info.failure and pod_info.failure.pending_plugins)
        for object_event in object_events:
            strategy = self._hint_map.strategy(pod_info, object_event)
            if strategy is _SKIP:
                continue
            best = strategy
            if strategy is _IMMEDIATELY or not has_pending:
                break
        return best

    def is_duplicate(self, pod_info: QueuedPodInfo, /) -> bool:
        """Return whether the pod is in flight."""
        return pod_info.pod.uid in self._in_flight

    def begin_in_flight(self, uid: str, /) -> None:
        """Record events for the pod from its pop on."""
        self._in_flight.begin(uid)

    def end_in_flight(self, uid: str, /) -> None:
        """Stop recording events for the pod."""
        self._in_flight.end(uid)

    def record_event(self, object_event: ObjectEvent, /) -> None:
        """Record an event, if any pod is in flight."""
        self._in_flight.record(object_event)

    def record_activate(self, pod: PodRef, /) -> None:
        """If the pod is in flight, record a wildcard event that names it, and a move request."""
        self._in_flight.record_for(pod.uid, [ObjectEvent(event=FORCE_ACTIVATE, new=pod)])
        self._parts.record_move()

    def recorded_events(self) -> int:
        """Return the number of events recorded for pods in flight."""
        return len(self._in_flight)

    def close(self) -> None:
        """Drop the recorded events, so that they no longer requeue pods in flight."""
        self._in_flight.clear()

    def hint_state(self) -> HintState:
        """Return the pods in flight, the recorded events, and the unregistered plugins."""
        return HintState(
            pods=self._in_flight.pods(),
            events=self._in_flight.events(),
            unregistered_plugins=self._hint_map.unregistered_plugins,
        )

    def restore(self, state: HintState, /) -> None:
        """Restore a state that `hint_state` returned."""
        self._in_flight.restore(state.pods, state.events)
        self._hint_map.add_refusing(state.unregistered_plugins)


def _update_events(old: QueuedPod | None, new: QueuedPod) -> list[ObjectEvent]:
    """Return the events of a pending pod's update, at least one, in upstream's order.

    If the update has none of the changes that upstream distinguishes, or there is no old version,
    the event is a general update.
    Source: kubernetes v1.34 pkg/scheduler/framework/events.go, PodSchedulingPropertiesChange.
    """
    changes = () if old is None else pod_changes(old, new)
    labels = [f"{UNSCHEDULABLE_POD}{change.value}" for change in changes] or [POD_UPDATE.label]
    return [ObjectEvent(event=event_of(label), old=old, new=new) for label in labels]


class RulesV134WithoutHints(RulesV134):
    """v1.34 without queueing hints: a failed pod backs off if a move came in or after its cycle."""

    __slots__ = ()

    def update(self, old: QueuedPod | None, new: QueuedPod, /) -> SubQueue:
        """Replace a pod by its new version; queue a second copy of a pod in flight."""
        return self.update_queued(old, new)

    def update_waiting(self, old: QueuedPod | None, pod_info: QueuedPodInfo, /) -> SubQueue:
        """Move a pod that has changed outside its status, after its backoff."""
        if old is not None and old.digest == pod_info.pod.digest:
            self.to_unschedulable(pod_info, POD_UPDATE.label)
            return SubQueue.UNSCHEDULABLE
        return self.requeue(pod_info, _AFTER_BACKOFF, POD_UPDATE.label)

    def requeue_failed(self, pod_info: QueuedPodInfo, cycle: int, /) -> SubQueue:
        """Let the pod back off if a move came in or after its cycle, or no plugin refused it."""
        if self._parts.move_request_cycle >= cycle or not pod_info.is_unschedulable:
            return self.to_backoff(pod_info, results.SCHEDULE_ATTEMPT_FAILURE)
        self.to_unschedulable(pod_info, results.SCHEDULE_ATTEMPT_FAILURE)
        return SubQueue.UNSCHEDULABLE

    def record_activate(self, _pod: PodRef, /) -> None:
        """Record a move request, because the pod may be in flight."""
        self._parts.record_move()

    def hint_state(self) -> HintState:
        """Return the unregistered plugins; without hints, no events are recorded."""
        return HintState(unregistered_plugins=self._hint_map.unregistered_plugins)

    def restore(self, state: HintState, /) -> None:
        """Set the unregistered plugins."""
        self._hint_map.add_refusing(state.unregistered_plugins)
