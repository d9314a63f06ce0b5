"""Declares the events that a plugin registers for, and their queueing hints.

A plugin's room has a module `events` with EVENTS: a row for each event, with the function that
decides whether it may make the plugin pass a pod. Nothing here needs the snapshot, so that the
queue imports events alone.

Most hints are functions of the object before and after (`on`). Where the event has neither, the
hint returns Queue, as upstream does when a hint fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from services.framework.cluster_event import (
    NODE,
    AnyPod,
    ClusterEvent,
    ObjectEvent,
    PendingPod,
    QueueingHintFn,
    Registration,
    UsersOf,
    event_of,
)
from services.kube import devices, storage
from services.kube.node import Node
from services.kube.pod import DEFAULT_SCHEDULER, PodSpec
from services.kube.selector import NodeSelector, TopologySpreadConstraint

_EMPTY = PodSpec()
_KINDS: Mapping[str, type] = {
    NODE: Node,
    "PersistentVolume": storage.PersistentVolume,
    "PersistentVolumeClaim": storage.PersistentVolumeClaim,
    "StorageClass": storage.StorageClass,
    "CSINode": storage.CsiNode,
    "CSIDriver": storage.CsiDriver,
    "CSIStorageCapacity": storage.CsiStorageCapacity,
    "VolumeAttachment": storage.VolumeAttachment,
    "ResourceClaim": devices.ResourceClaim,
    "ResourceSlice": devices.ResourceSlice,
    "DeviceClass": devices.DeviceClass,
}
"""The class of the objects of a resource; those of all others are pods."""

_NO_PODS = tuple(_KINDS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class HintProfile:
    """The arguments of one profile's plugins that hints read.

    `added_required` is the node selector that NodeAffinity adds for every pod, None for none.
    `default_constraints` are PodTopologySpread's for pods without constraints of their own; they
    have no selector, since a pod's services and controller determine it.
    """

    added_required: NodeSelector | None = None
    default_constraints: tuple[TopologySpreadConstraint, ...] = ()


HintProfiles = Mapping[str, HintProfile]
"""The profiles with arguments, by scheduler name."""

_NO_ARGUMENTS = HintProfile()


@dataclass(frozen=True, slots=True)
class EventToRegister:
    """A row of a plugin's EventsToRegister; `hint_of` makes its hint of the profiles' arguments.

    `hint_of` None: the event always queues. `users_of` as of a Registration.
    """

    event: ClusterEvent
    hint_of: Callable[[HintProfiles], QueueingHintFn] | None = None
    users_of: UsersOf | None = None


@dataclass(frozen=True, slots=True)
class PluginEvents:
    """The events that a plugin registers for.

    `counts_pods_of_namespace`: an assigned pod may help every pod of its namespace that the plugin
    refused, not only those with a required affinity term that matches it.
    Source: kubernetes v1.34 pkg/scheduler/backend/queue/scheduling_queue.go,
    getUnschedulablePodsWithCrossTopologyTerm.
    """

    plugin: str
    rows: tuple[EventToRegister, ...]
    counts_pods_of_namespace: bool = False

    def registrations(self, profiles: HintProfiles) -> tuple[Registration, ...]:
        """Return the rows as the queue reads them."""
        return tuple(
            Registration(
                plugin=self.plugin,
                event=row.event,
                hint=None if row.hint_of is None else row.hint_of(profiles),
                users_of=row.users_of,
            )
            for row in self.rows
        )


def events_of(
    plugin: str, *rows: EventToRegister, counts_pods_of_namespace: bool = False
) -> PluginEvents:
    """Return the rows of a plugin."""
    return PluginEvents(plugin, rows, counts_pods_of_namespace)


def on(
    label: str,
    judge: Callable[[Any, Any, Any], bool] | None = None,
    *,
    users_of: UsersOf | None = None,
) -> EventToRegister:
    """Register for an event, with a function of the pending pod and the object before and after.

    One of the two objects may be None, not both. `users_of` as of a Registration.
    """
    event = event_of(label)
    if judge is None:
        return EventToRegister(event)
    hint_fn = _of_objects(event, judge)
    return EventToRegister(event, lambda _profiles: hint_fn, users_of)


def on_with_profiles(label: str, judge: Callable[..., bool]) -> EventToRegister:
    """Register for an event as `on` does; `judge` receives the keyword `profiles`, too."""
    event = event_of(label)
    return EventToRegister(
        event, lambda profiles: _of_objects(event, partial(judge, profiles=profiles))
    )


def on_event(label: str, hint_fn: QueueingHintFn) -> EventToRegister:
    """Register for an event with a hint that reads the event itself, not its objects alone."""
    return EventToRegister(event_of(label), lambda _profiles: hint_fn)


def _of_objects(event: ClusterEvent, judge: Callable[[Any, Any, Any], bool]) -> QueueingHintFn:
    kind = _KINDS.get(event.resource)

    def object_of(data: object | None) -> object | None:
        if kind is None:
            return None if isinstance(data, _NO_PODS) else data
        return data if isinstance(data, kind) else None

    def hint_fn(pod: PendingPod, object_event: ObjectEvent) -> bool:
        old, new = object_of(object_event.old), object_of(object_event.new)
        return (old is None and new is None) or judge(pod, old, new)

    return hint_fn


def pods(object_event: ObjectEvent) -> tuple[Any, Any]:
    """Return the event's pod before and after (AnyPod), None where it has none."""
    old = None if isinstance(object_event.old, _NO_PODS) else object_event.old
    new = None if isinstance(object_event.new, _NO_PODS) else object_event.new
    return old, new


def spec_of(pod: AnyPod) -> PodSpec:
    """Return the pod's spec; an empty one where the queue has not read it."""
    return pod.spec or _EMPTY


def frees_a_node(pod: AnyPod) -> bool:
    """Return whether a pod is assigned or nominated to a node, so that its end frees room."""
    return bool(pod.node_name or pod.nominated_node_name)


def own_pod(pod: PendingPod, _old: AnyPod | None, new: AnyPod | None) -> bool:
    """Queue where the updated pod is this one."""
    return new is None or new.uid == pod.uid


def profile_of(pod: PendingPod, profiles: HintProfiles) -> HintProfile:
    """Return the profile that schedules `pod`, without arguments where it is not in `profiles`."""
    name = DEFAULT_SCHEDULER if pod.spec is None else pod.spec.scheduler_name
    return profiles.get(name, _NO_ARGUMENTS)
