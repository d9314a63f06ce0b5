"""v1.34 without queueing hints: move counters, as before, but by registered events.

Source: kubernetes v1.34 pkg/scheduler/backend/queue/scheduling_queue.go, feature gate
SchedulerQueueingHints off.
"""

from __future__ import annotations

from services.queue.core import incoming
from services.queue.core.cluster_event import POD_UPDATE
from services.queue.core.entry import Entry
from services.queue.core.happening import Happening
from services.queue.core.incoming import SubQueue
from services.queue.core.pod import PodRef, QueuedPod
from services.queue.core.rules import InFlightRecord
from services.queue.core.rules_v134 import RulesV134


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
            return self.to_backoff(entry, incoming.SCHEDULE_ATTEMPT_FAILURE)
        self.park(entry, incoming.SCHEDULE_ATTEMPT_FAILURE)
        return SubQueue.UNSCHEDULABLE

    def is_duplicate(self, _entry: Entry, /) -> bool:
        """Answer no: a pod can be in flight twice."""
        return False

    def begun(self, uid: str, /) -> None:
        """Do nothing: the cycle says it all."""

    def ended(self, uid: str, /) -> None:
        """Do nothing: the cycle says it all."""

    def noted(self, happening: Happening, /) -> None:
        """Do nothing: the move counter says it."""

    def not_activated(self, _pod: PodRef, /) -> None:
        """Note a move request: the pod may be in flight."""
        self._parts.note_move()

    def close(self) -> None:
        """Do nothing: what is in flight stays so."""

    def record(self) -> InFlightRecord:
        """Return the unregistered plugins: no event is remembered."""
        return InFlightRecord(strangers=self._registered.strangers)

    def restore(self, record: InFlightRecord, /) -> None:
        """Take over the unregistered plugins."""
        self._registered.meet(record.strangers)
