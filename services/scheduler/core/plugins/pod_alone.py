"""The plugins that look at the pod alone: SchedulingGates, PrioritySort and DefaultBinder.

Source: kubernetes v1.34 plugins/schedulinggates/scheduling_gates.go, queuesort/priority_sort.go and
defaultbinder/default_binder.go.
"""

from __future__ import annotations

from services.kube.pod import Pod
from services.scheduler.core.plugin import BindPlugin, PreEnqueuePlugin, QueueSortPlugin
from services.scheduler.core.status import SUCCESS, Code, Status


class DefaultBinder(BindPlugin):
    """Binds."""

    name = "DefaultBinder"

    def bind(self, pod: Pod, node_name: str) -> Status:  # noqa: ARG002 - every pod, everywhere
        """Have the edge bind the pod."""
        return SUCCESS


class SchedulingGates(PreEnqueuePlugin):
    """Holds gated pods."""

    name = "SchedulingGates"

    def pre_enqueue(self, pod: Pod) -> Status | None:
        """Refuse while spec.schedulingGates has entries."""
        gates = pod.spec.scheduling_gates
        if not gates:
            return None
        reason = f"waiting for scheduling gates: [{' '.join(gates)}]"
        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return Status(code=code, plugin=self.name, reasons=(reason,))


class PrioritySort(QueueSortPlugin):
    """Orders activeQ by priority and queue time."""

    name = "PrioritySort"

    def sort_key(self, pod: Pod) -> bytes:  # noqa: ARG002 - the queue knows the priority
        """Return an empty key: this is the queue's own order."""
        return b""
