"""Cluster events, and a plugin's registration for them.

An event is sent by its label. One vocabulary covers the labels that upstream prints since v1.32
(resource and action, "NodeUpdateNodeTaint") and those that it printed before ("NodeTaintChange").
A registration names events in the same vocabulary, broader ones too: "Pod" covers assigned and
pending pods, "NodeUpdate" every update of a node, "Node" every event of a node, "*" all events.

Source: kubernetes v1.34 staging/src/k8s.io/kube-scheduler/framework/types.go, ClusterEvent,
ActionType, ClusterEventWithHint; pkg/scheduler/framework/types.go, MatchClusterEvents; events.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, Protocol

from services.kube.pod import PodSpec
from services.kube.selector import LabelSelector

_NO_LABELS: Mapping[str, str] = MappingProxyType({})
ANY = "*"
POD = "Pod"
ASSIGNED_POD = "AssignedPod"
UNSCHEDULABLE_POD = "UnschedulablePod"
NODE = "Node"


class ActionType(IntFlag):
    """The kind of a change of an object, as flags; UPDATE has the flags of all narrower updates."""

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
    UPDATE_NODE_DECLARED_FEATURE = 8192
    UPDATE = 16380
    ALL = 16383


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
    "UpdateNodeDeclaredFeature": ActionType.UPDATE_NODE_DECLARED_FEATURE,
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
    "DeclaredFeatureChange": ActionType.UPDATE_NODE_DECLARED_FEATURE,
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
    namespace, for affinity terms that select namespaces; `class_resources` are extended resources
    that device classes serve, with an event of a node. `source` is opaque here: the edge makes
    the objects from it when a checkpoint is restored.
    Source: kubernetes v1.34 pkg/scheduler/backend/queue/active_queue.go, clusterEvent.
    """

    event: ClusterEvent
    old: object | None = None
    new: object | None = None
    namespace_labels: Mapping[str, str] = field(default_factory=lambda: _NO_LABELS)
    source: bytes = b""
    class_resources: frozenset[str] = frozenset()

    @classmethod
    def of(cls, label: str, old: object | None = None, new: object | None = None) -> ObjectEvent:
        """Return the event that `label` names, with its objects."""
        return cls(event=event_of(label), old=old, new=new)


class AnyPod(Protocol):
    """A pod as a hint reads it: an assigned one, or a version of a pending one."""

    @property
    def uid(self) -> str: ...  # noqa: D102 - as in services.kube.pod
    @property
    def namespace(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def labels(self) -> Mapping[str, str]: ...  # noqa: D102
    @property
    def node_name(self) -> str: ...  # noqa: D102
    @property
    def nominated_node_name(self) -> str: ...  # noqa: D102
    @property
    def spec(self) -> PodSpec | None:
        """The spec, None where the queue has not read it."""


class PendingPod(AnyPod, Protocol):
    """A pod that waits in the queue.

    `spread_selector` selects the pods that a profile's default spread constraints counted when
    they refused this one; None where they did not, or where the scheduler did not send it.
    """

    @property
    def spread_selector(self) -> LabelSelector | None: ...  # noqa: D102


QueueingHintFn = Callable[[PendingPod, ObjectEvent], bool]
"""Whether the event may make a plugin pass the pod that it refused: upstream's Queue, QueueSkip.

A hint that lacks the objects to decide returns True, as upstream queues the pod when a hint fails.
"""


class ClaimUsers(NamedTuple):
    """The pods that a ResourceClaim may concern: its owners, and those whose specs name it."""

    namespace: str
    claim_name: str
    owner_uids: tuple[str, ...]


UsersOf = Callable[[ObjectEvent], ClaimUsers | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One plugin's interest in one event; without a `hint` the event always queues.

    `users_of` returns the only pods for which the hint may return Queue on an event, None where
    these may be any. It saves calls of the hint and decides nothing.
    """

    plugin: str
    event: ClusterEvent
    hint: QueueingHintFn | None = None
    users_of: UsersOf | None = None
