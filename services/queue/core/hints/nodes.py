"""Hints of the plugins that look at one node: its labels, taints, ports and free resources.

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
    frees_a_node,
    profile_of,
    spec_of,
)
from services.queue.core.queued_pod import QueuedPod

_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect=TaintEffect.NO_SCHEDULE)


def uncordoned(_pod: QueuedPod, old: Node | None, new: Node | None) -> bool:
    """Queue where the node is schedulable and was not before."""
    return new is None or (not new.unschedulable and (old is None or old.unschedulable))


def cordon_tolerated(pod: QueuedPod, _old: AnyPod | None, new: AnyPod | None) -> bool:
    """Queue where the update of the pod itself makes it tolerate a cordon."""
    if new is None:
        return True
    return new.uid == pod.uid and tolerated(_CORDON, spec_of(new).tolerations)


def untainted(pod: QueuedPod, old: Node | None, new: Node | None) -> bool:
    """Queue where the node's taints no longer repel the pod."""
    return new is None or (not _repels(new, pod) and (old is None or _repels(old, pod)))


def own_pod(pod: QueuedPod, _old: AnyPod | None, new: AnyPod | None) -> bool:
    """Queue where the updated pod is this one: a new toleration, or its last gate is removed.

    Source: plugins/schedulinggates/scheduling_gates.go too.
    """
    return new is None or new.uid == pod.uid


def _repels(node: Node, pod: QueuedPod) -> bool:
    tolerations = spec_of(pod).tolerations
    return any(repels(taint, tolerations) for taint in node.taints)


def affinity_matched(
    pod: QueuedPod, old: Node | None, new: Node | None, *, profiles: HintProfiles
) -> bool:
    """Queue where the node matches the pod's affinity and did not before.

    The affinity that a profile adds must match, too. Upstream checks that only of the node as it is
    now: a pod that the added affinity alone refused is not queued by the change that makes it
    match.
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
    """Queue where a port of the deleted pod conflicted with this one's."""
    if old is None:
        return True
    freed = dict.fromkeys(host_ports(spec_of(old)), 1)
    return frees_a_node(old) and conflicts(host_ports(spec_of(pod)), freed)


def resources_freed(pod: QueuedPod, old: AnyPod | None, new: AnyPod | None) -> bool:
    """Queue where a deleted pod had a node, or an assigned one requests less of what this one does.

    A scale-down of the pod itself queues it, too.
    """
    if new is None:
        return old is None or frees_a_node(old)
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


def allocatable_grown(pod: QueuedPod, old: Node | None, new: Node | None) -> bool:
    """Queue where the pod fits on the empty node, and the node is new or has more of a resource."""
    if new is None:
        return True
    wanted = {name: amount for name, amount in pod_requests(spec_of(pod)).items() if amount}
    allocatable = new.allocatable
    if allocatable.get(PODS, 0) < 1:
        return False
    if any(amount > allocatable.get(name, 0) for name, amount in wanted.items()):
        return False
    if old is None:
        return True
    before = old.allocatable
    return any(allocatable.get(name, 0) > before.get(name, 0) for name in (PODS, *wanted))
