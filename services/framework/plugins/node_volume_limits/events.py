"""NodeVolumeLimits: a volume of a driver is detached, or a node's limits come to be known.

Source: kubernetes v1.34 plugins/nodevolumelimits/csi.go, EventsToRegister and the
isSchedulableAfter functions; csi-translation-lib, IsInlineMigratable. v1.36: kubernetes#135392.
"""

from __future__ import annotations

from collections.abc import Callable

from services.framework.cluster_event import AnyPod, PendingPod
from services.framework.hints import PluginEvents, events_of, frees_a_node, on, spec_of
from services.framework.volumes.claim_hints import claim_used
from services.framework.volumes.migration import migrated
from services.kube.storage import VolumeAttachment
from services.kube.volumes import ClaimSource, EphemeralSource, Volume


def slot_freed(_pod: PendingPod, old: AnyPod | None, _new: AnyPod | None) -> bool:
    """Return Queue (true) if the deleted pod was assigned and had a volume that counts."""
    if old is None:
        return True
    return bool(old.node_name) and _holds_slots(old)


def slot_freed_since_v1_36(_pod: PendingPod, old: AnyPod | None, _new: AnyPod | None) -> bool:
    """Return the hint of `slot_freed`; a pod nominated to a node counts as one on it."""
    return old is None or (frees_a_node(old) and _holds_slots(old))


def _holds_slots(pod: AnyPod) -> bool:
    return any(_counts(volume) for volume in spec_of(pod).volumes)


def _counts(volume: Volume) -> bool:
    source = volume.source
    return isinstance(source, (ClaimSource, EphemeralSource)) or migrated(source) is not None


def detached(pod: PendingPod, old: VolumeAttachment | None, _new: VolumeAttachment | None) -> bool:
    """Return Queue (true) if the pod has a claim, or a volume of the driver that detached one."""
    if old is None:
        return True
    sources = [volume.source for volume in spec_of(pod).volumes]
    return any(
        isinstance(source, ClaimSource) or _driver(source) == old.attacher for source in sources
    )


def _driver(source: object) -> str:
    """Return the CSI driver of an inline volume of an in-tree kind, "" for any other volume."""
    plugin = migrated(source)
    return "" if plugin is None else plugin.driver


def _events(pod_hint: Callable[..., bool]) -> PluginEvents:
    return events_of(
        "NodeVolumeLimits",
        on("CSINodeAdd"),
        on("PodDelete", pod_hint),
        on("PersistentVolumeClaimAdd", claim_used),
        on("VolumeAttachmentDelete", detached),
    )


EVENTS = _events(slot_freed)
EVENTS_V1_36 = _events(slot_freed_since_v1_36)
