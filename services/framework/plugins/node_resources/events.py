"""NodeResourcesFit: an assigned pod frees resources, or a node has more of them.

From v1.36 on a class may begin to serve an extended resource, too. A node without a resource that a
class serves may have devices for it: that is for DynamicResources to say.

Source: kubernetes v1.34 and v1.36 plugins/noderesources/fit.go, EventsToRegister and the
isSchedulableAfter functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from services.framework.cluster_event import AnyPod, ObjectEvent, PendingPod
from services.framework.hints import events_of, frees_a_node, on, on_event, spec_of
from services.kube.devices import IMPLICIT_EXTENDED_RESOURCE_PREFIX, DeviceClass
from services.kube.node import Node
from services.kube.pod import Pod
from services.kube.requests import PODS, pod_requests, requests_in_force


def resources_freed(pod: PendingPod, old: AnyPod | None, new: AnyPod | None) -> bool:
    """Return Queue (true) if a pod on a node is deleted, or requests less of the same resources.

    A scale-down of the pod itself queues it, too.
    """
    if new is None:
        return old is None or frees_a_node(old)
    if new.uid == pod.uid:
        return True
    return bool(new.node_name) and old is not None and _frees(pod, old, new)


def _frees(pod: PendingPod, old: AnyPod, new: AnyPod) -> bool:
    before, after = _in_force(old), _in_force(new)
    return any(
        before.get(name, 0) > after.get(name, 0)
        for name, amount in pod_requests(spec_of(pod)).items()
        if amount
    )


def _in_force(pod: AnyPod) -> Mapping[str, int]:
    return requests_in_force(pod) if isinstance(pod, Pod) else pod_requests(spec_of(pod))


def allocatable_grown(
    pod: PendingPod, old: Node | None, new: Node | None, served: Set[str] = frozenset()
) -> bool:
    """Return Queue (true) if the pod fits on the empty node, which is new or has grown.

    `served` are resources that device classes serve where the node has none itself.
    """
    if new is None:
        return True
    requests = {name: amount for name, amount in pod_requests(spec_of(pod)).items() if amount}
    allocatable = new.allocatable
    delegated = {name for name in requests if name in served and not allocatable.get(name, 0)}
    if allocatable.get(PODS, 0) < 1:
        return False
    if any(requests[name] > allocatable.get(name, 0) for name in requests.keys() - delegated):
        return False
    if old is None or delegated:
        return True
    before = old.allocatable
    return any(allocatable.get(name, 0) > before.get(name, 0) for name in (PODS, *requests))


def node_may_fit(pod: PendingPod, object_event: ObjectEvent) -> bool:
    """Return Queue (true) as `allocatable_grown`, with what device classes serve."""
    old, new = object_event.old, object_event.new
    before = old if isinstance(old, Node) else None
    after = new if isinstance(new, Node) else None
    return allocatable_grown(pod, before, after, object_event.class_resources)


def class_may_serve(pod: PendingPod, old: DeviceClass | None, new: DeviceClass | None) -> bool:
    """Return Queue (true) if a class begins to serve an extended resource that the pod requests."""
    if new is None:
        return True
    names = {new.extended_resource_name}
    if old is None:
        names.add(IMPLICIT_EXTENDED_RESOURCE_PREFIX + new.name)
    elif old.extended_resource_name == new.extended_resource_name:
        return False
    return not names.isdisjoint(pod_requests(spec_of(pod)))


_OF_PODS = (on("PodDelete", resources_freed), on("PodScaleDown", resources_freed))
EVENTS = events_of(
    "NodeResourcesFit",
    *_OF_PODS,
    on("NodeAdd", allocatable_grown),
    on("NodeAllocatableChange", allocatable_grown),
)
EVENTS_V1_36 = events_of(
    "NodeResourcesFit",
    *_OF_PODS,
    on_event("NodeAdd", node_may_fit),
    on_event("NodeAllocatableChange", node_may_fit),
    on("DeviceClassAdd", class_may_serve),
    on("DeviceClassUpdate", class_may_serve),
)
