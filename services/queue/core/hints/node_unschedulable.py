"""NodeUnschedulable: a node that is uncordoned, or comes uncordoned.

Source: kubernetes v1.34 plugins/nodeunschedulable/node_unschedulable.go,
isSchedulableAfterNodeChange, isSchedulableAfterPodTolerationChange.
"""

from __future__ import annotations

from services.kube.node import Node
from services.kube.taints import Taint, TaintEffect, tolerated
from services.queue.core.happening import Happening
from services.queue.core.hints.objects import changed, pods, spec_of
from services.queue.core.pod import QueuedPod

_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect=TaintEffect.NO_SCHEDULE)


def after_node_change(_pod: QueuedPod, happening: Happening) -> bool:
    """Queue where the node takes pods and did not before."""
    known = changed(happening, Node)
    if known is None:
        return True
    old, new = known
    return not new.unschedulable and (old is None or old.unschedulable)


def after_toleration_change(pod: QueuedPod, happening: Happening) -> bool:
    """Queue where the pod itself has come to tolerate a cordon."""
    known = pods(happening)
    if known is None or known[1] is None:
        return True
    new = known[1]
    return new.uid == pod.uid and tolerated(_CORDON, spec_of(new).tolerations)
