"""VolumeRestrictions: a deleted pod frees a disk or a claim, or the pod's claim comes to be.

Source: kubernetes v1.34 plugins/volumerestrictions/volume_restrictions.go, EventsToRegister and
the isSchedulableAfter functions.
"""

from __future__ import annotations

from itertools import product

from services.framework.cluster_event import AnyPod, PendingPod
from services.framework.hints import events_of, on, spec_of
from services.framework.volumes.claim_hints import claim_named, named_claims
from services.kube.volumes import conflict


def disk_freed(pod: PendingPod, old: AnyPod | None, _new: AnyPod | None) -> bool:
    """Return Queue (true) if the deleted pod had a conflicting disk, or a claim of this pod."""
    if old is None:
        return True
    if old.namespace != pod.namespace:
        return False
    pairs = product(spec_of(pod).volumes, spec_of(old).volumes)
    if any(conflict(one.source, other.source) for one, other in pairs):
        return True
    return bool(named_claims(pod) & named_claims(old))


EVENTS = events_of(
    "VolumeRestrictions",
    on("PodDelete", disk_freed),
    on("NodeAdd"),
    on("PersistentVolumeClaimAdd", claim_named),
)
