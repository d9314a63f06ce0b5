"""Hints about the claims that a pod's volumes name, which several volume plugins share.

Source: kubernetes v1.34 plugins/volumebinding/volume_binding.go, volumezone/volume_zone.go,
volumerestrictions/volume_restrictions.go, nodevolumelimits/csi.go,
isSchedulableAfterPersistentVolumeClaimChange and its like.
"""

from __future__ import annotations

from services.framework.cluster_event import AnyPod, PendingPod
from services.framework.hints import spec_of
from services.kube.storage import PersistentVolumeClaim
from services.kube.volumes import claim_names


def claim_named(
    pod: PendingPod, _old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
) -> bool:
    """Return Queue (true) if a volume of the pod names the claim."""
    return new is not None and new.namespace == pod.namespace and new.name in named_claims(pod)


def claim_used(
    pod: PendingPod, _old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
) -> bool:
    """Return Queue (true) if a volume of the pod uses the claim, by name or as ephemeral volume."""
    if new is None or new.namespace != pod.namespace:
        return False
    return any(name == new.name for name, _ in claim_names(pod.name, spec_of(pod).volumes))


def named_claims(pod: AnyPod) -> frozenset[str]:
    """Return the names of the claims that the pod's volumes name."""
    names = claim_names(pod.name, spec_of(pod).volumes)
    return frozenset(name for name, is_made in names if not is_made)
