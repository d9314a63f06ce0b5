"""The sub-queues by name, how many pods came into each by which event, and how pops ended.

The names are the label values of upstream's scheduler_queue_incoming_pods_total.
v1.34 counts by the labels of its cluster events, older versions by names of their own.
Source: kubernetes v1.20 internal/queue/events.go; metrics/metrics.go; v1.34
pkg/scheduler/framework/events.go.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Generic, TypeVar

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
