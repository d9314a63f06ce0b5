"""SchedulingGates: the pod's own last gate is gone.

Source: kubernetes v1.34 plugins/schedulinggates/scheduling_gates.go,
isSchedulableAfterUpdatePodSchedulingGatesEliminated.
"""

from __future__ import annotations

from services.queue.core.happening import Happening
from services.queue.core.hints.objects import pods
from services.queue.core.pod import QueuedPod


def after_gates_eliminated(pod: QueuedPod, happening: Happening) -> bool:
    """Queue where the pod is this one."""
    known = pods(happening)
    return known is None or known[1] is None or known[1].uid == pod.uid
