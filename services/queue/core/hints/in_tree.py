"""Upstream's plugins: which events each registers for, and which hint judges them.

A registration without a hint always queues.

Source: kubernetes v1.34 pkg/scheduler/framework/plugins, each plugin's EventsToRegister, with
queueing hints on and the feature gates at their defaults.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from services.queue.core.cluster_event import event_of
from services.queue.core.happening import HintFunction
from services.queue.core.hints import (
    default_preemption,
    inter_pod_affinity,
    node_affinity,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    scheduling_gates,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)
from services.queue.core.hints.profiles import HintProfiles, ProfiledHint
from services.queue.core.registrations import Registration

_Row = tuple[str, str, HintFunction | None]

_ROWS: tuple[_Row, ...] = (
    (
        "SchedulingGates",
        "UnschedulablePodSchedulingGatesEliminated",
        scheduling_gates.after_gates_eliminated,
    ),
    ("NodeName", "NodeAdd", None),
    ("NodeUnschedulable", "NodeAdd", node_unschedulable.after_node_change),
    ("NodeUnschedulable", "NodeTaintChange", node_unschedulable.after_node_change),
    ("NodeUnschedulable", "PodTolerationChange", node_unschedulable.after_toleration_change),
    ("TaintToleration", "NodeAdd", taint_toleration.after_node_change),
    ("TaintToleration", "NodeTaintChange", taint_toleration.after_node_change),
    ("TaintToleration", "PodTolerationChange", taint_toleration.after_toleration_change),
    ("NodePorts", "PodDelete", node_ports.after_pod_deleted),
    ("NodePorts", "NodeAdd", None),
    ("NodeResourcesFit", "PodDelete", node_resources_fit.after_pod_event),
    ("NodeResourcesFit", "PodScaleDown", node_resources_fit.after_pod_event),
    ("NodeResourcesFit", "NodeAdd", node_resources_fit.after_node_change),
    ("NodeResourcesFit", "NodeAllocatableChange", node_resources_fit.after_node_change),
    ("InterPodAffinity", "PodAdd", inter_pod_affinity.after_pod_change),
    ("InterPodAffinity", "PodDelete", inter_pod_affinity.after_pod_change),
    ("InterPodAffinity", "PodLabelChange", inter_pod_affinity.after_pod_change),
    ("InterPodAffinity", "NodeAdd", inter_pod_affinity.after_node_change),
    ("InterPodAffinity", "NodeLabelChange", inter_pod_affinity.after_node_change),
    ("VolumeRestrictions", "PodDelete", volume_restrictions.after_pod_deleted),
    ("VolumeRestrictions", "NodeAdd", None),
    ("VolumeRestrictions", "PersistentVolumeClaimAdd", volume_restrictions.after_claim_added),
    ("NodeVolumeLimits", "CSINodeAdd", None),
    ("NodeVolumeLimits", "PodDelete", node_volume_limits.after_pod_deleted),
    ("NodeVolumeLimits", "PersistentVolumeClaimAdd", node_volume_limits.after_claim_added),
    ("NodeVolumeLimits", "VolumeAttachmentDelete", node_volume_limits.after_attachment_deleted),
    ("VolumeBinding", "StorageClassAdd", volume_binding.after_class_change),
    ("VolumeBinding", "StorageClassUpdate", volume_binding.after_class_change),
    ("VolumeBinding", "PersistentVolumeClaimAdd", volume_binding.after_claim_change),
    ("VolumeBinding", "PersistentVolumeClaimUpdate", volume_binding.after_claim_change),
    ("VolumeBinding", "PersistentVolumeAdd", None),
    ("VolumeBinding", "PersistentVolumeUpdate", None),
    ("VolumeBinding", "NodeAdd", None),
    ("VolumeBinding", "NodeLabelChange", None),
    ("VolumeBinding", "CSINodeAdd", volume_binding.after_csi_node_change),
    ("VolumeBinding", "CSINodeUpdate", volume_binding.after_csi_node_change),
    ("VolumeBinding", "CSIDriverUpdate", volume_binding.after_driver_change),
    ("VolumeBinding", "CSIStorageCapacityAdd", volume_binding.after_capacity_change),
    ("VolumeBinding", "CSIStorageCapacityUpdate", volume_binding.after_capacity_change),
    ("VolumeZone", "StorageClassAdd", volume_zone.after_class_added),
    ("VolumeZone", "NodeAdd", None),
    ("VolumeZone", "NodeLabelChange", None),
    ("VolumeZone", "PersistentVolumeClaimAdd", volume_zone.after_claim_change),
    ("VolumeZone", "PersistentVolumeClaimUpdate", volume_zone.after_claim_change),
    ("VolumeZone", "PersistentVolumeAdd", volume_zone.after_volume_change),
    ("VolumeZone", "PersistentVolumeUpdate", volume_zone.after_volume_change),
    ("DefaultPreemption", "AssignedPodDelete", default_preemption.after_pod_deleted),
)

_PROFILED_ROWS: tuple[tuple[str, str, ProfiledHint], ...] = (
    ("NodeAffinity", "NodeAdd", node_affinity.after_node_change),
    ("NodeAffinity", "NodeLabelChange", node_affinity.after_node_change),
    ("PodTopologySpread", "PodAdd", pod_topology_spread.after_pod_change),
    ("PodTopologySpread", "PodDelete", pod_topology_spread.after_pod_change),
    ("PodTopologySpread", "PodLabelChange", pod_topology_spread.after_pod_change),
    ("PodTopologySpread", "PodTolerationChange", pod_topology_spread.after_pod_change),
    ("PodTopologySpread", "NodeAdd", pod_topology_spread.after_node_change),
    ("PodTopologySpread", "NodeDelete", pod_topology_spread.after_node_change),
    ("PodTopologySpread", "NodeLabelChange", pod_topology_spread.after_node_change),
    ("PodTopologySpread", "NodeTaintChange", pod_topology_spread.after_node_change),
)


def in_tree(profiles: HintProfiles) -> tuple[Registration, ...]:
    """Return the registrations of upstream's plugins, with the arguments of `profiles`."""
    plain = [
        Registration(plugin=plugin, event=event_of(label), hint=hint)
        for plugin, label, hint in _ROWS
    ]
    profiled = [
        Registration(plugin=plugin, event=event_of(label), hint=partial(hint, profiles=profiles))
        for plugin, label, hint in _PROFILED_ROWS
    ]
    return (*plain, *profiled)


IN_TREE: tuple[Registration, ...] = in_tree({})
"""The same with upstream's default arguments."""

_NODE_ADD = event_of("NodeAdd")
WITHOUT_HINTS: tuple[Registration, ...] = tuple(
    [Registration(plugin=each.plugin, event=each.event) for each in IN_TREE]
    + [
        Registration(plugin=each.plugin, event=event_of(label))
        for each in IN_TREE
        if each.event == _NODE_ADD
        for label in ("NodeLabelChange", "NodeTaintChange")
    ]
)
"""The same where hints are off: whoever waits for a node waits for its labels and taints too.

A check of the node may then have kept the pod back when the node came.
Source: kubernetes#109437, and the notes beside each plugin's EventsToRegister.
"""


def hint_of(
    plugin: str, label: str, registered: Iterable[Registration] = IN_TREE
) -> HintFunction | None:
    """Return the hint that a plugin `registered` for an event; None where it has none."""
    event = event_of(label)
    for each in registered:
        if each.plugin == plugin and (each.event.covers(event) or event.covers(each.event)):
            return each.hint
    return None
