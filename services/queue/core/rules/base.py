"""Base class for the queue rules of each Kubernetes version, and the state that they change.

scheduling_queue.py has the behaviour that all versions share: time, pops by ID, heads and commits,
nominations and leases.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from services.framework.cluster_event import ObjectEvent
from services.queue.core.backoff import BackoffPolicy, FlushTicks
from services.queue.core.in_flight import InFlightPods
from services.queue.core.nominator import Nominator
from services.queue.core.queued_pod import (
    AssignedPod,
    Failure,
    InFlightPod,
    PodRef,
    QueuedPod,
    QueuedPodInfo,
)
from services.queue.core.results import (
    AfterAttempts,
    AlreadyPresent,
    AlreadyPresentTexts,
    Counts,
    Requeued,
    SubQueue,
)
from services.queue.core.sub_queues import SubQueues

NO_MOVE_YET = -1


class QueueParts:
    """The sub-queues, the nominator, the pods in flight, the flushes, and the counters.

    `finished` counts the pods whose pop ended without a failure, by their number of attempts.
    `move_request_cycle` is the scheduling cycle of the last move request; NO_MOVE_YET before any.
    """

    __slots__ = (
        "closed",
        "finished",
        "flushes",
        "in_flight",
        "move_request_cycle",
        "nominator",
        "now_ns",
        "policy",
        "queues",
        "scheduling_cycle",
        "sequence",
    )

    def __init__(
        self, policy: BackoffPolicy, *, ranked: bool, lease_ns: int, max_unschedulable_ns: int
    ) -> None:
        self.policy = policy
        self.queues = SubQueues(policy, ranked=ranked)
        self.nominator = Nominator()
        self.in_flight = InFlightPods(lease_ns)
        self.flushes = FlushTicks(max_unschedulable_ns=max_unschedulable_ns)
        self.finished = Counts[int]()
        self.now_ns = 0
        self.scheduling_cycle = 0
        self.move_request_cycle = NO_MOVE_YET
        self.sequence = 0
        self.closed = False

    def advance(self, now_ns: int) -> None:
        """Set the time; it must not decrease."""
        assert now_ns >= self.now_ns, "time goes back"
        self.now_ns = now_ns

    def new_pod_info(self, pod: QueuedPod, initial_attempt_ns: int | None) -> QueuedPodInfo:
        """Return the QueuedPodInfo of a pod that is added now, without attempts."""
        self.sequence = sequence = self.sequence + 1
        return QueuedPodInfo(pod, self.now_ns, initial_attempt_ns, 0, sequence)

    def latest(self, pod: PodRef) -> QueuedPod | None:
        """Return the pod's version in the queue, or else in flight; None for an unknown pod."""
        queued = self.queues.latest(pod)
        return queued or self.in_flight.latest(pod.uid)

    def next_sequence(self) -> int:
        """Return the next sequence number, which breaks ties."""
        self.sequence += 1
        return self.sequence

    def record_move(self) -> None:
        """Record a move request in the current scheduling cycle."""
        self.move_request_cycle = self.scheduling_cycle

    def as_popped(self, pod_info: QueuedPodInfo, cycle: int, owner: str = "") -> InFlightPod:
        """Return the pod as popped in scheduling cycle `cycle`."""
        return InFlightPod(pod_info, cycle, self.nominator.node_of(pod_info.pod.uid), owner)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreEnqueueCheck:
    """Limits the pods that an event may move: a maximum priority, and a UID to exclude.

    Source: kubernetes v1.34 pkg/scheduler/backend/queue/scheduling_queue.go, PreEnqueueCheck;
    pkg/scheduler/eventhandlers.go, getLEPriorityPreCheck.
    """

    priority_at_most: int | None = None
    all_but_uid: str = ""

    @property
    def passes_all(self) -> bool:
        """Whether every pod passes."""
        return self.priority_at_most is None and not self.all_but_uid

    def passes(self, pod: QueuedPod) -> bool:
        """Return whether `pod` may be moved."""
        limit = self.priority_at_most
        return (limit is None or pod.priority <= limit) and pod.uid != self.all_but_uid


@dataclass(frozen=True, slots=True, kw_only=True)
class HintState:
    """The state that queueing hints need; fields as in InFlightEvents and QueueingHintMap."""

    pods: tuple[tuple[str, int], ...] = ()
    events: tuple[ObjectEvent, ...] = ()
    unregistered_plugins: tuple[str, ...] = ()


class QueueRules(ABC):
    """One version's behaviour on the shared parts; the caller sets the time before each call.

    `added_by` is the event under which new pods are counted. `present` has upstream's errors for a
    failed pod that is already queued. `nominates_without_node`: whether a pod can be nominated to
    the node "".
    """

    __slots__ = ("_parts", "_present", "_queues")

    added_by: ClassVar[str]
    nominates_without_node: ClassVar[bool]

    def __init__(self, parts: QueueParts, present: AlreadyPresentTexts) -> None:
        self._parts = parts
        self._queues = parts.queues
        self._present = present

    @abstractmethod
    def enqueue(self, pod: QueuedPod, /) -> None:
        """Add a new pod."""

    @abstractmethod
    def update(self, old: QueuedPod | None, new: QueuedPod, /) -> SubQueue | None:
        """Replace a pod by its new version; return its sub-queue, None for a pod in flight."""

    @abstractmethod
    def delete(self, pod: PodRef, /) -> None:
        """Remove the pod from the sub-queues; the caller has removed its nomination."""

    @abstractmethod
    def heads(self, count: int, /) -> list[QueuedPodInfo]:
        """Return the pods that the next `count` pops would take, in order."""

    @abstractmethod
    def next(self) -> QueuedPodInfo | None:
        """Return the pod that `take` would take."""

    @abstractmethod
    def take(self) -> QueuedPodInfo | None:
        """Remove and return the next pod; None if Pop would block."""

    @abstractmethod
    def add_unschedulable(
        self, popped: QueuedPodInfo, pod: QueuedPod, failure: Failure, cycle: int, /
    ) -> Requeued | AlreadyPresent:
        """Requeue a pod whose cycle failed; `popped` is its QueuedPodInfo at the pop.

        Older versions compare `cycle` with the last move request's.
        """

    @abstractmethod
    def undo_pop(self, pod_info: QueuedPodInfo, /) -> None:
        """Put a popped pod back into activeQ unchanged, unless a PreEnqueue plugin rejects it."""

    @abstractmethod
    def move(self, object_event: ObjectEvent, pre_check: PreEnqueueCheck, /) -> int:
        """Move pods because of an event; return how many."""

    @abstractmethod
    def move_for_assigned(self, assigned: AssignedPod, object_event: ObjectEvent, /) -> int:
        """Move the pods that an event of an assigned pod may make schedulable; return how many."""

    @abstractmethod
    def activate(self, pods: Iterable[PodRef], /) -> int:
        """Make pods active at once; return how many."""

    @abstractmethod
    def flush_backoff(self) -> int:
        """Make active the pods whose backoff is over; return how many."""

    @abstractmethod
    def flush_leftover(self, before_ns: int, /) -> int:
        """Move the pods that have been unschedulable since before `before_ns`; return how many."""

    def after_attempts(self, heads: int, at_ns: int, /) -> AfterAttempts | None:
        """Return what follows if the first `heads` pods are tried at `at_ns`; None: unknown.

        Known where no other pod can be popped, and only by v1.34's rules: before, a pod may have a
        second copy in the queue, and a failed one may find it there.
        """
        del heads, at_ns
        return None

    # Only rules with queueing hints record events for pods in flight.

    def begin_in_flight(self, uid: str, /) -> None:  # noqa: B027 - see above
        """Record events for a pod from its pop on."""

    def end_in_flight(self, uid: str, /) -> None:  # noqa: B027 - see above
        """Stop recording events for a pod."""

    def recorded_events(self) -> int:
        """Return the number of events recorded for pods in flight."""
        return 0

    def close(self) -> None:  # noqa: B027 - see above
        """Drop the recorded events as the queue closes."""

    def hint_state(self) -> HintState:
        """Return the state of queueing hints that `restore` takes."""
        return _NO_HINT_STATE

    def restore(self, state: HintState, /) -> None:  # noqa: B027 - see above
        """Restore a state that `hint_state` returned."""


_NO_HINT_STATE = HintState()
