"""Cluster events: a resource, and what happened to one of its kind.

An event is sent by its label. One vocabulary covers the labels that upstream prints since
v1.32 (resource and action, "NodeUpdateNodeTaint") and those that it printed before
("NodeTaintChange"). A registration names events in the same words, broader ones too: "Pod"
covers assigned and waiting pods, "NodeUpdate" every change of a node, "Node" all that can
happen to one, "*" everything.

Source: kubernetes v1.34 staging/src/k8s.io/kube-scheduler/framework/types.go, ClusterEvent,
ActionType; pkg/scheduler/framework/types.go, MatchClusterEvents; events.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from functools import lru_cache
from types import MappingProxyType

from services.queue.core.queued_pod import QueuedPod

_NO_LABELS: Mapping[str, str] = MappingProxyType({})
ANY = "*"
POD = "Pod"
ASSIGNED_POD = "AssignedPod"
UNSCHEDULABLE_POD = "UnschedulablePod"
NODE = "Node"


class Action(IntFlag):
    """What happened; UPDATE is any change, of which the narrower ones are parts."""

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
    """What happened to an object of `resource`; `label` is its name, and no part of its identity.

    The resource "*" with every action is the wildcard, which is for all pods or for the one
    that it names.
    """

    resource: str
    action: Action
    label: str = field(compare=False)

    @property
    def is_wildcard(self) -> bool:
        """Tell whether the event is for pods that failed by whatever plugin."""
        return self.resource == ANY and self.action == Action.ALL

    @property
    def is_known(self) -> bool:
        """Tell whether it is about a resource that upstream knows, or one that a user has defined.

        Those have a version and a group. Source: kubernetes v1.34
        staging/src/k8s.io/kube-scheduler/framework/types.go, EventResource.
        """
        return self.resource in _KNOWN or self.resource.count(".") >= _DOTS_OF_CUSTOM

    def covers(self, incoming: ClusterEvent) -> bool:
        """Tell whether `incoming` is this event or a narrower one.

        A wildcard that comes in is covered by a wildcard only.
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
_KNOWN = frozenset(
    {
        *(ANY, POD, ASSIGNED_POD, UNSCHEDULABLE_POD, NODE, "PersistentVolume"),
        *("PersistentVolumeClaim", "StorageClass", "CSINode", "CSIDriver", "VolumeAttachment"),
        *("CSIStorageCapacity", "ResourceClaim", "ResourceSlice", "DeviceClass", "Service"),
    }
)
_DOTS_OF_CUSTOM = 2
_WILDCARDS = frozenset({ANY, "ForceActivate", "UnschedulableTimeout"})
_ACTIONS = {
    "Add": Action.ADD,
    "Delete": Action.DELETE,
    "Update": Action.UPDATE,
    "All": Action.ALL,
    "UpdateNodeAllocatable": Action.UPDATE_NODE_ALLOCATABLE,
    "UpdateNodeLabel": Action.UPDATE_NODE_LABEL,
    "UpdateNodeTaint": Action.UPDATE_NODE_TAINT,
    "UpdateNodeCondition": Action.UPDATE_NODE_CONDITION,
    "UpdateNodeAnnotation": Action.UPDATE_NODE_ANNOTATION,
    "UpdatePodLabel": Action.UPDATE_POD_LABEL,
    "UpdatePodScaleDown": Action.UPDATE_POD_SCALE_DOWN,
    "UpdatePodToleration": Action.UPDATE_POD_TOLERATION,
    "UpdatePodSchedulingGatesEliminated": Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
    "UpdatePodGeneratedResourceClaim": Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM,
    "AllocatableChange": Action.UPDATE_NODE_ALLOCATABLE,
    "LabelChange": Action.UPDATE_NODE_LABEL,
    "TaintChange": Action.UPDATE_NODE_TAINT,
    "SpecUnschedulableChange": Action.UPDATE_NODE_TAINT,
    "ConditionChange": Action.UPDATE_NODE_CONDITION,
    "AnnotationChange": Action.UPDATE_NODE_ANNOTATION,
    "ScaleDown": Action.UPDATE_POD_SCALE_DOWN,
    "TolerationChange": Action.UPDATE_POD_TOLERATION,
    "SchedulingGatesEliminated": Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
}
_BY_LENGTH = sorted(_ACTIONS, key=len, reverse=True)


@lru_cache(maxsize=4096)
def event_of(label: str) -> ClusterEvent:
    """Return the event that `label` names.

    A label that ends in no known action names the resource itself and everything that can
    happen to it.
    """
    if label in _WILDCARDS:
        return ClusterEvent(ANY, Action.ALL, label)
    for suffix in _BY_LENGTH:
        if label.endswith(suffix) and len(label) > len(suffix):
            name = label[: -len(suffix)]
            resource = _RESOURCES.get(name, name)
            return ClusterEvent(resource, _action(suffix, resource), label)
    return ClusterEvent(_RESOURCES.get(label, label), Action.ALL, label)


def _action(suffix: str, resource: str) -> Action:
    if suffix == "LabelChange" and resource in {POD, *_PODS}:
        return Action.UPDATE_POD_LABEL
    return _ACTIONS[suffix]


def pod_update(part: Action, *, assigned: bool) -> ClusterEvent:
    """Return the event of a pod's change, labelled as upstream v1.34 labels it."""
    return _POD_UPDATES[assigned, part]


_POD_PARTS = {
    Action.UPDATE: "Update",
    Action.UPDATE_POD_LABEL: "UpdatePodLabel",
    Action.UPDATE_POD_SCALE_DOWN: "UpdatePodScaleDown",
    Action.UPDATE_POD_TOLERATION: "UpdatePodToleration",
    Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED: "UpdatePodSchedulingGatesEliminated",
    Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM: "UpdatePodGeneratedResourceClaim",
}
_POD_UPDATES = {
    (assigned, part): event_of(f"{ASSIGNED_POD if assigned else UNSCHEDULABLE_POD}{name}")
    for assigned in (False, True)
    for part, name in _POD_PARTS.items()
}

POD_ADD = event_of("UnschedulablePodAdd")
POD_UPDATE = event_of("UnschedulablePodUpdate")
ASSIGNED_POD_ADD = event_of("AssignedPodAdd")
ASSIGNED_POD_UPDATE = event_of("AssignedPodUpdate")
FORCE_ACTIVATE = event_of("ForceActivate")
UNSCHEDULABLE_TIMEOUT = event_of("UnschedulableTimeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """What happened, to which object.

    `old` is None for what came and `new` for what went; both are None where nobody told, or
    where no hint reads them. `namespace_labels` are those of the object's namespace, for
    affinity terms that select namespaces. `source` is opaque here: from it the edge makes the
    objects again when a checkpoint is restored.
    """

    event: ClusterEvent
    old: object | None = None
    new: object | None = None
    namespace_labels: Mapping[str, str] = field(default_factory=lambda: _NO_LABELS)
    source: bytes = b""


HintFunction = Callable[[QueuedPod, Happening], bool]
"""Whether a plugin that refused the pod may let it pass after this. False skips the event.

A hint that cannot tell answers True, as upstream takes a hint's error for one.
"""


def happened(label: str, old: object | None = None, new: object | None = None) -> Happening:
    """Return the event called `label` with its objects."""
    return Happening(event=event_of(label), old=old, new=new)
