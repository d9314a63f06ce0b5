"""NodeVolumeLimits: a volume of a driver is detached, or a node's limits come to be known.

Source: kubernetes v1.34 plugins/nodevolumelimits/csi.go, EventsToRegister and the
isSchedulableAfter functions; csi-translation-lib, IsInlineMigratable.
"""

from __future__ import annotations

from services.framework.cluster_event import AnyPod, PendingPod
from services.framework.hints import events_of, on, spec_of
from services.framework.volumes.claim_hints import claim_used
from services.framework.volumes.migration import migrated
from services.kube.storage import VolumeAttachment
from services.kube.volumes import ClaimSource, EphemeralSource, Volume


def slot_freed(_pod: PendingPod, old: AnyPod | None, _new: AnyPod | None) -> bool:
    """Queue where the deleted pod was assigned and had a volume that counts."""
    if old is None:
        return True
    return bool(old.node_name) and any(_counts(volume) for volume in spec_of(old).volumes)


def _counts(volume: Volume) -> bool:
    source = volume.source
    return isinstance(source, (ClaimSource, EphemeralSource)) or migrated(source) is not None


def detached(pod: PendingPod, old: VolumeAttachment | None, _new: VolumeAttachment | None) -> bool:
    """Queue where the pod has a claim, or a volume of the driver that has detached one."""
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


EVENTS = events_of(
    "NodeVolumeLimits",
    on("CSINodeAdd"),
    on("PodDelete", slot_freed),
    on("PersistentVolumeClaimAdd", claim_used),
    on("VolumeAttachmentDelete", detached),
)
