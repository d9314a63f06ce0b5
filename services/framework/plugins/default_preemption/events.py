"""DefaultPreemption: pods that it gates are reached by the deletion of an assigned pod.

Source: kubernetes v1.34 plugins/defaultpreemption/default_preemption.go, EventsToRegister,
isPodSchedulableAfterAssignedPodDeletion.
"""

from __future__ import annotations

from services.framework.cluster_event import ObjectEvent, PendingPod
from services.framework.hints import events_of, on_event


def _skip(_pod: PendingPod, _object_event: ObjectEvent) -> bool:
    """Return QueueSkip (false): the hints of the plugins that refused the preemptor decide.

    The registration only has the event reach pods that the plugin gates.
    """
    return False


EVENTS = events_of("DefaultPreemption", on_event("AssignedPodDelete", _skip))
