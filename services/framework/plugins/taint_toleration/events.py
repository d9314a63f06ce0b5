"""TaintToleration: a node loses the taints that repel the pod, or the pod gets a toleration.

Source: kubernetes v1.34 plugins/tainttoleration/taint_toleration.go, EventsToRegister and the
isSchedulableAfter functions.
"""

from __future__ import annotations

from services.framework.cluster_event import PendingPod
from services.framework.hints import events_of, on, own_pod, spec_of
from services.kube.node import Node
from services.kube.taints import repels


def untainted(pod: PendingPod, old: Node | None, new: Node | None) -> bool:
    """Return Queue (true) if the node's taints no longer repel the pod."""
    return new is None or (not _repels(new, pod) and (old is None or _repels(old, pod)))


def _repels(node: Node, pod: PendingPod) -> bool:
    tolerations = spec_of(pod).tolerations
    return any(repels(taint, tolerations) for taint in node.taints)


EVENTS = events_of(
    "TaintToleration",
    on("NodeAdd", untainted),
    on("NodeTaintChange", untainted),
    on("PodTolerationChange", own_pod),
)
