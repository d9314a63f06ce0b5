"""NodeVolumeLimits: a pod or an attachment goes and frees a slot, or the pod's claim comes.

Source: kubernetes v1.34 plugins/nodevolumelimits/csi.go, isSchedulableAfterPodDeleted,
isSchedulableAfterPVCAdded, isSchedulableAfterVolumeAttachmentDeleted; csi-translation-lib,
IsInlineMigratable.
"""

from __future__ import annotations

from services.kube.storage import PersistentVolumeClaim, VolumeAttachment
from services.kube.volumes import (
    AwsElasticBlockStore,
    AzureDisk,
    AzureFile,
    CinderDisk,
    ClaimSource,
    EphemeralSource,
    GcePersistentDisk,
    PortworxVolume,
    Volume,
    VsphereDisk,
)
from services.queue.core.happening import Happening
from services.queue.core.hints import claims
from services.queue.core.hints.objects import objects, pods, spec_of
from services.queue.core.pod import QueuedPod

_DRIVERS: dict[type, str] = {
    GcePersistentDisk: "pd.csi.storage.gke.io",
    AwsElasticBlockStore: "ebs.csi.aws.com",
    AzureDisk: "disk.csi.azure.com",
    AzureFile: "file.csi.azure.com",
    CinderDisk: "cinder.csi.openstack.org",
    VsphereDisk: "csi.vsphere.vmware.com",
    PortworxVolume: "pxd.portworx.com",
}
"""The CSI driver that serves an inline volume of an in-tree kind."""


def after_pod_deleted(_pod: QueuedPod, happening: Happening) -> bool:
    """Queue where the pod that has gone from a node had a volume that is counted."""
    known = pods(happening)
    if known is None or known[0] is None:
        return True
    gone = known[0]
    return bool(gone.node_name) and any(_counts(volume) for volume in spec_of(gone).volumes)


def after_claim_added(pod: QueuedPod, happening: Happening) -> bool:
    """Queue where the claim is one of the pod's."""
    known = objects(happening, PersistentVolumeClaim)
    return known is None or claims.uses(pod, known[1])


def after_attachment_deleted(pod: QueuedPod, happening: Happening) -> bool:
    """Queue where the pod names a claim, or has a volume of the driver that has detached one."""
    known = objects(happening, VolumeAttachment)
    if known is None or known[0] is None:
        return True
    attacher = known[0].attacher
    sources = [volume.source for volume in spec_of(pod).volumes]
    return any(
        isinstance(source, ClaimSource) or _DRIVERS.get(type(source)) == attacher
        for source in sources
    )


def _counts(volume: Volume) -> bool:
    return isinstance(volume.source, (ClaimSource, EphemeralSource)) or (
        type(volume.source) in _DRIVERS
    )
