"""The operations that the scheduler sends its queue, as values.

A cluster event is sent by its label, in one vocabulary for all versions of the queue: the one that
upstream printed up to v1.31. From v1.32 on upstream prints resource and action instead, which
differs only for updates; the queue accepts both.

Source: kubernetes v1.20 pkg/scheduler/internal/queue/events.go; v1.31
pkg/scheduler/framework/events.go; v1.34 pkg/scheduler/framework/types.go, EventLabel.Label.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from services.framework.snapshot.catalog import CatalogObject
from services.kube.node import Node
from services.kube.pod import Pod
from services.kube.selector import LabelSelector
from services.kube.value import value


class EventLabel(StrEnum):
    """A cluster event, named by the kind of its object and the kind of the change."""

    UNKNOWN = "Unknown"
    NODE_ADD = "NodeAdd"
    NODE_DELETE = "NodeDelete"
    NODE_SPEC_UNSCHEDULABLE_CHANGE = "NodeSpecUnschedulableChange"
    NODE_ALLOCATABLE_CHANGE = "NodeAllocatableChange"
    NODE_LABEL_CHANGE = "NodeLabelChange"
    NODE_TAINT_CHANGE = "NodeTaintChange"
    NODE_CONDITION_CHANGE = "NodeConditionChange"
    NODE_ANNOTATION_CHANGE = "NodeAnnotationChange"
    NODE_DECLARED_FEATURE_CHANGE = "NodeDeclaredFeatureChange"
    ASSIGNED_POD_ADD = "AssignedPodAdd"
    ASSIGNED_POD_UPDATE = "AssignedPodUpdate"
    ASSIGNED_POD_DELETE = "AssignedPodDelete"
    ASSIGNED_POD_LABEL_CHANGE = "AssignedPodLabelChange"
    ASSIGNED_POD_SCALE_DOWN = "AssignedPodScaleDown"
    ASSIGNED_POD_GATES_ELIMINATED = "AssignedPodSchedulingGatesEliminated"
    ASSIGNED_POD_TOLERATION_CHANGE = "AssignedPodTolerationChange"
    PENDING_POD_UPDATE = "UnschedulablePodUpdate"
    PENDING_POD_LABEL_CHANGE = "UnschedulablePodLabelChange"
    PENDING_POD_SCALE_DOWN = "UnschedulablePodScaleDown"
    PENDING_POD_GATES_ELIMINATED = "UnschedulablePodSchedulingGatesEliminated"
    PENDING_POD_TOLERATION_CHANGE = "UnschedulablePodTolerationChange"
    ASSIGNED_POD_CLAIMS_GENERATED = "AssignedPodUpdatePodGeneratedResourceClaim"
    PENDING_POD_CLAIMS_GENERATED = "UnschedulablePodUpdatePodGeneratedResourceClaim"

    VOLUME_ADD = "PersistentVolumeAdd"
    VOLUME_UPDATE = "PersistentVolumeUpdate"
    CLAIM_ADD = "PersistentVolumeClaimAdd"
    CLAIM_UPDATE = "PersistentVolumeClaimUpdate"
    STORAGE_CLASS_ADD = "StorageClassAdd"
    STORAGE_CLASS_UPDATE = "StorageClassUpdate"
    CSI_NODE_ADD = "CSINodeAdd"
    CSI_NODE_UPDATE = "CSINodeUpdate"
    CSI_DRIVER_UPDATE = "CSIDriverUpdate"
    CSI_STORAGE_CAPACITY_ADD = "CSIStorageCapacityAdd"
    CSI_STORAGE_CAPACITY_UPDATE = "CSIStorageCapacityUpdate"
    VOLUME_ATTACHMENT_DELETE = "VolumeAttachmentDelete"
    RESOURCE_CLAIM_ADD = "ResourceClaimAdd"
    RESOURCE_CLAIM_UPDATE = "ResourceClaimUpdate"
    DEVICE_CLASS_ADD = "DeviceClassAdd"
    DEVICE_CLASS_UPDATE = "DeviceClassUpdate"
    RESOURCE_SLICE_ADD = "ResourceSliceAdd"
    RESOURCE_SLICE_UPDATE = "ResourceSliceUpdate"
    PV_ADD = "PvAdd"
    PV_UPDATE = "PvUpdate"
    PVC_ADD = "PvcAdd"
    PVC_UPDATE = "PvcUpdate"
    SERVICE_ADD = "ServiceAdd"
    SERVICE_UPDATE = "ServiceUpdate"
    SERVICE_DELETE = "ServiceDelete"


@value(kw_only=True)
class QueueAdd:
    """A pod waits to be scheduled; `gates` are the PreEnqueue plugins that hold it back."""

    pod: Pod
    gates: tuple[str, ...] = ()


@value(kw_only=True)
class QueueUpdate:
    """A waiting pod has changed; `gates` are the PreEnqueue plugins that hold it back now."""

    old: Pod
    new: Pod
    gates: tuple[str, ...] = ()


@value(kw_only=True)
class SetGates:
    """The PreEnqueue plugins that hold back a pending pod have changed, but not the pod."""

    pod: Pod
    gates: tuple[str, ...]


@value(kw_only=True)
class QueueDelete:
    """A pod is no longer pending: it was deleted, has finished or was assigned to a node."""

    pod: Pod


@value(kw_only=True)
class AssignedPodAdd:
    """A pod was assigned to a node: v1.20 moves the pods whose required affinity it meets."""

    pod: Pod


@value(kw_only=True)
class AssignedPodUpdate:
    """An assigned pod has changed: v1.20 moves the pods whose required affinity it meets."""

    old: Pod
    new: Pod


@value(kw_only=True)
class Move:
    """Unschedulable pods may have become schedulable.

    `old` is None for a new object and `new` for a deleted one. Only pods of a priority of at most
    `priority_at_most` are moved, where it is not None, and never the pod `all_but_uid`.
    """

    event: EventLabel
    old: Pod | Node | CatalogObject | None = None
    new: Pod | Node | CatalogObject | None = None
    priority_at_most: int | None = None
    all_but_uid: str = ""

    @property
    def label(self) -> str:
        """Return the event's label."""
        return self.event.value


QueueOperation = QueueAdd | QueueUpdate | QueueDelete | AssignedPodAdd | AssignedPodUpdate | Move


class PopId(NamedTuple):
    """One pop of one pod: its UID and the queue's scheduling cycle."""

    uid: str
    cycle: int


class Requeue(NamedTuple):
    """What moved a pod since its last attempt failed: Requeue of session.proto."""

    event: str
    at_ns: int
    active_ns: int | None = None


class Head(NamedTuple):
    """A pod at the front of the queue, not popped yet: Head of queue.proto."""

    pop: PopId
    attempts: int
    first_enqueued_ns: int
    queued_ns: int
    requeue: Requeue | None = None


@value()
class CommitPop:
    """Pop exactly this head."""

    pop: PopId


class WhyFailed(NamedTuple):
    """The plugins that refused a pod, or an error.

    `spread_selector` picks the pods that default spread constraints counted, where they refused.
    """

    plugins: tuple[str, ...] = ()
    pending_plugins: tuple[str, ...] = ()
    is_error: bool = False
    spread_selector: LabelSelector | None = None


ERROR = WhyFailed(is_error=True)


class CommitUnschedulable(NamedTuple):
    """Pop exactly this head and return it to the queue: its cycle has failed."""

    pop: PopId
    why: WhyFailed


@value()
class AddUnschedulable:
    """Return a committed pop to the queue; `cycle` is the queue's cycle at that time."""

    pop: PopId
    cycle: int
    why: WhyFailed = ERROR


@value()
class Done:
    """End a pop whose pod was bound or deleted."""

    pop: PopId


@value()
class Nominate:
    """Record a nomination."""

    uid: str
    node_name: str


@value()
class DeleteNomination:
    """Remove a nomination."""

    uid: str


@value()
class Activate:
    """Try a pod again at once."""

    uid: str


@value()
class Flush:
    """Flush backoffQ, at a whole second; with `leftover` unschedulable pods, at a half minute."""

    leftover: bool


QueueStep = (
    QueueOperation
    | SetGates
    | CommitPop
    | CommitUnschedulable
    | AddUnschedulable
    | Done
    | Nominate
    | DeleteNomination
    | Activate
    | Flush
)
