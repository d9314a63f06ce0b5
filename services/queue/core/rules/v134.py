"""The rules of v1.34: gates, an error backoff, pops from backoffQ, and events that concern few.

Two kinds share them (rules_v134_kinds.py): with queueing hints events decide what a refused pod
waits for, without them the move counters of the older versions do.

Upstream changes a stay in place; here a changed stay replaces the one that it was, where that
one stands.

Source: kubernetes v1.34 pkg/scheduler/backend/queue/scheduling_queue.go, PriorityQueue.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import ClassVar

from services.queue.core import results
from services.queue.core.cluster_event import (
    POD_ADD,
    POD_UPDATE,
    UNSCHEDULABLE_TIMEOUT,
    Happening,
    event_of,
)
from services.queue.core.queued_pod import AssignedPod, Entry, Failure, PodRef, QueuedPod
from services.queue.core.registrations import Registrations, Verdict
from services.queue.core.results import AlreadyPresent, PresentTexts, Requeued, SubQueue
from services.queue.core.rules.rules import MoveFilter, QueueParts, QueueRules

SPREAD = "PodTopologySpread"
FORCE_ACTIVATE = "ForceActivate"
REQUEUED = {queue: Requeued(queue=queue) for queue in SubQueue}
_NO_FAILURE = Failure()
_NO_FILTER = MoveFilter()
_UPDATED = POD_UPDATE.label
_RENOMINATED_BY = frozenset({POD_ADD.label, _UPDATED})
_SCALE_DOWN = event_of("PodUpdatePodScaleDown")
_TIMEOUT = Happening(event=UNSCHEDULABLE_TIMEOUT)

# Members by name: Python 3.11 looks them up in their class by calling a function.
_ACTIVE, _UNSCHEDULABLE = SubQueue.ACTIVE, SubQueue.UNSCHEDULABLE
_SKIP, _AFTER_BACKOFF = Verdict.SKIP, Verdict.AFTER_BACKOFF


class RulesV134(QueueRules):
    """What v1.34 does with queueing hints and without; `pops_backing_off` is a feature gate."""

    __slots__ = ("_pops_backing_off", "_registered")

    added_by: ClassVar[str] = POD_ADD.label

    def __init__(
        self,
        parts: QueueParts,
        present: PresentTexts,
        registered: Registrations,
        *,
        pops_backing_off: bool,
    ) -> None:
        super().__init__(parts, present)
        self._registered = registered
        self._pops_backing_off = pops_backing_off

    # What the two kinds do in their own way.

    @abstractmethod
    def update_waiting(self, old: QueuedPod | None, entry: Entry, /) -> SubQueue:
        """Judge an unschedulable pod that has changed; `entry` has its new version."""

    @abstractmethod
    def requeue_failed(self, entry: Entry, cycle: int, /) -> SubQueue:
        """Put a pod back whose cycle failed."""

    def is_duplicate(self, _entry: Entry, /) -> bool:
        """Tell whether the pod is in flight already, so that a pop drops this copy of it."""
        return False

    def noted(self, happening: Happening, /) -> None:
        """Remember an event for the pods in flight."""

    @abstractmethod
    def not_activated(self, pod: PodRef, /) -> None:
        """Remember, for a pod in flight, that it was asked for."""

    # Pods come, change and go.

    def add(self, pod: QueuedPod, /) -> None:
        """Make a new pod active, unless a PreEnqueue plugin holds it back.

        A gated one is dropped where the queue holds something of its name.
        """
        self.to_active(self._new_entry(pod), self.added_by)

    def update_queued(self, old: QueuedPod | None, new: QueuedPod) -> SubQueue:
        """Take over a pod's new version, where it is not in flight.

        An active pod or one that backs off stays where it is, without being gated anew.
        """
        waiting = self._queues.unschedulable.get(new.key)
        if waiting is not None:
            new = _of_same_kind(waiting.pod, new)
        if old is not None:
            for where, heap in (
                (SubQueue.ACTIVE, self._queues.active),
                (SubQueue.BACKOFF, self._queues.backoff),
                (SubQueue.ERROR_BACKOFF, self._queues.error_backoff),
            ):
                entry = heap.get(new.key)
                if entry is not None:
                    heap.put(entry.with_pod(new))
                    if waiting is not None and waiting.sequence == entry.sequence:
                        self._queues.unschedulable.replace(entry.with_pod(new))
                    self._parts.nominator.follow_update(old, new)
                    return where
        if waiting is not None:
            changed = waiting.with_pod(new)
            self._queues.unschedulable.replace(changed)
            self._parts.nominator.follow_update(old, new)
            return self.update_waiting(old, changed)
        active = self.to_active(self._new_entry(new), _UPDATED)
        return SubQueue.ACTIVE if active else SubQueue.GATED

    def _new_entry(self, pod: QueuedPod) -> Entry:
        """Return a pod's first stay; the first attempt counts from when it is let in."""
        return self._parts.new_entry(pod, None if pod.gates else self._parts.now_ns)

    def delete(self, pod: PodRef, /) -> None:
        """Drop the pod's entry: the active one, else one that backs off, else an unschedulable."""
        key, queues = pod.key, self._queues
        if queues.active.remove(key) is None and queues.remove_backing_off(key) is None:
            queues.unschedulable.remove(key)

    # Scheduling cycles begin and end.

    def upcoming(self, count: int, /) -> list[Entry]:
        """Return the first active entries, then those that back off, but for duplicates."""
        found: list[Entry] = []
        seen: set[str] = set()
        for entry in self._in_pop_order():
            if len(found) == count:
                break
            if entry.pod.uid not in seen and not self.is_duplicate(entry):
                seen.add(entry.pod.uid)
                found.append(entry)
        return found

    def _in_pop_order(self) -> Iterator[Entry]:
        active = self._queues.active.in_order()
        return chain(active, self._queues.backoff.in_order()) if self._pops_backing_off else active

    def next(self) -> Entry | None:
        """Return the first entry that is no duplicate."""
        first = self._queues.active.peek()
        if first is None and self._pops_backing_off:
            first = self._queues.backoff.peek()
        if first is None or not self.is_duplicate(first):
            return first
        return next(iter(self.upcoming(1)), None)

    def take(self) -> Entry | None:
        """Take out the next pod, from backoffQ where activeQ has none; duplicates are dropped."""
        while (entry := self._queues.active.pop()) is not None:
            if not self.is_duplicate(entry):
                return entry
        while self._pops_backing_off and (entry := self._queues.backoff.pop()) is not None:
            self._queues.incoming.record((_ACTIVE, results.POP_FROM_BACKOFF_Q))
            if not self.is_duplicate(entry):
                return entry
        return None

    def give_back(
        self, stay: Entry, pod: QueuedPod, failure: Failure, cycle: int, /
    ) -> Requeued | AlreadyPresent:
        """Take back a pod whose cycle failed, by plugins or by an error, and end the pop.

        Source: kubernetes v1.34 scheduling_queue.go, AddUnschedulableIfNotPresent.
        """
        present = self._queues.where(pod.key)
        if present is not None:
            self.ended(pod.uid)
            return AlreadyPresent(queue=present, text=self._present.text(present, pod))
        if failure.error:
            failure = _NO_FAILURE
        by_plugins = failure.is_refusal
        self._registered.meet(failure.plugins)
        self._registered.meet(failure.pending_plugins)
        parts = self._parts
        entry = Entry(
            pod,
            parts.now_ns,
            stay.initial_attempt_ns,
            stay.attempts + 1,
            parts.next_sequence(),
            failure,
            stay.refusals + by_plugins,
            0 if by_plugins else stay.errors + 1,
        )
        where = self.requeue_failed(entry, cycle)
        self.ended(pod.uid)
        return REQUEUED[where]

    def put_back(self, entry: Entry, /) -> None:
        """Make a stay active in its old place, unless a plugin holds the pod by now."""
        self.to_active(entry, results.POP_UNDONE)

    # Time passes and the cluster changes.

    def move(self, happening: Happening, wanted: MoveFilter, /) -> int:
        """Move the pods to which some plugin that refused them says that the event may help.

        An event that interests no plugin does nothing at all; any other is remembered for
        the pods in flight, also if it moves nothing.
        """
        event = happening.event
        if not self._registered.interesting(event):
            return 0
        if event.is_wildcard:
            waiting = self._queues.unschedulable.entries()
            return self._move_each((e for e in waiting if wanted.passes(e.pod)), happening)
        moved = 0
        for (failure, gate), members in self._queues.unschedulable.groups():
            if gate and not self._registered.concerns(gate, event):
                continue
            plan = self._registered.plan(event, failure)
            if plan.settled is _SKIP:
                continue
            for entry in tuple(members.values()):
                if wanted.passes(entry.pod):
                    moved += self._act(entry, plan.verdict(entry.pod, happening), happening)
        self._moved(happening)
        return moved

    def move_awaiting(self, assigned: AssignedPod, happening: Happening, /) -> int:
        """Do the same for pods with a matching required affinity term, or refused by spread.

        An assigned pod that asks for less makes room, which may help any pod.
        Source: kubernetes v1.34 AssignedPodUpdated, getUnschedulablePodsWithCrossTopologyTerm.
        """
        if _SCALE_DOWN.covers(happening.event):
            return self.move(happening, _NO_FILTER)
        if not self._registered.interesting(happening.event):
            return 0
        queued = {entry.key: entry for entry in self._queues.unschedulable.awaiting(assigned)}
        for (failure, _gate), members in self._queues.unschedulable.groups():
            if failure is not None and SPREAD in failure.plugins:
                queued |= {
                    key: entry for key, entry in members.items() if key[0] == assigned.namespace
                }
        return self._move_each(queued.values(), happening)

    def activate(self, pods: Iterable[PodRef], /) -> int:
        """Make pods active that are unschedulable or back off, whatever their backoff.

        Others are ignored, but one in flight is requeued when it comes back.
        """
        activated = 0
        for pod in pods:
            if self._activate(pod):
                activated += 1
            else:
                self.not_activated(pod)
        return activated

    def _activate(self, pod: PodRef) -> bool:
        waiting = self._queues.unschedulable.get(pod.key)
        if waiting is not None:
            return self.to_active(waiting, FORCE_ACTIVATE)
        backing_off = self._queues.remove_backing_off(pod.key)
        return backing_off is not None and self.to_active(
            backing_off, FORCE_ACTIVATE, from_backoff=True
        )

    def flush_backoff(self) -> int:
        """Make active what has backed off long enough, errors last."""
        due: list[Entry] = []
        for heap in (self._queues.backoff, self._queues.error_backoff):
            while (entry := heap.pop_due(self._parts.now_ns)) is not None:
                due.append(entry)
        return sum(
            self.to_active(entry, results.BACKOFF_COMPLETE, from_backoff=True) for entry in due
        )

    def flush_leftover(self, before_ns: int, /) -> int:
        """Move what has stayed too long, as an event for all plugins but those that gate."""
        leftover = self._queues.unschedulable.older(before_ns)
        return self._move_each(leftover, _TIMEOUT) if leftover else 0

    def _move_each(self, entries: Iterable[Entry], happening: Happening) -> int:
        moved = 0
        for entry in tuple(entries):
            if not entry.gate or self._registered.concerns(entry.gate, happening.event):
                verdict = self._registered.verdict(entry, happening)
                moved += self._act(entry, verdict, happening)
        self._moved(happening)
        return moved

    def _act(self, entry: Entry, verdict: Verdict, happening: Happening) -> bool:
        if verdict is _SKIP:
            return False
        self._queues.unschedulable.remove(entry.key)
        where = self.requeue(entry, verdict, happening.event.label)
        return where is not _UNSCHEDULABLE

    def _moved(self, happening: Happening) -> None:
        self._parts.note_move()
        self.noted(happening)

    # Where a stay goes next.

    def requeue(self, entry: Entry, verdict: Verdict, event: str) -> SubQueue:
        """Put a stay where `verdict` sends it.

        Source: kubernetes v1.34 requeuePodWithQueueingStrategy.
        """
        if verdict is _SKIP:
            self.park(entry, event)
            return _UNSCHEDULABLE
        if verdict is _AFTER_BACKOFF and self._backs_off(entry):
            return self.to_backoff(entry, event)
        return _ACTIVE if self.to_active(entry, event) else _UNSCHEDULABLE

    def to_active(self, entry: Entry, event: str, *, from_backoff: bool = False) -> bool:
        """Make a stay active if no PreEnqueue plugin holds it; tell whether it is.

        Where backoffQ can be popped from, PreEnqueue was asked on the way into it.
        Source: kubernetes v1.34 moveToActiveQ.
        """
        asked = entry
        if (entry.gate or entry.pod.gates) and not (from_backoff and self._pops_backing_off):
            asked = _pre_enqueued(entry)
        key = asked.key
        if asked.gate:
            if key not in self._queues.active and not self._queues.backs_off(key):
                self._hold(asked, entry, event)
            return False
        if asked.initial_attempt_ns is None:
            asked = asked._replace(initial_attempt_ns=self._parts.now_ns)
        self._queues.leave_waiting(key)
        self._queues.activate(asked, event)
        if event in _RENOMINATED_BY:
            self._parts.nominator.follow_status(asked.pod)
        return True

    def to_backoff(self, entry: Entry, event: str) -> SubQueue:
        """Let a stay back off; where backoffQ can be popped from, if no plugin holds it.

        Source: kubernetes v1.34 moveToBackoffQ, backoffQueue.add.
        """
        asked = entry
        if self._pops_backing_off:
            asked = _pre_enqueued(entry)
            if asked.gate:
                self._hold(asked, entry, event)
                return _UNSCHEDULABLE
        self._queues.leave_waiting(asked.key)
        if asked.failed_by_plugins:
            return self._queues.back_off(asked, event)
        return self._queues.back_off_error(asked, event)

    def park(self, entry: Entry, event: str) -> None:
        """Put a stay among the unschedulable pods, in the place of one of its pod."""
        unschedulable = self._queues.unschedulable
        known = unschedulable.get(entry.key)
        if known is None:
            self._queues.park(entry, event)
        elif known.timestamp_ns == entry.timestamp_ns:
            unschedulable.replace(entry)  # in its place, as most updates leave it
        else:
            unschedulable.remove(entry.key)
            unschedulable.put(entry)

    def _hold(self, gated: Entry, entry: Entry, event: str) -> None:
        known = self._queues.unschedulable.get(gated.key)
        if known is None:
            self._queues.park(gated, event)
        elif known.sequence == entry.sequence:  # the same stay
            self._queues.unschedulable.replace(gated)

    def _backs_off(self, entry: Entry) -> bool:
        return self._parts.policy.backs_off(entry, self._parts.now_ns)


def _of_same_kind(old: QueuedPod, new: QueuedPod) -> QueuedPod:
    """Return the new version with what the old one was spread by, for as long as labels stay."""
    if old.spread_selector is None or old.labels != new.labels:
        return new
    return new._replace(spread_selector=old.spread_selector)


def _pre_enqueued(entry: Entry) -> Entry:
    """Return the stay as PreEnqueue leaves it: the plugin that held it is asked first.

    Source: kubernetes v1.34 scheduling_queue.go, runPreEnqueuePlugins.
    """
    gates = entry.pod.gates
    if not gates:
        return entry._replace(gate="") if entry.gate else entry
    gate = entry.gate if entry.gate in gates else gates[0]
    failure = (entry.failure or _NO_FAILURE).also_by(gate)
    return entry._replace(gate=gate, failure=failure)
