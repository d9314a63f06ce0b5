"""The results of the queue's operations, the names of its sub-queues, and counts of pods.

Incoming pods are counted by event; the names are the label values of upstream's metric
scheduler_queue_incoming_pods_total. v1.34 uses the labels of its cluster events, older versions use
separate names.

Source: kubernetes v1.20 internal/queue/events.go; metrics/metrics.go; v1.34
pkg/scheduler/framework/events.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from services.queue.core.queued_pod import InFlightPod, QueuedPod


class SubQueue(StrEnum):
    """The sub-queues; GATED has the unschedulable pods that a PreEnqueue plugin rejects."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    ERROR_BACKOFF = "error backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"


@dataclass(frozen=True, slots=True, kw_only=True)
class WouldBlock:
    """There is no pod to pop; upstream's Pop would block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueClosed:
    """The queue is closed and drained; `text` is upstream's error, "" if it has none."""

    text: str = ""


PopResult = InFlightPod | WouldBlock | QueueClosed


class AfterAttempts(NamedTuple):
    """The next wakeups, ns, once all pods that can be popped have been tried; None for none.

    wakeup_ns: where all were bound. refused_wakeup_ns: where plugins refused at least one.
    """

    wakeup_ns: int | None
    refused_wakeup_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotNext:
    """The commit named a pod that Pop would not return now, and changed nothing.

    `next` is the result that Pop would return. `committed` is the number of earlier commits in the
    same call, which were applied.
    """

    next: PopResult
    committed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeued:
    """A failed pod was added to the sub-queue `queue`."""

    queue: SubQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyPresent:
    """The pod is already in the sub-queue `queue`, so this copy was dropped.

    `text` is upstream's error.
    """

    queue: SubQueue
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyPresentTexts:
    """Upstream's errors for a failed pod that is already in a sub-queue; {pod} is ns/name."""

    active: str
    backoff: str
    unschedulable: str

    def text(self, where: SubQueue, pod: QueuedPod) -> str:
        """Return the error for `pod` in `where`, one of the three."""
        text: str = getattr(self, where.value)
        return text.format(pod=f"{pod.namespace}/{pod.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotInFlight:
    """The pop is not in flight; nothing has changed."""


POD_ADD = "PodAdd"
POD_UPDATE = "PodUpdate"
SCHEDULE_ATTEMPT_FAILURE = "ScheduleAttemptFailure"
BACKOFF_COMPLETE = "BackoffComplete"
UNSCHEDULABLE_TIMEOUT = "UnschedulableTimeout"
POP_FROM_BACKOFF_Q = "PopFromBackoffQ"
POP_UNDONE = "PopUndone"
"""Counts undone pops. Upstream has no such event: its pods in flight have no owner to lose."""

_K = TypeVar("_K")


class Counts(Generic[_K]):
    """Numbers of pods by a key, since the last call of `take`."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[_K, int] = {}

    def add(self, key: _K, pods: int = 1) -> None:
        """Add `pods` to the count of `key`."""
        self._counts[key] = self._counts.get(key, 0) + pods

    def take(self) -> dict[_K, int]:
        """Return the counts and start again from 0."""
        counts, self._counts = self._counts, {}
        return counts
