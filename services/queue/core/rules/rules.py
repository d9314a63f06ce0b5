"""What the versions' rules have in common, the parts that they work on, and a queue's whole state.

The queue itself has what does not differ: time, pops by id, heads and commits, nominations,
leases, and the state as values.

What every mode of the queue is composed of, and the counters that they share.

The whole state of a queue as values: what Dump shows and a checkpoint holds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from services.queue.core.backoff import BackoffPolicy, NameBackoff
from services.queue.core.cluster_event import Happening
from services.queue.core.in_flight import Pops
from services.queue.core.nominator import NodeNominations, Nominator
from services.queue.core.queued_pod import AssignedPod, Entry, Failure, PodRef, Popped, QueuedPod
from services.queue.core.results import AlreadyPresent, Counts, PresentTexts, Requeued, SubQueue
from services.queue.core.sub_queues import SubQueues


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


NO_MOVE_YET = -1


class QueueParts:
    """The sub-queues, the nominator, the pops in flight, and where the counters stand.

    `finished` counts pods by the attempts after which they ended.
    """

    __slots__ = (
        "closed",
        "finished",
        "move_request_cycle",
        "nominator",
        "now_ns",
        "policy",
        "pops",
        "queues",
        "scheduling_cycle",
        "sequence",
    )

    def __init__(self, policy: BackoffPolicy, *, ranked: bool, lease_ns: int) -> None:
        self.policy = policy
        self.queues = SubQueues(policy, ranked=ranked)
        self.nominator = Nominator()
        self.pops = Pops(lease_ns)
        self.finished = Counts[int]()
        self.now_ns = 0
        self.scheduling_cycle = 0
        self.move_request_cycle = NO_MOVE_YET
        self.sequence = 0
        self.closed = False

    def advance(self, now_ns: int) -> None:
        """Let it be `now_ns`, which is never earlier than before."""
        assert now_ns >= self.now_ns, "time goes back"
        self.now_ns = now_ns

    def new_entry(self, pod: QueuedPod, initial_attempt_ns: int | None) -> Entry:
        """Return the stay of a pod that the queue has not seen before, from now on."""
        self.sequence = sequence = self.sequence + 1
        return Entry(pod, self.now_ns, initial_attempt_ns, 0, sequence)

    def latest(self, pod: PodRef) -> QueuedPod | None:
        """Return a pod's version that is queued, or else in flight; None for any other pod."""
        queued = self.queues.latest(pod)
        return queued or self.pops.latest(pod.uid)

    def next_sequence(self) -> int:
        """Return the next tie-break."""
        self.sequence += 1
        return self.sequence

    def note_move(self) -> None:
        """Note that pods were asked to move in the current scheduling cycle."""
        self.move_request_cycle = self.scheduling_cycle

    def as_popped(self, entry: Entry, cycle: int, owner: str = "") -> Popped:
        """Return the pop of `entry` that would begin `cycle`."""
        return Popped(entry, cycle, self.nominator.node_of(entry.pod.uid), owner)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackingOff:
    """An entry of the backoffQ and when its backoff ends."""

    entry: Entry
    expiry_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """Everything that a queue knows, except its configuration.

    `active` is in pop order, `backoff` and `error_backoff` (v1.34) in the order of expiry,
    `unschedulable` by timestamp with gated pods last, `in_flight` by cycle, `name_backoffs`
    (v1.16) by last update; `record` is what queueing hints remember of pods in flight.
    `now_ns` is the last operation's time and `sequence` the last tie-break given. The flush
    times are those of the last flush of each kind, -1 for never.
    """

    mode: str
    active: tuple[Entry, ...]
    backoff: tuple[BackingOff, ...]
    unschedulable: tuple[Entry, ...]
    in_flight: tuple[Popped, ...]
    nominations: tuple[NodeNominations, ...]
    name_backoffs: tuple[NameBackoff, ...]
    now_ns: int
    scheduling_cycle: int
    move_request_cycle: int
    sequence: int
    flushed_backoff_ns: int
    flushed_leftover_ns: int
    closed: bool
    error_backoff: tuple[BackingOff, ...] = ()
    record: InFlightRecord = field(default_factory=InFlightRecord)
