"""What differs between the versions of the queue: one object of rules, chosen by the mode.

The queue itself has what does not differ: time, pops by id, heads and commits, nominations,
leases, and the state as values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from services.queue.core.cluster_event import Happening
from services.queue.core.entry import Entry, Failure
from services.queue.core.incoming import SubQueue
from services.queue.core.outcome import AlreadyPresent, PresentTexts, Requeued
from services.queue.core.parts import QueueParts
from services.queue.core.pod import AssignedPod, PodRef, QueuedPod


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveFilter:
    """Which pods an event may move at all: those of at most a priority, all but one pod."""

    priority_at_most: int | None = None
    all_but_uid: str = ""

    @property
    def passes_all(self) -> bool:
        """Tell whether nothing is kept back."""
        return self.priority_at_most is None and not self.all_but_uid

    def passes(self, pod: QueuedPod) -> bool:
        """Tell whether `pod` may be moved."""
        limit = self.priority_at_most
        return (limit is None or pod.priority <= limit) and pod.uid != self.all_but_uid


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlightRecord:
    """What hint rules remember of pods in flight: see InFlightEvents.pods and events."""

    pods: tuple[tuple[str, int], ...] = ()
    events: tuple[Happening, ...] = ()
    strangers: tuple[str, ...] = ()


_NOTHING = InFlightRecord()


class Forgetful:
    """Rules that remember nothing of pods in flight, unless they say otherwise."""

    __slots__ = ()

    def begun(self, uid: str, /) -> None:
        """Note that a pod is in flight."""

    def ended(self, uid: str, /) -> None:
        """Note that a pod is no longer in flight."""

    def close(self) -> None:
        """Note that the queue is closed."""

    def record(self) -> InFlightRecord:
        """Return what is remembered of pods in flight: nothing, but by queueing hints."""
        return _NOTHING

    def restore(self, record: InFlightRecord, /) -> None:
        """Take over what `record` returned."""


class QueueRules(Forgetful, ABC):
    """One version's behaviour over the shared parts; the time has been advanced before.

    `added_by` is the event that new pods are counted by, `present` upstream's words for a failed
    pod that is queued already.
    """

    __slots__ = ("_parts", "_present", "_queues")

    added_by: ClassVar[str]

    def __init__(self, parts: QueueParts, present: PresentTexts) -> None:
        self._parts = parts
        self._queues = parts.queues
        self._present = present

    @abstractmethod
    def add(self, pod: QueuedPod, /) -> None:
        """Take in a new pod."""

    @abstractmethod
    def update(self, old: QueuedPod | None, new: QueuedPod, /) -> SubQueue | None:
        """Take over a pod's new version; return where it stands, None while in flight."""

    @abstractmethod
    def delete(self, pod: PodRef, /) -> None:
        """Drop what stands in the sub-queues; the nomination has gone."""

    @abstractmethod
    def upcoming(self, count: int, /) -> list[Entry]:
        """Return what the next `count` pops would take, in order."""

    @abstractmethod
    def next(self) -> Entry | None:
        """Return what `take` would take out."""

    @abstractmethod
    def take(self) -> Entry | None:
        """Take out what is popped now, None where nothing can be."""

    @abstractmethod
    def give_back(
        self, stay: Entry, pod: QueuedPod, failure: Failure, cycle: int, /
    ) -> Requeued | AlreadyPresent:
        """Take back a pod whose cycle failed, after the stay that its pop ended.

        `cycle` is what older rules compare.
        """

    @abstractmethod
    def put_back(self, entry: Entry, /) -> None:
        """Undo a pop: the stay goes on as it was, unless a plugin holds the pod by now."""

    @abstractmethod
    def move(self, happening: Happening, wanted: MoveFilter, /) -> int:
        """Move pods because of an event; return how many."""

    @abstractmethod
    def move_awaiting(self, assigned: AssignedPod, happening: Happening, /) -> int:
        """Move pods that an assigned pod's event may help; return how many."""

    @abstractmethod
    def activate(self, pods: Iterable[PodRef], /) -> int:
        """Make waiting pods active at once; return how many."""

    @abstractmethod
    def flush_backoff(self) -> int:
        """Make active what has backed off long enough; return how many."""

    @abstractmethod
    def flush_leftover(self, before_ns: int, /) -> int:
        """Move what has been unschedulable since before `before_ns`; return how many."""
