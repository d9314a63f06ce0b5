"""PrioritySort: pods are tried by priority, then by queue time.

Source: kubernetes v1.34 plugins/queuesort/priority_sort.go.
"""

from __future__ import annotations

from services.framework.plugin import QueueSortPlugin
from services.kube.pod import Pod


class PrioritySort(QueueSortPlugin):
    """Orders activeQ by priority and queue time."""

    name = "PrioritySort"

    def sort_key(self, pod: Pod) -> bytes:  # noqa: ARG002 - the queue knows the priority
        """Return an empty key: this is the queue's own order."""
        return b""
