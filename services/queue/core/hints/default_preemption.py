"""DefaultPreemption: it holds a preemptor back, but never decides that one is tried again.

What made room for the pod was another plugin's refusal, and that plugin's hint decides. The
registration lets an event through to a pod that this plugin gates.

Source: kubernetes v1.34 plugins/defaultpreemption/default_preemption.go,
isPodSchedulableAfterAssignedPodDeletion.
"""

from __future__ import annotations

from services.queue.core.happening import Happening
from services.queue.core.pod import QueuedPod


def after_pod_deleted(_pod: QueuedPod, _happening: Happening) -> bool:
    """Skip."""
    return False
