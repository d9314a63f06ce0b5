"""PrioritySort: the highest priority first, then the earliest in the queue.

Source: kubernetes v1.34 plugins/queuesort/priority_sort.go.
"""

from __future__ import annotations

from services.kube.pod import Pod
from services.scheduler.core.plugin import QueueSortPlugin


class PrioritySort(QueueSortPlugin):
    """Orders activeQ by priority and queue time."""

    name = "PrioritySort"

    def sort_key(self, pod: Pod) -> bytes:  # noqa: ARG002 - the queue knows the priority
        """Return an empty key: this is the queue's own order."""
        return b""
