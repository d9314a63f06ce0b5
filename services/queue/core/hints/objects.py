"""What hints read: the objects of an event, and the arguments of profiles' plugins.

Most hints are made of a function of the object before and after, of the event's kind. Where the
event has neither, the hint returns Queue, as upstream does when a hint fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from services.kube import storage
from services.kube.node import Node
from services.kube.pod import DEFAULT_SCHEDULER, Pod, PodSpec
from services.kube.selector import NodeSelector, TopologySpreadConstraint
from services.queue.core.cluster_event import NODE, ClusterEvent, ObjectEvent, QueueingHintFn
from services.queue.core.queued_pod import QueuedPod

AnyPod = Pod | QueuedPod
"""An assigned pod, or a version of the pending pod itself."""

ObjectHint = Callable[[QueuedPod, Any, Any], bool]
"""Whether a plugin may pass the pod, by the object before and after, not both None."""

_EMPTY = PodSpec()
_PODS = (Pod, QueuedPod)
_KINDS: Mapping[str, type] = {
    NODE: Node,
    "PersistentVolume": storage.PersistentVolume,
    "PersistentVolumeClaim": storage.PersistentVolumeClaim,
    "StorageClass": storage.StorageClass,
    "CSINode": storage.CsiNode,
    "CSIDriver": storage.CsiDriver,
    "CSIStorageCapacity": storage.CsiStorageCapacity,
    "VolumeAttachment": storage.VolumeAttachment,
}


def hint(event: ClusterEvent, judge: ObjectHint) -> QueueingHintFn:
    """Return the hint that calls `judge` with the objects of `event`."""
    kind = _KINDS.get(event.resource, _PODS)

    def hint_fn(pod: QueuedPod, object_event: ObjectEvent) -> bool:
        old = object_event.old if isinstance(object_event.old, kind) else None
        new = object_event.new if isinstance(object_event.new, kind) else None
        return (old is None and new is None) or judge(pod, old, new)

    return hint_fn


def pods(object_event: ObjectEvent) -> tuple[AnyPod | None, AnyPod | None]:
    """Return the event's pod before and after, None where it has none."""
    old = object_event.old if isinstance(object_event.old, _PODS) else None
    new = object_event.new if isinstance(object_event.new, _PODS) else None
    return old, new


def spec_of(pod: AnyPod) -> PodSpec:
    """Return the pod's spec; an empty one where the queue has not read it."""
    return pod.spec or _EMPTY


def frees_a_node(pod: AnyPod) -> bool:
    """Return whether a deleted pod was assigned or nominated to a node."""
    return bool(pod.node_name or pod.nominated_node_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class HintProfile:
    """The arguments of one profile's plugins.

    `added_required` is the node selector that NodeAffinity adds for every pod, None for none.
    `default_constraints` are PodTopologySpread's for pods without constraints of their own; they
    have no selector, since a pod's services and controller determine it.
    """

    added_required: NodeSelector | None = None
    default_constraints: tuple[TopologySpreadConstraint, ...] = ()


HintProfiles = Mapping[str, HintProfile]
"""The profiles with arguments, by scheduler name."""

_NO_ARGUMENTS = HintProfile()


def profile_of(pod: QueuedPod, profiles: HintProfiles) -> HintProfile:
    """Return the profile that schedules `pod`, without arguments where it is not in `profiles`."""
    name = DEFAULT_SCHEDULER if pod.spec is None else pod.spec.scheduler_name
    return profiles.get(name, _NO_ARGUMENTS)
