"""Which events may move a pod that waits, by the plugins that refused it.

A queue of mode v1.34 asks the plugins that registered for an event; older queues move every
unschedulable pod on any of the events that they know. The table says what upstream's plugins
register for; a test holds it to what our queue service has.

Source: kubernetes v1.34 pkg/scheduler/framework/plugins, each plugin's EventsToRegister.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

ANY_EVENT = "any event"
WITH_HINTS = "v1.34"
OLDER_EVENTS = (
    "NodeAdd",
    "NodeSpecUnschedulableChange",
    "NodeAllocatableChange",
    "NodeLabelChange",
    "NodeTaintChange",
    "NodeConditionChange",
    "AssignedPodAdd (of a pod that its affinity asks for)",
    "AssignedPodUpdate (of a pod that its affinity asks for)",
    "AssignedPodDelete",
    "ServiceAdd",
    "ServiceUpdate",
    "ServiceDelete",
    "PvAdd",
    "PvUpdate",
    "PvcAdd",
    "PvcUpdate",
    "StorageClassAdd",
    "CSINodeAdd",
    "CSINodeUpdate",
)
"""What moves a pod in queues before v1.34, whichever plugin refused it."""

REGISTERED: Mapping[str, tuple[str, ...]] = {
    "SchedulingGates": ("UnschedulablePodSchedulingGatesEliminated",),
    "NodeName": ("NodeAdd",),
    "NodeUnschedulable": ("NodeAdd", "NodeTaintChange", "PodTolerationChange"),
    "TaintToleration": ("NodeAdd", "NodeTaintChange", "PodTolerationChange"),
    "NodeAffinity": ("NodeAdd", "NodeLabelChange"),
    "NodePorts": ("PodDelete", "NodeAdd"),
    "NodeResourcesFit": ("PodDelete", "PodScaleDown", "NodeAdd", "NodeAllocatableChange"),
    "PodTopologySpread": (
        "PodAdd",
        "PodDelete",
        "PodLabelChange",
        "PodTolerationChange",
        "NodeAdd",
        "NodeDelete",
        "NodeLabelChange",
        "NodeTaintChange",
    ),
    "InterPodAffinity": ("PodAdd", "PodDelete", "PodLabelChange", "NodeAdd", "NodeLabelChange"),
    "VolumeRestrictions": ("PodDelete", "NodeAdd", "PersistentVolumeClaimAdd"),
    "NodeVolumeLimits": (
        "CSINodeAdd",
        "PodDelete",
        "PersistentVolumeClaimAdd",
        "VolumeAttachmentDelete",
    ),
    "VolumeBinding": (
        "StorageClassAdd",
        "StorageClassUpdate",
        "PersistentVolumeClaimAdd",
        "PersistentVolumeClaimUpdate",
        "PersistentVolumeAdd",
        "PersistentVolumeUpdate",
        "NodeAdd",
        "NodeLabelChange",
        "CSINodeAdd",
        "CSINodeUpdate",
        "CSIDriverUpdate",
        "CSIStorageCapacityAdd",
        "CSIStorageCapacityUpdate",
    ),
    "VolumeZone": (
        "StorageClassAdd",
        "NodeAdd",
        "NodeLabelChange",
        "PersistentVolumeClaimAdd",
        "PersistentVolumeClaimUpdate",
        "PersistentVolumeAdd",
        "PersistentVolumeUpdate",
    ),
    "DefaultPreemption": ("AssignedPodDelete",),
}


def moving_events(mode: str, plugins: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the events that may move a pod in a queue of `mode`, by plugin ("": whichever)."""
    if mode != WITH_HINTS:
        return {"": OLDER_EVENTS}
    return {plugin: REGISTERED.get(plugin, (ANY_EVENT,)) for plugin in plugins}
