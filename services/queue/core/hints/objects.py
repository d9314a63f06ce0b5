"""What hints read: the objects of an event, and what profiles ask beside what the pods say.

A hint is made of a judgement on the objects before and after, of the kind that the event is about.
Where the event carries neither, the hint answers as if upstream's had failed: queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from services.kube import storage
from services.kube.node import Node
from services.kube.pod import DEFAULT_SCHEDULER, Pod, PodSpec
from services.kube.selector import NodeSelector, TopologySpreadConstraint
from services.queue.core.cluster_event import NODE, ClusterEvent, Happening, HintFunction
from services.queue.core.queued_pod import QueuedPod

AnyPod = Pod | QueuedPod
"""An assigned pod, or the waiting one's own two versions."""

Judgement = Callable[[QueuedPod, Any, Any], bool]
"""Whether a plugin may let the pod pass, by the objects before and after; one of them is there."""

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


def hint(event: ClusterEvent, judge: Judgement) -> HintFunction:
    """Return the hint that asks `judge` about the objects of `event`."""
    kind = _KINDS.get(event.resource, _PODS)

    def asked(pod: QueuedPod, happening: Happening) -> bool:
        old = happening.old if isinstance(happening.old, kind) else None
        new = happening.new if isinstance(happening.new, kind) else None
        return (old is None and new is None) or judge(pod, old, new)

    return asked


def pods(happening: Happening) -> tuple[AnyPod | None, AnyPod | None]:
    """Return the pod before and after."""
    old = happening.old if isinstance(happening.old, _PODS) else None
    new = happening.new if isinstance(happening.new, _PODS) else None
    return old, new


def spec_of(pod: AnyPod) -> PodSpec:
    """Return what the pod asks for; an empty spec where the queue was not told."""
    return pod.spec or _EMPTY


def left_a_node(pod: AnyPod) -> bool:
    """Tell whether a pod that has gone took room somewhere, or was about to."""
    return bool(pod.node_name or pod.nominated_node_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class HintProfile:
    """The arguments of one profile's plugins.

    `added_required` is what NodeAffinity asks of every pod's node, None for nothing.
    `default_constraints` are what PodTopologySpread asks of pods without constraints of their
    own; they have no selector, for it follows from a pod's services and controller.
    """

    added_required: NodeSelector | None = None
    default_constraints: tuple[TopologySpreadConstraint, ...] = ()


HintProfiles = Mapping[str, HintProfile]
"""The profiles that say anything, by scheduler name."""

_SAYS_NOTHING = HintProfile()


def profile_of(pod: QueuedPod, profiles: HintProfiles) -> HintProfile:
    """Return the profile that schedules `pod`; one that is not known says nothing."""
    name = DEFAULT_SCHEDULER if pod.spec is None else pod.spec.scheduler_name
    return profiles.get(name, _SAYS_NOTHING)
