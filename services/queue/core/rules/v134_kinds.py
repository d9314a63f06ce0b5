"""v1.34's two kinds: with queueing hints and without.

With hints a refused pod waits for an event that one of its plugins names. What happens while a pod
is in flight is remembered until it comes back; its own updates are events too. Without them move
counters decide, as before, but by registered events.

Source: kubernetes v1.34 pkg/scheduler/backend/queue/scheduling_queue.go, feature gate
SchedulerQueueingHints on and off.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.kube.pod import PodSpec
from services.kube.requests import scaled_down
from services.queue.core import results
from services.queue.core.cluster_event import (
    FORCE_ACTIVATE,
    POD_UPDATE,
    Action,
    Happening,
    pod_update,
)
from services.queue.core.in_flight import InFlightEvents
from services.queue.core.queued_pod import Entry, PodRef, QueuedPod
from services.queue.core.registrations import Registrations, Verdict
from services.queue.core.results import PresentTexts, SubQueue
from services.queue.core.rules.rules import InFlightRecord, QueueParts
from services.queue.core.rules.v134 import RulesV134

# Members by name: Python 3.11 looks them up in their class by calling a function.
_SKIP, _AFTER_BACKOFF, _AT_ONCE = Verdict.SKIP, Verdict.AFTER_BACKOFF, Verdict.AT_ONCE


class HintRules(RulesV134):
    """The in-flight events decide where a pod goes that comes back."""

    __slots__ = ("_in_flight",)

    def __init__(
        self,
        parts: QueueParts,
        present: PresentTexts,
        registered: Registrations,
        *,
        pops_backing_off: bool,
    ) -> None:
        super().__init__(parts, present, registered, pops_backing_off=pops_backing_off)
        self._in_flight = InFlightEvents()

    def update(self, old: QueuedPod | None, new: QueuedPod, /) -> SubQueue | None:
        """Take over a pod's new version; one in flight is only noted, and judged later."""
        if new.uid in self._in_flight:
            self._in_flight.note_for(new.uid, _happenings(old, new))
            self._parts.pops.renew_pod(new)
            return None
        return self.update_queued(old, new)

    def update_waiting(self, old: QueuedPod | None, entry: Entry, /) -> SubQueue:
        """Ask the refusing plugins about each thing that has changed, until one moves the pod."""
        where = SubQueue.UNSCHEDULABLE
        for happening in _happenings(old, entry.pod):
            verdict = self._registered.verdict(entry, happening)
            where = self.requeue(entry, verdict, happening.event.label)
            if where is SubQueue.ACTIVE or (
                self._pops_backing_off and where is not SubQueue.UNSCHEDULABLE
            ):
                break
            entry = self._queues.unschedulable.get(entry.key) or entry
        return where

    def requeue_failed(self, entry: Entry, _cycle: int, /) -> SubQueue:
        """Put a pod back as what has happened since its pop says."""
        verdict = self._since_pop(entry)
        if verdict is _SKIP:
            return self._queues.park(entry, results.SCHEDULE_ATTEMPT_FAILURE)
        return self.requeue(entry, verdict, results.SCHEDULE_ATTEMPT_FAILURE)

    def _since_pop(self, entry: Entry) -> Verdict:
        """Return the best verdict of the events since the pop.

        A pod that no plugin refused is tried again, and so is one that is not in flight.
        Source: kubernetes v1.34 determineSchedulingHintForInFlightPod.
        """
        happenings = self._in_flight.since_pop_of(entry.pod.uid)
        if happenings is None or not entry.failed_by_plugins:
            return _AFTER_BACKOFF
        best = _SKIP
        waits = bool(entry.failure and entry.failure.pending_plugins)
        for happening in happenings:
            verdict = self._registered.verdict(entry, happening)
            if verdict is _SKIP:
                continue
            best = verdict
            if verdict is _AT_ONCE or not waits:
                break
        return best

    def is_duplicate(self, entry: Entry, /) -> bool:
        """Tell whether the pod is in flight."""
        return entry.pod.uid in self._in_flight

    def begun(self, uid: str, /) -> None:
        """Remember events for the pod from now on."""
        self._in_flight.begin(uid)

    def ended(self, uid: str, /) -> None:
        """Remember events for the pod no longer."""
        self._in_flight.end(uid)

    def noted(self, happening: Happening, /) -> None:
        """Remember an event, if any pod is in flight."""
        self._in_flight.note(happening)

    def not_activated(self, pod: PodRef, /) -> None:
        """Remember that a pod in flight was asked for."""
        self._in_flight.note_for(pod.uid, [Happening(event=FORCE_ACTIVATE, new=pod)])
        self._parts.note_move()

    def close(self) -> None:
        """Forget what is in flight: nobody will be judged by it."""
        self._in_flight.clear()

    def record(self) -> InFlightRecord:
        """Return the pods in flight, the events since, and the unregistered plugins."""
        return InFlightRecord(
            pods=self._in_flight.pods(),
            events=self._in_flight.events(),
            strangers=self._registered.strangers,
        )

    def restore(self, record: InFlightRecord, /) -> None:
        """Take over what `record` returned."""
        self._in_flight.restore(record.pods, record.events)
        self._registered.meet(record.strangers)


class NoHintRules(RulesV134):
    """A move request in or after a pod's cycle sends it to backoffQ."""

    __slots__ = ()

    def update(self, old: QueuedPod | None, new: QueuedPod, /) -> SubQueue:
        """Take over a pod's new version; one in flight is queued as a second copy."""
        return self.update_queued(old, new)

    def update_waiting(self, old: QueuedPod | None, entry: Entry, /) -> SubQueue:
        """Move a pod that has changed outside its status, after its backoff."""
        if old is not None and old.digest == entry.pod.digest:
            self.park(entry, POD_UPDATE.label)
            return SubQueue.UNSCHEDULABLE
        if self._backs_off(entry):
            return self.to_backoff(entry, POD_UPDATE.label)
        active = self.to_active(entry, POD_UPDATE.label)
        return SubQueue.ACTIVE if active else SubQueue.UNSCHEDULABLE

    def requeue_failed(self, entry: Entry, cycle: int, /) -> SubQueue:
        """Let a pod back off if pods were moved since its cycle, or no plugin refused it."""
        if self._parts.move_request_cycle >= cycle or not entry.failed_by_plugins:
            return self.to_backoff(entry, results.SCHEDULE_ATTEMPT_FAILURE)
        self.park(entry, results.SCHEDULE_ATTEMPT_FAILURE)
        return SubQueue.UNSCHEDULABLE

    def not_activated(self, _pod: PodRef, /) -> None:
        """Note a move request: the pod may be in flight."""
        self._parts.note_move()

    def record(self) -> InFlightRecord:
        """Return the unregistered plugins: no event is remembered."""
        return InFlightRecord(strangers=self._registered.strangers)

    def restore(self, record: InFlightRecord, /) -> None:
        """Take over the unregistered plugins."""
        self._registered.meet(record.strangers)


def _happenings(old: QueuedPod | None, new: QueuedPod) -> list[Happening]:
    """Return the events of a waiting pod's change, in upstream's order; one at least.

    An update that changes nothing that upstream looks for is the general one, and so is one
    whose old version nobody knows.
    Source: kubernetes v1.34 pkg/scheduler/framework/events.go, PodSchedulingPropertiesChange.
    """
    parts = () if old is None else _changed(old.labels, new.labels, old.spec, new.spec)
    events = (pod_update(part, assigned=False) for part in parts or (Action.UPDATE,))
    return [Happening(event=event, old=old, new=new) for event in events]


def _changed(
    old_labels: Mapping[str, str],
    new_labels: Mapping[str, str],
    old: PodSpec | None,
    new: PodSpec | None,
) -> tuple[Action, ...]:
    parts: list[Action] = []
    if old_labels is not new_labels and dict(old_labels) != dict(new_labels):
        parts.append(Action.UPDATE_POD_LABEL)
    if old is None or new is None or old is new:
        return tuple(parts)
    if scaled_down(old, new):
        parts.append(Action.UPDATE_POD_SCALE_DOWN)
    if old.scheduling_gates and not new.scheduling_gates:
        parts.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    if len(old.tolerations) != len(new.tolerations):
        parts.append(Action.UPDATE_POD_TOLERATION)
    return tuple(parts)
