"""Cluster events, and which of them each plugin has registered with its queueing hint.

An event is sent by its label. One vocabulary covers the labels that upstream prints since v1.32
(resource and action, "NodeUpdateNodeTaint") and those that it printed before ("NodeTaintChange").
A registration names events in the same vocabulary, broader ones too: "Pod" covers assigned and
pending pods, "NodeUpdate" every update of a node, "Node" every event of a node, "*" all events.

Source: kubernetes v1.34 staging/src/k8s.io/kube-scheduler/framework/types.go, ClusterEvent,
ActionType; pkg/scheduler/framework/types.go, MatchClusterEvents; events.go.

A session names its plugins' events when it opens. A plugin without registrations is taken to be
interested in every event, as upstream takes a plugin without EventsToRegister. The hints that
decide are found once for each event and each set of refusing plugins, so that a move costs what it
looks at, not what is registered.

Source: kubernetes v1.34 pkg/scheduler/scheduler.go, buildQueueingHintMap;
pkg/scheduler/backend/queue/scheduling_queue.go, isEventOfInterest, isPodWorthRequeuing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntFlag
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from services.queue.core.queued_pod import Failure, QueuedPod, QueuedPodInfo

_NO_LABELS: Mapping[str, str] = MappingProxyType({})
ANY = "*"
POD = "Pod"
ASSIGNED_POD = "AssignedPod"
UNSCHEDULABLE_POD = "UnschedulablePod"
NODE = "Node"


class ActionType(IntFlag):
    """What happened to an object, as flags; UPDATE has the flags of all narrower updates."""

    ADD = 1
    DELETE = 2
    UPDATE_NODE_ALLOCATABLE = 4
    UPDATE_NODE_LABEL = 8
    UPDATE_NODE_TAINT = 16
    UPDATE_NODE_CONDITION = 32
    UPDATE_NODE_ANNOTATION = 64
    UPDATE_POD_LABEL = 128
    UPDATE_POD_SCALE_DOWN = 256
    UPDATE_POD_TOLERATION = 512
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 1024
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = 2048
    UPDATE_OTHER = 4096
    UPDATE = 8188
    ALL = 8191


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """An action on objects of `resource`; two events are equal whatever their `label`.

    The resource "*" with every action is the wildcard, which concerns all pods, or the one that it
    names.
    """

    resource: str
    action: ActionType
    label: str = field(compare=False)

    @property
    def is_wildcard(self) -> bool:
        """Whether the event concerns pods that any plugin refused."""
        return self.resource == ANY and self.action == ActionType.ALL

    @property
    def is_valid(self) -> bool:
        """Whether the resource is one of upstream's, or a custom one: RESOURCE.VERSION.GROUP.

        Source: kubernetes v1.34 staging/src/k8s.io/kube-scheduler/framework/types.go,
        EventResource.
        """
        return self.resource in _EVENT_RESOURCES or self.resource.count(".") >= _CUSTOM_DOTS_MIN

    def covers(self, incoming: ClusterEvent) -> bool:
        """Return whether `incoming` is this event or a narrower one.

        An incoming wildcard is covered by a wildcard only.
        Source: kubernetes v1.34 pkg/scheduler/framework/types.go, MatchClusterEvents.
        """
        if self.is_wildcard:
            return True
        same = self.resource in {ANY, incoming.resource} or (
            self.resource == POD and incoming.resource in _PODS
        )
        return same and bool(incoming.action) and not incoming.action & ~self.action


_PODS = frozenset({ASSIGNED_POD, UNSCHEDULABLE_POD})
_RESOURCES = {
    "Pv": "PersistentVolume",
    "Pvc": "PersistentVolumeClaim",
    "UnscheduledPod": UNSCHEDULABLE_POD,
}
_EVENT_RESOURCES = frozenset(
    {
        *(ANY, POD, ASSIGNED_POD, UNSCHEDULABLE_POD, NODE, "PersistentVolume"),
        *("PersistentVolumeClaim", "StorageClass", "CSINode", "CSIDriver", "VolumeAttachment"),
        *("CSIStorageCapacity", "ResourceClaim", "ResourceSlice", "DeviceClass", "Service"),
    }
)
_CUSTOM_DOTS_MIN = 2
_WILDCARDS = frozenset({ANY, "ForceActivate", "UnschedulableTimeout"})
_ACTIONS = {
    "Add": ActionType.ADD,
    "Delete": ActionType.DELETE,
    "Update": ActionType.UPDATE,
    "All": ActionType.ALL,
    "UpdateNodeAllocatable": ActionType.UPDATE_NODE_ALLOCATABLE,
    "UpdateNodeLabel": ActionType.UPDATE_NODE_LABEL,
    "UpdateNodeTaint": ActionType.UPDATE_NODE_TAINT,
    "UpdateNodeCondition": ActionType.UPDATE_NODE_CONDITION,
    "UpdateNodeAnnotation": ActionType.UPDATE_NODE_ANNOTATION,
    "UpdatePodLabel": ActionType.UPDATE_POD_LABEL,
    "UpdatePodScaleDown": ActionType.UPDATE_POD_SCALE_DOWN,
    "UpdatePodToleration": ActionType.UPDATE_POD_TOLERATION,
    "UpdatePodSchedulingGatesEliminated": ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
    "UpdatePodGeneratedResourceClaim": ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM,
    "AllocatableChange": ActionType.UPDATE_NODE_ALLOCATABLE,
    "LabelChange": ActionType.UPDATE_NODE_LABEL,
    "TaintChange": ActionType.UPDATE_NODE_TAINT,
    "SpecUnschedulableChange": ActionType.UPDATE_NODE_TAINT,
    "ConditionChange": ActionType.UPDATE_NODE_CONDITION,
    "AnnotationChange": ActionType.UPDATE_NODE_ANNOTATION,
    "ScaleDown": ActionType.UPDATE_POD_SCALE_DOWN,
    "TolerationChange": ActionType.UPDATE_POD_TOLERATION,
    "SchedulingGatesEliminated": ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
}
_BY_LENGTH = sorted(_ACTIONS, key=len, reverse=True)


@lru_cache(maxsize=4096)
def event_of(label: str) -> ClusterEvent:
    """Return the event that `label` names.

    A label that ends in none of the actions names the resource, with every action.
    """
    if label in _WILDCARDS:
        return ClusterEvent(ANY, ActionType.ALL, label)
    for suffix in _BY_LENGTH:
        if label.endswith(suffix) and len(label) > len(suffix):
            name = label[: -len(suffix)]
            resource = _RESOURCES.get(name, name)
            return ClusterEvent(resource, _action(suffix, resource), label)
    return ClusterEvent(_RESOURCES.get(label, label), ActionType.ALL, label)


def _action(suffix: str, resource: str) -> ActionType:
    if suffix == "LabelChange" and resource in {POD, *_PODS}:
        return ActionType.UPDATE_POD_LABEL
    return _ACTIONS[suffix]


POD_ADD = event_of("UnschedulablePodAdd")
POD_UPDATE = event_of("UnschedulablePodUpdate")
ASSIGNED_POD_ADD = event_of("AssignedPodAdd")
ASSIGNED_POD_UPDATE = event_of("AssignedPodUpdate")
FORCE_ACTIVATE = event_of("ForceActivate")
UNSCHEDULABLE_TIMEOUT = event_of("UnschedulableTimeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectEvent:
    """A cluster event with the object that it happened to, before and after.

    `old` is None for an added object and `new` for a deleted one; both are None where the scheduler
    did not send them, or where no hint reads them. `namespace_labels` are those of the object's
    namespace, for affinity terms that select namespaces. `source` is opaque here: the edge makes
    the objects from it when a checkpoint is restored.
    Source: kubernetes v1.34 pkg/scheduler/backend/queue/active_queue.go, clusterEvent.
    """

    event: ClusterEvent
    old: object | None = None
    new: object | None = None
    namespace_labels: Mapping[str, str] = field(default_factory=lambda: _NO_LABELS)
    source: bytes = b""

    @classmethod
    def of(cls, label: str, old: object | None = None, new: object | None = None) -> ObjectEvent:
        """Return the event that `label` names, with its objects."""
        return cls(event=event_of(label), old=old, new=new)


QueueingHintFn = Callable[[QueuedPod, ObjectEvent], bool]
"""Whether the event may make a plugin pass the pod that it refused: upstream's Queue, QueueSkip.

A hint that lacks the objects to decide returns True, as upstream queues the pod when a hint fails.
"""


class QueueingStrategy(Enum):
    """Where an event sends an unschedulable pod.

    Source: kubernetes v1.34 pkg/scheduler/backend/queue/scheduling_queue.go, queueingStrategy.
    """

    SKIP = "skip"
    AFTER_BACKOFF = "after backoff"
    IMMEDIATELY = "immediately"


# Members by name: Python 3.11 looks them up in their class by calling a function.
_SKIP, _AFTER_BACKOFF = QueueingStrategy.SKIP, QueueingStrategy.AFTER_BACKOFF
_IMMEDIATELY = QueueingStrategy.IMMEDIATELY


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One plugin's interest in one event; without a `hint` the event always queues."""

    plugin: str
    event: ClusterEvent
    hint: QueueingHintFn | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HintPlan:
    """The hints that decide on one event, for pods that the same plugins refused.

    `pending` are those of plugins that returned Pending, `refused` of the others. `decided` is
    the strategy where no hint has to be called.
    """

    pending: tuple[QueueingHintFn, ...] = ()
    refused: tuple[QueueingHintFn, ...] = ()
    decided: QueueingStrategy | None = None

    def strategy(self, pod: QueuedPod, object_event: ObjectEvent) -> QueueingStrategy:
        """Return where `object_event` sends `pod`; a pending plugin's hint skips the backoff."""
        if self.decided is not None:
            return self.decided
        for hint in self.pending:
            if hint(pod, object_event):
                return _IMMEDIATELY
        for hint in self.refused:
            if hint(pod, object_event):
                return _AFTER_BACKOFF
        return _SKIP


class QueueingHintMap:
    """The registrations of a session, and the plugins that refused a pod without having any."""

    __slots__ = (
        "_is_of_interest",
        "_is_registered",
        "_named",
        "_plans",
        "_reads_objects",
        "_registrations",
        "_unregistered",
    )

    def __init__(self, registrations: Iterable[Registration]) -> None:
        self._registrations = tuple(registrations)
        self._named = frozenset(each.plugin for each in self._registrations)
        self._unregistered: dict[str, None] = {}
        self._is_of_interest: dict[ClusterEvent, bool] = {}
        self._reads_objects: dict[ClusterEvent, bool] = {}
        self._is_registered: dict[tuple[str, ClusterEvent], bool] = {}
        self._plans: dict[tuple[ClusterEvent, Failure], HintPlan] = {}

    @property
    def unregistered_plugins(self) -> tuple[str, ...]:
        """The plugins that refused a pod without being registered, by name."""
        return tuple(sorted(self._unregistered))

    def add_refusing(self, plugins: Iterable[str]) -> None:
        """Take note of plugins that have refused a pod."""
        for plugin in plugins:
            if plugin not in self._named:
                self._unregistered[plugin] = None

    def is_of_interest(self, event: ClusterEvent) -> bool:
        """Return whether any plugin may pass a pod because of `event`."""
        if event.is_wildcard or self._unregistered:
            return True
        cached = self._is_of_interest.get(event)
        if cached is None:
            _make_room(self._is_of_interest)
            cached = any(each.event.covers(event) for each in self._registrations)
            self._is_of_interest[event] = cached
        return cached

    def reads_objects(self, event: ClusterEvent) -> bool:
        """Return whether any hint looks at the objects of `event`."""
        cached = self._reads_objects.get(event)
        if cached is None:
            _make_room(self._reads_objects)
            cached = any(each.hint and each.event.covers(event) for each in self._registrations)
            self._reads_objects[event] = cached
        return cached

    def is_registered(self, plugin: str, event: ClusterEvent) -> bool:
        """Return whether `plugin` registered for `event`."""
        if plugin not in self._named:
            return not event.is_wildcard
        cached = self._is_registered.get((plugin, event))
        if cached is None:
            _make_room(self._is_registered)
            cached = any(
                each.plugin == plugin and each.event.covers(event) for each in self._registrations
            )
            self._is_registered[plugin, event] = cached
        return cached

    def strategy(self, pod_info: QueuedPodInfo, object_event: ObjectEvent) -> QueueingStrategy:
        """Return where `object_event` sends the pod.

        A pod that no plugin refused is tried again; so is any pod at a wildcard, unless the
        wildcard names another one.
        """
        failure = pod_info.failure
        if failure is None or not failure.is_unschedulable:
            return _AFTER_BACKOFF
        if object_event.event.is_wildcard:
            named = object_event.new
            is_meant = named is None or getattr(named, "uid", "") == pod_info.pod.uid
            return _AFTER_BACKOFF if is_meant else _SKIP
        return self.plan(object_event.event, failure).strategy(pod_info.pod, object_event)

    def plan(self, event: ClusterEvent, failure: Failure | None) -> HintPlan:
        """Return what decides on `event` for pods that failed by `failure`."""
        if failure is None or not failure.is_unschedulable or event.is_wildcard:
            return _REQUEUES
        cached = self._plans.get((event, failure))
        if cached is None:
            _make_room(self._plans)
            cached = self._plans[event, failure] = self._new_plan(event, failure)
        return cached

    def _new_plan(self, event: ClusterEvent, failure: Failure) -> HintPlan:
        pending = self._hints_of(event, failure.pending_plugins)
        waiting = frozenset(failure.pending_plugins)
        refused = self._hints_of(event, (each for each in failure.plugins if each not in waiting))
        if not pending and not refused:
            return HintPlan(decided=_SKIP)
        if _always in pending:
            return HintPlan(decided=_IMMEDIATELY)
        if not pending and _always in refused:
            return _REQUEUES
        return HintPlan(pending=pending, refused=refused)

    def _hints_of(self, event: ClusterEvent, plugins: Iterable[str]) -> tuple[QueueingHintFn, ...]:
        hints: list[QueueingHintFn] = []
        for plugin in plugins:
            if plugin not in self._named:
                hints.append(_always)
            hints += [
                each.hint or _always
                for each in self._registrations
                if each.plugin == plugin and each.event.covers(event)
            ]
        return tuple(hints)


def _always(_pod: QueuedPod, _object_event: ObjectEvent) -> bool:
    return True


_REQUEUES = HintPlan(decided=_AFTER_BACKOFF)
_CACHED_MAX = 4096


def _make_room(cache: dict[Any, Any]) -> None:
    """Empty a full cache: callers may name new events and plugins without end."""
    if len(cache) >= _CACHED_MAX:
        cache.clear()
