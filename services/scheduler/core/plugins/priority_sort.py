"""PrioritySort: the highest priority first, then the earliest in the queue.

Source: kubernetes v1.34 plugins/queuesort/priority_sort.go.
"""

from __future__ import annotations

from services.kube.pod import Pod
from services.scheduler.core.plugin import QueueSortPlugin


class PrioritySort(QueueSortPlugin):
    """Orders activeQ by priority and queue time."""

    name = "PrioritySort"

    def sort_key(self, pod: Pod, queued_ns: int) -> tuple[int, int]:
        """Return (priority negated, queue time)."""
        return (-pod.priority, queued_ns)
