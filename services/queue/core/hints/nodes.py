"""The plugins that compare a pod with one node: its labels, taints, ports and free resources.

Source: kubernetes v1.34 plugins/nodeunschedulable/node_unschedulable.go,
tainttoleration/taint_toleration.go, nodeaffinity/node_affinity.go, nodeports/node_ports.go and
noderesources/fit.go, each plugin's isSchedulableAfter functions.
"""

from __future__ import annotations

from services.kube.node import Node
from services.kube.requests import PODS, conflicts, host_ports, pod_requests
from services.kube.taints import Taint, TaintEffect, repels, tolerated
from services.queue.core.hints.objects import (
    AnyPod,
    HintProfiles,
    left_a_node,
    profile_of,
    spec_of,
)
from services.queue.core.queued_pod import QueuedPod

_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect=TaintEffect.NO_SCHEDULE)


def uncordoned(_pod: QueuedPod, old: Node | None, new: Node | None) -> bool:
    """Queue where the node takes pods and did not before."""
    return new is None or (not new.unschedulable and (old is None or old.unschedulable))


def cordon_tolerated(pod: QueuedPod, _old: AnyPod | None, new: AnyPod | None) -> bool:
    """Queue where the pod itself has come to tolerate a cordon."""
    if new is None:
        return True
    return new.uid == pod.uid and tolerated(_CORDON, spec_of(new).tolerations)


def untainted(pod: QueuedPod, old: Node | None, new: Node | None) -> bool:
    """Queue where the node repels the pod no longer."""
    return new is None or (not _repels(new, pod) and (old is None or _repels(old, pod)))


def own_pod(pod: QueuedPod, _old: AnyPod | None, new: AnyPod | None) -> bool:
    """Queue where the pod is this one: its own toleration has come, or its last gate has gone.

    Source: plugins/schedulinggates/scheduling_gates.go too.
    """
    return new is None or new.uid == pod.uid


def _repels(node: Node, pod: QueuedPod) -> bool:
    tolerations = spec_of(pod).tolerations
    return any(repels(taint, tolerations) for taint in node.taints)


def comes_to_match(
    pod: QueuedPod, old: Node | None, new: Node | None, *, profiles: HintProfiles
) -> bool:
    """Queue where the node matches the pod's affinity now and did not before.

    The affinity that a profile adds must match too. Upstream asks that of the node as it is now
    only: a pod that the added affinity alone kept away is not queued by the change that ends it.
    """
    if new is None:
        return True
    added = profile_of(pod, profiles).added_required
    if added is not None and not added.matches(new.labels, new.name):
        return False
    return _matches(pod, new) and (old is None or not _matches(pod, old))


def _matches(pod: QueuedPod, node: Node) -> bool:
    spec = spec_of(pod)
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    return node.matches(spec.node_selector.items(), required)


def port_freed(pod: QueuedPod, old: AnyPod | None, _new: AnyPod | None) -> bool:
    """Queue where a port of the pod that has gone would have conflicted."""
    if old is None:
        return True
    freed = dict.fromkeys(host_ports(spec_of(old)), 1)
    return left_a_node(old) and conflicts(host_ports(spec_of(pod)), freed)


def resources_freed(pod: QueuedPod, old: AnyPod | None, new: AnyPod | None) -> bool:
    """Queue where a pod has left a node, or one on a node asks for less of what this one wants.

    The pod's own smaller request queues it too.
    """
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


def room_grown(pod: QueuedPod, old: Node | None, new: Node | None) -> bool:
    """Queue where the pod would fit on the empty node, and the node is new or has grown."""
    if new is None:
        return True
    wanted = {name: amount for name, amount in pod_requests(spec_of(pod)).items() if amount}
    room = new.allocatable
    if room.get(PODS, 0) < 1 or any(amount > room.get(name, 0) for name, amount in wanted.items()):
        return False
    if old is None:
        return True
    before = old.allocatable
    return any(room.get(name, 0) > before.get(name, 0) for name in (PODS, *wanted))
