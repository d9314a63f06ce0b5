"""Cluster events: what a move of unschedulable pods is about.

The value of an event is its label, one vocabulary for all modes of the queue: the one that
upstream printed up to v1.31. From v1.32 on upstream prints resource and action instead
(`printed`), which differs only for updates.

Source: kubernetes v1.20 pkg/scheduler/internal/queue/events.go; v1.31
pkg/scheduler/framework/events.go; v1.34 pkg/scheduler/framework/types.go, ClusterEvent.Label.
"""

from __future__ import annotations

from enum import StrEnum


class ClusterEvent(StrEnum):
    """Something that happened in the cluster."""

    UNKNOWN = "Unknown"
    NODE_ADD = "NodeAdd"
    NODE_DELETE = "NodeDelete"
    NODE_SPEC_UNSCHEDULABLE_CHANGE = "NodeSpecUnschedulableChange"
    NODE_ALLOCATABLE_CHANGE = "NodeAllocatableChange"
    NODE_LABEL_CHANGE = "NodeLabelChange"
    NODE_TAINT_CHANGE = "NodeTaintChange"
    NODE_CONDITION_CHANGE = "NodeConditionChange"
    NODE_ANNOTATION_CHANGE = "NodeAnnotationChange"
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
    PV_ADD = "PvAdd"
    PV_UPDATE = "PvUpdate"
    PVC_ADD = "PvcAdd"
    PVC_UPDATE = "PvcUpdate"
    SERVICE_ADD = "ServiceAdd"
    SERVICE_UPDATE = "ServiceUpdate"
    SERVICE_DELETE = "ServiceDelete"

    @property
    def printed(self) -> str:
        """Return the label as upstream v1.34 prints it, such as "NodeUpdateNodeTaint"."""
        return _PRINTED.get(self, self.value)


_PRINTED = {
    ClusterEvent.NODE_ALLOCATABLE_CHANGE: "NodeUpdateNodeAllocatable",
    ClusterEvent.NODE_LABEL_CHANGE: "NodeUpdateNodeLabel",
    ClusterEvent.NODE_TAINT_CHANGE: "NodeUpdateNodeTaint",
    ClusterEvent.NODE_CONDITION_CHANGE: "NodeUpdateNodeCondition",
    ClusterEvent.NODE_ANNOTATION_CHANGE: "NodeUpdateNodeAnnotation",
    ClusterEvent.ASSIGNED_POD_LABEL_CHANGE: "AssignedPodUpdatePodLabel",
    ClusterEvent.ASSIGNED_POD_SCALE_DOWN: "AssignedPodUpdatePodScaleDown",
    ClusterEvent.ASSIGNED_POD_GATES_ELIMINATED: "AssignedPodUpdatePodSchedulingGatesEliminated",
    ClusterEvent.ASSIGNED_POD_TOLERATION_CHANGE: "AssignedPodUpdatePodToleration",
    ClusterEvent.PENDING_POD_LABEL_CHANGE: "UnschedulablePodUpdatePodLabel",
    ClusterEvent.PENDING_POD_SCALE_DOWN: "UnschedulablePodUpdatePodScaleDown",
    ClusterEvent.PENDING_POD_GATES_ELIMINATED: "UnschedulablePodUpdatePodSchedulingGatesEliminated",
    ClusterEvent.PENDING_POD_TOLERATION_CHANGE: "UnschedulablePodUpdatePodToleration",
}
