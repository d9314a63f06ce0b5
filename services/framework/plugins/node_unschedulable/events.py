"""NodeUnschedulable: a node is uncordoned, or the pod tolerates a cordon.

Source: kubernetes v1.34 plugins/nodeunschedulable/node_unschedulable.go, EventsToRegister and the
isSchedulableAfter functions.
"""

from __future__ import annotations

from services.framework.cluster_event import AnyPod, PendingPod
from services.framework.hints import events_of, on, spec_of
from services.kube.node import Node
from services.kube.taints import CORDON, tolerated


def uncordoned(_pod: PendingPod, old: Node | None, new: Node | None) -> bool:
    """Return Queue (true) if the node is schedulable and was not before."""
    return new is None or (not new.unschedulable and (old is None or old.unschedulable))


def cordon_tolerated(pod: PendingPod, _old: AnyPod | None, new: AnyPod | None) -> bool:
    """Return Queue (true) if the update of the pod itself makes it tolerate a cordon."""
    if new is None:
        return True
    return new.uid == pod.uid and tolerated(CORDON, spec_of(new).tolerations)


EVENTS = events_of(
    "NodeUnschedulable",
    on("NodeAdd", uncordoned),
    on("NodeTaintChange", uncordoned),
    on("PodTolerationChange", cordon_tolerated),
)
