"""The sub-queues by name, and how many pods came into each by which event.

The names are the label values of upstream's scheduler_queue_incoming_pods_total.
Source: kubernetes v1.20 internal/queue/events.go; metrics/metrics.go.
"""

from __future__ import annotations

from enum import StrEnum

POD_ADD = "PodAdd"
POD_UPDATE = "PodUpdate"
SCHEDULE_ATTEMPT_FAILURE = "ScheduleAttemptFailure"
BACKOFF_COMPLETE = "BackoffComplete"
UNSCHEDULABLE_TIMEOUT = "UnschedulableTimeout"
ASSIGNED_POD_ADD = "AssignedPodAdd"
ASSIGNED_POD_UPDATE = "AssignedPodUpdate"


class SubQueue(StrEnum):
    """Where an entry stands."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"


class IncomingPods:
    """Counts of pods that came into a sub-queue, by event, since they were last taken."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[tuple[SubQueue, str], int] = {}

    def record(self, queue: SubQueue, event: str) -> None:
        """Count one pod that `event` brought into `queue`."""
        counted = (queue, event)
        self._counts[counted] = self._counts.get(counted, 0) + 1

    def take(self) -> dict[tuple[SubQueue, str], int]:
        """Return the counts and start over."""
        counts, self._counts = self._counts, {}
        return counts
