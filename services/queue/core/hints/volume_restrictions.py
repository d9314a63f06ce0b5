"""VolumeRestrictions: a pod that goes and shared a disk or a claim, or a claim that is named.

Source: kubernetes v1.34 plugins/volumerestrictions/volume_restrictions.go,
isSchedulableAfterPodDeleted, isSchedulableAfterPersistentVolumeClaimAdded, isVolumeConflict.
"""

from __future__ import annotations

from itertools import product

from services.kube.storage import PersistentVolumeClaim
from services.kube.volumes import (
    AwsElasticBlockStore,
    GcePersistentDisk,
    IscsiDisk,
    RbdImage,
    Volume,
)
from services.queue.core.happening import Happening
from services.queue.core.hints import claims
from services.queue.core.hints.objects import objects, pods, spec_of
from services.queue.core.pod import QueuedPod


def after_claim_added(pod: QueuedPod, happening: Happening) -> bool:
    """Queue where a volume of the pod names the claim."""
    known = objects(happening, PersistentVolumeClaim)
    return known is None or claims.names(pod, known[1])


def after_pod_deleted(pod: QueuedPod, happening: Happening) -> bool:
    """Queue where the pod that has gone held a disk against this one, or one of its claims."""
    known = pods(happening)
    if known is None or known[0] is None:
        return True
    gone = known[0]
    if gone.namespace != pod.namespace:
        return False
    pairs = product(spec_of(pod).volumes, spec_of(gone).volumes)
    if any(_conflict(one, other) for one, other in pairs):
        return True
    return bool(claims.named_claims(pod) & claims.named_claims(gone))


def _conflict(one: Volume, other: Volume) -> bool:
    match one.source, other.source:
        case GcePersistentDisk() as a, GcePersistentDisk() as b:
            return a.pd_name == b.pd_name and not (a.read_only and b.read_only)
        case AwsElasticBlockStore() as c, AwsElasticBlockStore() as d:
            return c.volume_id == d.volume_id
        case IscsiDisk() as e, IscsiDisk() as f:
            return e.iqn == f.iqn and not (e.read_only and f.read_only)
        case RbdImage() as g, RbdImage() as h:
            same = (g.pool, g.image) == (h.pool, h.image) and bool({*g.monitors} & {*h.monitors})
            return same and not (g.read_only and h.read_only)
    return False
