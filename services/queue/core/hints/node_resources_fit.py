"""NodeResourcesFit: a pod that goes or shrinks, a node that comes or grows.

Source: kubernetes v1.34 plugins/noderesources/fit.go, isSchedulableAfterPodEvent,
isSchedulableAfterPodScaleDown, isSchedulableAfterNodeChange,
haveAnyRequestedResourcesIncreased, isFit.
"""

from __future__ import annotations

from services.kube.node import Node
from services.kube.requests import PODS, pod_requests
from services.queue.core.happening import Happening
from services.queue.core.hints.objects import AnyPod, changed, left_a_node, pods, spec_of
from services.queue.core.pod import QueuedPod


def after_pod_event(pod: QueuedPod, happening: Happening) -> bool:
    """Queue where a pod has left a node, or one on a node asks for less of what this one wants.

    The pod's own smaller request queues it too.
    """
    known = pods(happening)
    if known is None:
        return True
    old, new = known
    if new is None:
        return old is None or left_a_node(old)
    if new.uid == pod.uid:
        return True
    return bool(new.node_name) and old is not None and _frees(pod, old, new)


def _frees(pod: QueuedPod, old: AnyPod, new: AnyPod) -> bool:
    before, after = pod_requests(spec_of(old)), pod_requests(spec_of(new))
    return any(
        before.get(name, 0) > after.get(name, 0)
        for name, wanted in pod_requests(spec_of(pod)).items()
        if wanted
    )


def after_node_change(pod: QueuedPod, happening: Happening) -> bool:
    """Queue where the pod would fit on the empty node, and the node is new or has grown."""
    known = changed(happening, Node)
    if known is None:
        return True
    old, new = known
    wanted = {name: amount for name, amount in pod_requests(spec_of(pod)).items() if amount}
    room = new.allocatable
    if room.get(PODS, 0) < 1 or any(amount > room.get(name, 0) for name, amount in wanted.items()):
        return False
    if old is None:
        return True
    before = old.allocatable
    return any(room.get(name, 0) > before.get(name, 0) for name in (PODS, *wanted))
