"""What the queue's operations return, and the names of its sub-queues.

The sub-queues by name, how many pods came into each by which event, and how pops ended.

The names are the label values of upstream's scheduler_queue_incoming_pods_total.
v1.34 counts by the labels of its cluster events, older versions by names of their own.
Source: kubernetes v1.20 internal/queue/events.go; metrics/metrics.go; v1.34
pkg/scheduler/framework/events.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Generic, TypeVar

from services.queue.core.queued_pod import Popped, QueuedPod


@dataclass(frozen=True, slots=True, kw_only=True)
class WouldBlock:
    """No pod is active: a blocking pop would wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The queue is closed and drained; `text` is upstream's error, "" where it has none."""

    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentTexts:
    """Upstream's words for a failed pod that is in a sub-queue already; {pod} is ns/name."""

    active: str
    backoff: str
    unschedulable: str

    def text(self, where: SubQueue, pod: QueuedPod) -> str:
        """Return the words for `pod` being in `where`."""
        words: str = getattr(self, where.value)
        return words.format(pod=f"{pod.namespace}/{pod.name}")


Pop = Popped | WouldBlock | Closed
"""What a pop answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotNext:
    """A commit of a pop that Pop would not return at this moment; nothing has changed by it.

    `next` is what it would return. Of several commits at once, `committed` went before.
    """

    next: Pop
    committed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeued:
    """A failed pod is back in `queue`."""

    queue: SubQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyPresent:
    """The pod is in `queue` already, so this copy is dropped; `text` is upstream's error."""

    queue: SubQueue
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotInFlight:
    """No such pop is in flight; nothing has changed."""


class Done(Enum):
    """What a pop that ended well answers."""

    APPLIED = "applied"
    NOT_IN_FLIGHT = "not in flight"


_K = TypeVar("_K")

POD_ADD = "PodAdd"
POD_UPDATE = "PodUpdate"
SCHEDULE_ATTEMPT_FAILURE = "ScheduleAttemptFailure"
BACKOFF_COMPLETE = "BackoffComplete"
UNSCHEDULABLE_TIMEOUT = "UnschedulableTimeout"
ASSIGNED_POD_ADD = "AssignedPodAdd"
ASSIGNED_POD_UPDATE = "AssignedPodUpdate"
POP_FROM_BACKOFF_Q = "PopFromBackoffQ"
POP_UNDONE = "PopUndone"
"""Not upstream's, which knows no holder that vanishes."""


class SubQueue(StrEnum):
    """Where an entry stands; gated pods are unschedulable ones that PreEnqueue holds back."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    ERROR_BACKOFF = "error backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"


class Counts(Generic[_K]):
    """Counts of pods by a key, since they were last taken."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[_K, int] = {}

    def record(self, key: _K, pods: int = 1) -> None:
        """Count pods more."""
        self._counts[key] = self._counts.get(key, 0) + pods

    def take(self) -> dict[_K, int]:
        """Return the counts and start over."""
        counts, self._counts = self._counts, {}
        return counts
