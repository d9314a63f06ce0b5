"""Upstream's plugins: the events that each registers for, and the hints that decide on them.

A registration without a hint always queues.

Source: kubernetes v1.34 pkg/scheduler/framework/plugins, each plugin's EventsToRegister, with
queueing hints on and the feature gates at their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from services.queue.core.cluster_event import ObjectEvent, QueueingHintFn, Registration, event_of
from services.queue.core.hints import inter_pod_affinity, nodes, pod_topology_spread, volumes
from services.queue.core.hints.objects import HintProfiles, hint
from services.queue.core.queued_pod import QueuedPod


def _skip(_pod: QueuedPod, _object_event: ObjectEvent) -> bool:
    """Skip: the hints of the plugins that refused the preemptor decide.

    The registration only has the event reach pods that the plugin gates.
    Source: kubernetes v1.34 plugins/defaultpreemption/default_preemption.go,
    isPodSchedulableAfterAssignedPodDeletion.
    """
    return False


_ROWS: tuple[tuple[str, str, Callable[..., bool] | None], ...] = (
    ("SchedulingGates", "UnschedulablePodSchedulingGatesEliminated", nodes.own_pod),
    ("NodeName", "NodeAdd", None),
    ("NodeUnschedulable", "NodeAdd", nodes.uncordoned),
    ("NodeUnschedulable", "NodeTaintChange", nodes.uncordoned),
    ("NodeUnschedulable", "PodTolerationChange", nodes.cordon_tolerated),
    ("TaintToleration", "NodeAdd", nodes.untainted),
    ("TaintToleration", "NodeTaintChange", nodes.untainted),
    ("TaintToleration", "PodTolerationChange", nodes.own_pod),
    ("NodePorts", "PodDelete", nodes.port_freed),
    ("NodePorts", "NodeAdd", None),
    ("NodeResourcesFit", "PodDelete", nodes.resources_freed),
    ("NodeResourcesFit", "PodScaleDown", nodes.resources_freed),
    ("NodeResourcesFit", "NodeAdd", nodes.allocatable_grown),
    ("NodeResourcesFit", "NodeAllocatableChange", nodes.allocatable_grown),
    ("InterPodAffinity", "PodAdd", inter_pod_affinity.after_pod_change),
    ("InterPodAffinity", "PodDelete", inter_pod_affinity.after_pod_change),
    ("InterPodAffinity", "PodLabelChange", inter_pod_affinity.after_pod_change),
    ("InterPodAffinity", "NodeAdd", inter_pod_affinity.after_node_change),
    ("InterPodAffinity", "NodeLabelChange", inter_pod_affinity.after_node_change),
    ("VolumeRestrictions", "PodDelete", volumes.disk_freed),
    ("VolumeRestrictions", "NodeAdd", None),
    ("VolumeRestrictions", "PersistentVolumeClaimAdd", volumes.claim_named),
    ("NodeVolumeLimits", "CSINodeAdd", None),
    ("NodeVolumeLimits", "PodDelete", volumes.slot_freed),
    ("NodeVolumeLimits", "PersistentVolumeClaimAdd", volumes.claim_used),
    ("NodeVolumeLimits", "VolumeAttachmentDelete", volumes.detached),
    ("VolumeBinding", "StorageClassAdd", volumes.class_widened),
    ("VolumeBinding", "StorageClassUpdate", volumes.class_widened),
    ("VolumeBinding", "PersistentVolumeClaimAdd", volumes.claim_used),
    ("VolumeBinding", "PersistentVolumeClaimUpdate", volumes.claim_used),
    ("VolumeBinding", "PersistentVolumeAdd", None),
    ("VolumeBinding", "PersistentVolumeUpdate", None),
    ("VolumeBinding", "NodeAdd", None),
    ("VolumeBinding", "NodeLabelChange", None),
    ("VolumeBinding", "CSINodeAdd", volumes.migration_changed),
    ("VolumeBinding", "CSINodeUpdate", volumes.migration_changed),
    ("VolumeBinding", "CSIDriverUpdate", volumes.capacity_ignored),
    ("VolumeBinding", "CSIStorageCapacityAdd", volumes.capacity_grown),
    ("VolumeBinding", "CSIStorageCapacityUpdate", volumes.capacity_grown),
    ("VolumeZone", "StorageClassAdd", volumes.class_waits),
    ("VolumeZone", "NodeAdd", None),
    ("VolumeZone", "NodeLabelChange", None),
    ("VolumeZone", "PersistentVolumeClaimAdd", volumes.claim_named),
    ("VolumeZone", "PersistentVolumeClaimUpdate", volumes.claim_named),
    ("VolumeZone", "PersistentVolumeAdd", volumes.volume_moved),
    ("VolumeZone", "PersistentVolumeUpdate", volumes.volume_moved),
    ("DefaultPreemption", "AssignedPodDelete", _skip),
)

_PROFILED_ROWS: tuple[tuple[str, str, Callable[..., bool]], ...] = (
    ("NodeAffinity", "NodeAdd", nodes.affinity_matched),
    ("NodeAffinity", "NodeLabelChange", nodes.affinity_matched),
    ("PodTopologySpread", "PodAdd", pod_topology_spread.after_pod_change),
    ("PodTopologySpread", "PodDelete", pod_topology_spread.after_pod_change),
    ("PodTopologySpread", "PodLabelChange", pod_topology_spread.after_pod_change),
    ("PodTopologySpread", "PodTolerationChange", pod_topology_spread.after_pod_change),
    ("PodTopologySpread", "NodeAdd", pod_topology_spread.after_node_change),
    ("PodTopologySpread", "NodeDelete", pod_topology_spread.after_node_change),
    ("PodTopologySpread", "NodeLabelChange", pod_topology_spread.after_node_change),
    ("PodTopologySpread", "NodeTaintChange", pod_topology_spread.after_node_change),
)

_READS_EVENT = frozenset({inter_pod_affinity.after_pod_change, _skip})
"""The hints that receive the event itself, not its objects alone."""


def _registration(plugin: str, label: str, judge: Callable[..., bool] | None) -> Registration:
    event = event_of(label)
    if judge is None or judge in _READS_EVENT:
        return Registration(plugin=plugin, event=event, hint=judge)
    return Registration(plugin=plugin, event=event, hint=hint(event, judge))


_PLAIN = tuple(_registration(*row) for row in _ROWS)


def in_tree(profiles: HintProfiles) -> tuple[Registration, ...]:
    """Return the registrations of upstream's plugins, with the arguments of `profiles`."""
    profiled = [
        _registration(plugin, label, partial(judge, profiles=profiles))
        for plugin, label, judge in _PROFILED_ROWS
    ]
    return (*_PLAIN, *profiled)


IN_TREE: tuple[Registration, ...] = in_tree({})
"""The registrations with upstream's default arguments."""

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
"""The registrations without queueing hints: plugins with NodeAdd have label and taint changes, too.

Upstream then checks each pod against a node before the node's event moves it (preCheckForNode), so
that a pod may have been skipped when the node was added. Our scheduler does not make that check
(ARCHITECTURE.md, "Where we differ").
Source: kubernetes#109437, and the notes beside each plugin's EventsToRegister.
"""


def hint_of(
    plugin: str, label: str, registered: Iterable[Registration] = IN_TREE
) -> QueueingHintFn | None:
    """Return the hint that a plugin registered for an event; None without one."""
    event = event_of(label)
    for each in registered:
        if each.plugin == plugin and (each.event.covers(event) or event.covers(each.event)):
            return each.hint
    return None
