"""TaintToleration: a node that comes without a taint that repels the pod, or loses the last one.

Source: kubernetes v1.34 plugins/tainttoleration/taint_toleration.go,
isSchedulableAfterNodeChange, isSchedulableAfterPodTolerationChange.
"""

from __future__ import annotations

from services.kube.node import Node
from services.kube.taints import TaintEffect, tolerated
from services.queue.core.happening import Happening
from services.queue.core.hints.objects import changed, pods, spec_of
from services.queue.core.pod import QueuedPod


def after_node_change(pod: QueuedPod, happening: Happening) -> bool:
    """Queue where the node repels the pod no longer."""
    known = changed(happening, Node)
    if known is None:
        return True
    old, new = known
    return not _repels(new, pod) and (old is None or _repels(old, pod))


def after_toleration_change(pod: QueuedPod, happening: Happening) -> bool:
    """Queue where the pod itself has got a toleration."""
    known = pods(happening)
    return known is None or known[1] is None or known[1].uid == pod.uid


def _repels(node: Node, pod: QueuedPod) -> bool:
    tolerations = spec_of(pod).tolerations
    return any(
        taint.effect is not TaintEffect.PREFER_NO_SCHEDULE and not tolerated(taint, tolerations)
        for taint in node.taints
    )
