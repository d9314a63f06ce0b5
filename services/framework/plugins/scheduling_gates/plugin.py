"""SchedulingGates: a pod with scheduling gates does not enter activeQ.

Source: kubernetes v1.34 plugins/schedulinggates/scheduling_gates.go.
"""

from __future__ import annotations

from services.framework.plugin import PreEnqueuePlugin
from services.framework.status import Code, Status
from services.kube.pod import Pod


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
