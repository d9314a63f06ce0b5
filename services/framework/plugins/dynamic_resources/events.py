"""DynamicResources: the pod's claims, and classes, slices and nodes that come or change.

A hint does not know the claims that the pod waits for beside the changed one. Upstream's skips the
pod where another of its claims cannot be used; here its gate holds it.

Source: kubernetes v1.34 plugins/dynamicresources/dynamicresources.go, EventsToRegister,
isSchedulableAfterClaimChange, isSchedulableAfterPodChange.
"""

from __future__ import annotations

from services.framework.cluster_event import ClaimUsers, ObjectEvent, PendingPod
from services.framework.hints import events_of, on, own_pod, spec_of
from services.kube.devices import ResourceClaim


def claim_changed(pod: PendingPod, old: ResourceClaim | None, new: ResourceClaim | None) -> bool:
    """Return Queue (true) if a claim freed devices, or the status of the pod's claim changed."""
    if new is None:
        return True
    if old is not None and old.allocation is not None and new.allocation is None:
        return True
    if not _is_of(new, pod):
        return False
    return old is None or _status(old) != _status(new)


def users_of(object_event: ObjectEvent) -> ClaimUsers | None:
    """Return the pods for which `claim_changed` may return Queue; None where these may be any."""
    old, new = object_event.old, object_event.new
    if not isinstance(new, ResourceClaim):
        return None
    if isinstance(old, ResourceClaim) and old.allocation is not None and new.allocation is None:
        return None
    owners = tuple(owner.uid for owner in new.owners if owner.controller)
    return ClaimUsers(new.namespace, new.name, owners)


def _is_of(claim: ResourceClaim, pod: PendingPod) -> bool:
    if claim.namespace != pod.namespace:
        return False
    return claim.is_controlled_by(pod.uid) or any(
        named.claim_name == claim.name for named in spec_of(pod).device_claims
    )


def _status(claim: ResourceClaim) -> tuple[object, ...]:
    return (claim.allocation, claim.reserved_for, claim.conditions)


EVENTS = events_of(
    "DynamicResources",
    on("NodeAdd"),
    on("NodeLabelChange"),
    on("ResourceClaimAdd", claim_changed, users_of=users_of),
    on("ResourceClaimUpdate", claim_changed, users_of=users_of),
    on("PodUpdatePodGeneratedResourceClaim", own_pod),
    on("DeviceClassAdd"),
    on("DeviceClassUpdate"),
    on("ResourceSliceAdd"),
    on("ResourceSliceUpdate"),
)
